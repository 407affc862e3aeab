"""TopicQueue: one bounded list of messages for many subscribers, each with its own place in it.

Theory of operation
-------------------
core/queue_state.py has the messages and the places; here threads wait for each other. Everything
happens under one lock, and nothing under it waits.

Readers wait on one condition. A reader only waits when it has read everything, so a new message
concerns every one that waits, and all are woken. Who does not wait costs a writer nothing.

Writers that find the queue full stand in line, each with its message and a condition of its own.
Whoever makes room puts the messages of the first in line into the queue for them and then wakes
just those: a writer that comes later cannot slip in between, and nobody wakes up in vain.

Invariant, whenever the lock is free and the queue open: nobody is in line while there is room.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

from jsonbus.queues.state import CALLER, QueueState

M = TypeVar("M")


class TopicQueue(Generic[M]):
    """A bounded list of messages that many subscribers read, each at its own pace.

    Every subscriber gets every message that was put after it subscribed, in the same order. A
    message is gone when the last of them has read it; the slowest subscriber holds up the writers.

    A subscriber is any hashable object; where none is given, it is the thread that calls, by its
    `threading.Thread`. One that ends without `unsubscribe` stays subscribed, and another thread
    can unsubscribe it. Threads that read for the same subscriber share its place, and each message
    goes to one of them.

    Timeouts are in seconds: None waits for ever, 0 not at all. All methods may be called from any
    thread, though not from a signal handler or a `__del__`, which may come while the same thread
    holds the queue's lock. Raises ConfigError for a maxsize that is not a positive integer.
    """

    def __init__(self, maxsize: int) -> None:
        self._state: QueueState[M] = QueueState(maxsize)
        self._lock = threading.Lock()
        self._readable = threading.Condition(self._lock)
        self._line: OrderedDict[_Turn[M], None] = OrderedDict()  # whoever gives up leaves in O(1)

    @property
    def maxsize(self) -> int:
        """How many messages fit."""
        return self._state.maxsize

    @property
    def is_closed(self) -> bool:
        return self._state.is_closed

    def __len__(self) -> int:
        """How many messages at least one subscriber has yet to read."""
        with self._lock:
            return len(self._state)

    def subscribe(self, subscriber: Hashable = CALLER) -> bool:
        """Let a subscriber, by default this thread, read what is put from now on.

        False, and nothing changes, if it is subscribed already. Raises ClosedError.
        """
        subscriber = _named(subscriber)
        with self._lock:
            return self._state.subscribe(subscriber)

    def unsubscribe(self, subscriber: Hashable = CALLER) -> bool:
        """End a subscription; what the subscriber has not read counts as read.

        Threads that wait in `get` for it return None. False if it was not subscribed.
        """
        subscriber = _named(subscriber)
        with self._lock:
            dropped = self._state.unsubscribe(subscriber)
            if dropped is None:
                return False
            self._admit()
            self._readable.notify_all()
        return True

    def put(self, message: M, timeout: float | None = None) -> None:
        """Add a message; waits while the queue is full, behind the writers that wait already.

        Without subscribers the message is gone at once. Raises TimeoutError if there was no room
        in time, and ClosedError if the queue is closed before there is; the message is not in
        the queue then.
        """
        with self._lock:
            self._state.check_open()
            if self._state.has_room:  # then nobody is in line
                self._append(message)
                return
            turn = _Turn(message, threading.Condition(self._lock))
            self._line[turn] = None
            try:
                turn.condition.wait_for(
                    lambda: turn.is_admitted or self._state.is_closed, _bounded(timeout)
                )
            finally:  # also when interrupted: a message that nobody waits for must not get in
                if not turn.is_admitted:
                    del self._line[turn]
            if not turn.is_admitted:
                self._state.check_open()
                raise TimeoutError(f"no room in the topic queue within {timeout:g} s")

    def get(self, subscriber: Hashable = CALLER, timeout: float | None = None) -> M | None:
        """The next message of a subscriber, by default this thread; waits while there is none.

        None for who is not subscribed (any more). Raises TimeoutError if nothing came in time,
        and ClosedError if the queue is closed and everything is read.
        """
        subscriber = _named(subscriber)
        with self._lock:
            state = self._state
            reader = state.reader(subscriber)
            if reader is None:
                return None
            self._readable.wait_for(
                lambda: state.unread(reader) or not reader.is_subscribed or state.is_closed,
                _bounded(timeout),
            )
            if not reader.is_subscribed:
                return None
            if not state.unread(reader):
                state.check_open()
                raise TimeoutError(f"no message in the topic queue within {timeout:g} s")
            message = state.take(reader)
            self._admit()
            return message

    def available(self, subscriber: Hashable = CALLER) -> int:
        """How many messages a subscriber, by default this thread, has yet to read.

        0 for who is not subscribed.
        """
        subscriber = _named(subscriber)
        with self._lock:
            reader = self._state.reader(subscriber)
            return 0 if reader is None else self._state.unread(reader)

    def remove(self, message: M) -> bool:
        """Take a message out, so that nobody reads it any more; False if it is not there.

        Of equal messages the oldest goes. The queue stands still while they are compared.
        """
        with self._lock:
            removed = self._state.remove(message)
            self._admit()
        return bool(removed)

    def resize(self, maxsize: int) -> int:
        """Change how many messages fit; returns how many of the oldest were dropped for it.

        Raises ConfigError if maxsize is not a positive integer.
        """
        with self._lock:
            dropped = self._state.resize(maxsize)
            self._admit()
        return len(dropped)

    def close(self) -> None:
        """Take no more messages. What is there can still be read.

        Whoever waits in `put`, or in `get` with nothing to read, gets ClosedError. Closing twice
        is fine.
        """
        with self._lock:
            self._state.is_closed = True
            for turn in self._line:
                turn.condition.notify()
            self._readable.notify_all()

    # The lock is held in these.

    def _append(self, message: M) -> None:
        if self._state.append(message):
            self._readable.notify_all()

    def _admit(self) -> None:
        """Let those at the head of the line in, as far as there is room."""
        while self._line and self._state.has_room and not self._state.is_closed:
            turn, _ = self._line.popitem(last=False)
            turn.is_admitted = True
            self._append(turn.message)
            turn.condition.notify()


class _Turn(Generic[M]):
    """A writer's turn, from standing in line until its message is in the queue."""

    __slots__ = ("condition", "is_admitted", "message")

    def __init__(self, message: M, condition: threading.Condition) -> None:
        self.message = message
        self.condition = condition
        self.is_admitted = False


def _named(subscriber: Hashable) -> Hashable:
    # The Thread, not its ident: a thread that starts after another has ended may get the same one.
    return threading.current_thread() if subscriber is CALLER else subscriber


def _bounded(timeout: float | None) -> float | None:
    """Locks refuse to wait longer than some centuries; infinity is one way to say for ever."""
    return None if timeout is None else min(timeout, threading.TIMEOUT_MAX)
