"""SubscriptionStore for programs: who subscribes to what. Reading takes no lock."""

from __future__ import annotations

import threading
from collections.abc import Hashable
from typing import TypeVar

from jsonbus.core.routing import subscriptions
from jsonbus.core.wire.topics import check_pattern

S = TypeVar("S", bound=Hashable)


class SubscriptionStore(subscriptions.SubscriptionStore[S]):
    """Subscribers by pattern, and patterns by subscriber, each found by one look-up.

        store = jsonbus.SubscriptionStore()
        store.subscribe("sensors/*", "display")
        store.subscribers_of("sensors/kitchen")     # ("display",)

    A subscriber is any hashable object. A pattern is forgotten with its last subscriber, and a
    subscriber with its last pattern.

    All methods may be called from any thread. Writers wait for each other; `subscribers_of` never
    waits: it returns a tuple of exactly the subscribers of the topic at that moment, which later
    changes do not affect. Each change, `remove` with all its patterns included, takes effect for
    all topics at once. A signal handler or a `__del__` may call only `subscribers_of`: it may run
    while the same thread holds the writers' lock.

    The bus itself uses the same store, without the lock.
    """

    __slots__ = ("_lock",)

    def __init__(self) -> None:
        super().__init__()
        self._lock = threading.Lock()

    def subscribe(self, pattern: str, subscriber: S) -> bool:
        """Add a subscription to a topic or pattern; return False if it exists already.

        Raises InvalidTopicError.
        """
        pattern = check_pattern(pattern)
        with self._lock:
            return super().subscribe(pattern, subscriber)

    def unsubscribe(self, pattern: str, subscriber: S) -> bool:
        """End one subscription; return False if there is none."""
        with self._lock:
            return super().unsubscribe(pattern, subscriber)

    def remove(self, subscriber: S) -> tuple[str, ...]:
        """End all subscriptions of one subscriber at once; return the patterns it had."""
        with self._lock:
            return super().remove(subscriber)

    def subscribers_of(self, topic: str) -> tuple[S, ...]:
        """Return the subscribers that want the topic now, each once, oldest subscription first.

        Later changes do not affect the tuple, so a caller may subscribe and unsubscribe while
        iterating over it. A name that is not a valid topic has no subscribers.
        """
        return self._subscribers.match(topic)

    def patterns_of(self, subscriber: S) -> tuple[str, ...]:
        """Return the patterns of one subscriber, oldest first."""
        with self._lock:
            return super().patterns_of(subscriber)

    def patterns(self) -> tuple[str, ...]:
        """Return all patterns that have a subscriber, oldest first."""
        with self._lock:
            return super().patterns()

    def __repr__(self) -> str:
        # Without the lock, so that a debugger may ask at any time.
        counts = f"{len(self)} patterns, {len(self._patterns_of)} subscribers"
        return f"<{type(self).__name__} {counts}>"
