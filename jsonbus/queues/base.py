"""The methods of TopicQueue and AsyncTopicQueue that never wait."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable
from contextlib import AbstractContextManager
from typing import Any, Generic, TypeVar

from jsonbus.queues.state import CALLER, QueueState

M = TypeVar("M")


class BaseTopicQueue(ABC, Generic[M]):
    """The base of both queues. `_lock` guards everything; tasks of one event loop need none.

    Messages that are dropped stay referenced until the lock is released: their `__del__` may call
    the queue.
    """

    def __init__(self, maxsize: int, lock: AbstractContextManager[Any]) -> None:
        self._state: QueueState[M] = QueueState(maxsize)
        self._lock = lock

    @property
    def maxsize(self) -> int:
        """How many messages fit."""
        return self._state.maxsize

    @property
    def is_closed(self) -> bool:
        """Whether the queue takes no more messages."""
        return self._state.is_closed

    def __len__(self) -> int:
        """Return how many messages at least one subscriber has yet to read."""
        with self._lock:
            return len(self._state)

    def __repr__(self) -> str:
        # Without the lock, so that a debugger may ask at any time.
        state = self._state
        closed = "closed, " if state.is_closed else ""
        return (
            f"<{type(self).__name__} {closed}{len(state)} of {state.maxsize} messages, "
            f"{state.subscriber_count} subscribers>"
        )

    def subscribe(self, subscriber: Hashable = CALLER) -> bool:
        """Let a subscriber read all messages that are put from now on.

        Without an argument, the subscriber is the calling thread or task. Returns False, and
        changes nothing, if it is subscribed already. Raises ClosedError.
        """
        name = self._name(subscriber)
        with self._lock:
            return self._state.subscribe(name)

    def unsubscribe(self, subscriber: Hashable = CALLER) -> bool:
        """End a subscription. Messages that the subscriber has not read count as read.

        Calls of `get` that wait for it return None. Returns False if it was not subscribed.
        """
        name = self._name(subscriber)
        with self._lock:
            dropped = self._state.unsubscribe(name)
            if dropped is not None:
                self._wake_readers()
                self._room_changed()
        return dropped is not None

    def available(self, subscriber: Hashable = CALLER) -> int:
        """Return how many messages a subscriber has yet to read; 0 if it is not subscribed."""
        name = self._name(subscriber)
        with self._lock:
            reader = self._state.reader(name)
            return 0 if reader is None else self._state.unread(reader)

    def remove(self, message: M) -> bool:
        """Remove a message, so that nobody reads it any more; return False if it is not there.

        Of several equal messages, the oldest is removed. No other call proceeds while messages are
        compared.
        """
        with self._lock:
            removed = self._state.remove(message)
            self._room_changed()
        return bool(removed)

    def resize(self, maxsize: int) -> int:
        """Change how many messages fit. Return how many of the oldest were dropped to fit.

        Raises ConfigError if maxsize is not a positive integer.
        """
        with self._lock:
            dropped = self._state.resize(maxsize)
            self._room_changed()
        return len(dropped)

    def close(self) -> None:
        """Take no more messages. Messages in the queue can still be read. Idempotent.

        Calls that wait in `put`, or in `get` with nothing to read, raise ClosedError.
        """
        with self._lock:
            self._state.is_closed = True
            self._wake_writers()
            self._wake_readers()

    # The lock is held in these, except in the first.

    @abstractmethod
    def _name(self, subscriber: Hashable) -> Hashable:
        """Return the subscriber, or the calling thread or task for CALLER."""

    @abstractmethod
    def _wake_readers(self) -> None:
        """Wake all calls that wait in `get`."""

    @abstractmethod
    def _wake_writers(self) -> None:
        """Wake all calls that wait in `put`."""

    @abstractmethod
    def _room_changed(self) -> None:
        """Let writers that wait go on, as far as there is room."""

    def _append(self, message: M) -> None:
        if self._state.append(message):
            self._wake_readers()
