"""SubscriptionStore for programs: who wants what, written by any thread and read without a lock."""

from __future__ import annotations

import threading
from collections.abc import Hashable
from typing import TypeVar

from jsonbus.core.routing import subscriptions
from jsonbus.core.routing.topics import check_pattern

S = TypeVar("S", bound=Hashable)


class SubscriptionStore(subscriptions.SubscriptionStore[S]):
    """Pattern to subscribers and subscriber to patterns, each found by one look-up.

    A subscriber is any hashable object. All methods may be called from any thread. Those who
    change something wait for each other; `subscribers_of`, asked for every message, waits for
    nobody: it returns a tuple of exactly those who want the topic at that moment, which later
    changes do not touch. Each change, `remove` with all its patterns included, happens for all
    topics at once. A pattern is forgotten with its last subscriber, and so is a subscriber with its
    last pattern.

    A signal handler or a `__del__` may call `subscribers_of` alone: it may come while the same
    thread holds the writers' lock.

    It is the store that the bus itself dispatches with, plus a lock for its writers.
    """

    __slots__ = ("_lock",)

    def __init__(self) -> None:
        super().__init__()
        self._lock = threading.Lock()

    def subscribe(self, pattern: str, subscriber: S) -> bool:
        """Note a subscription; False, and no change, if it is known already.

        Raises InvalidTopicError.
        """
        pattern = check_pattern(pattern)
        with self._lock:
            return super().subscribe(pattern, subscriber)

    def unsubscribe(self, pattern: str, subscriber: S) -> bool:
        with self._lock:
            return super().unsubscribe(pattern, subscriber)

    def remove(self, subscriber: S) -> tuple[str, ...]:
        with self._lock:
            return super().remove(subscriber)

    def patterns_of(self, subscriber: S) -> tuple[str, ...]:
        """What one subscriber asked for, oldest first."""
        with self._lock:
            return super().patterns_of(subscriber)

    def patterns(self) -> list[str]:
        """All patterns with a subscriber, oldest first."""
        with self._lock:
            return super().patterns()
