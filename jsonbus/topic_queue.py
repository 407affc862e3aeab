"""TopicQueue: one bounded list of messages for many subscribers, each with its own place in it.

Theory of operation
-------------------
Messages are numbered as they come; the queue holds those from `_first` to `_end - 1`, without gaps.
A subscriber's place is the number of the message it reads next, so what it has yet to read is
counted by one subtraction. A place may lag behind `_first` after messages were dropped; whoever
uses it takes the larger of the two.

A message knows how many subscribers have yet to read it. Who has not read a message has not read
any later one either, so messages are done in the order in which they came: only the first is ever
looked at, and `put` and `get` take the same time for one subscriber as for a thousand.

Everything happens under one lock, and nothing under it waits or calls out, except to compare
messages in `remove`.

Readers wait on one condition. A reader only waits when it has read everything, so a new message
concerns every one that waits, and all are woken.

Writers that find the queue full stand in line, each with its message and a condition of its own.
Whoever makes room puts the messages of the first in line into the queue for them and then wakes
just those: a writer that comes later cannot slip in between, and nobody wakes up in vain.

Invariants, whenever the lock is free: at most `maxsize` messages; none that everybody has read, so
none at all without subscribers; nobody in line while there is room.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Hashable
from typing import Generic, TypeVar

from jsonbus.errors import ClosedError, ConfigError

M = TypeVar("M")


class TopicQueue(Generic[M]):
    """A bounded list of messages that many subscribers read, each at its own pace.

    Every subscriber gets every message that was put after it subscribed, in the same order. A
    message is gone when the last of them has read it; the slowest subscriber holds up the writers.
    A subscriber is any hashable object. All methods may be called from any thread; threads that
    read for the same subscriber share its place, and each message goes to one of them.

    Timeouts are in seconds: None waits for ever, 0 not at all. Raises ConfigError for a maxsize
    that is not a positive integer.
    """

    def __init__(self, maxsize: int) -> None:
        self._maxsize = _check_maxsize(maxsize)
        self._lock = threading.Lock()
        self._readable = threading.Condition(self._lock)
        self._readers: dict[Hashable, _Reader] = {}
        self._slots: dict[int, _Slot[M]] = {}  # by number: any place is found at once
        self._first = 0
        self._end = 0
        self._line: deque[_Turn[M]] = deque()
        self._is_closed = False

    @property
    def maxsize(self) -> int:
        """How many messages fit."""
        return self._maxsize

    @property
    def is_closed(self) -> bool:
        return self._is_closed

    def __len__(self) -> int:
        """How many messages at least one subscriber has yet to read."""
        with self._lock:
            return self._end - self._first

    def subscribe(self, subscriber: Hashable) -> bool:
        """Let a subscriber read what is put from now on.

        False, and nothing changes, if it is subscribed already. Raises ClosedError.
        """
        with self._lock:
            self._check_open()
            if subscriber in self._readers:
                return False
            self._readers[subscriber] = _Reader(self._end)
            return True

    def unsubscribe(self, subscriber: Hashable) -> bool:
        """End a subscription; what the subscriber has not read counts as read.

        Threads that wait in `get` for it return None. False if it was not subscribed.
        """
        with self._lock:
            reader = self._readers.pop(subscriber, None)
            if reader is None:
                return False
            reader.is_subscribed = False
            for number in range(max(reader.place, self._first), self._end):
                self._slots[number].unread -= 1
            self._drop_read()
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
            self._check_open()
            if self._has_room():  # then nobody is in line
                self._append(message)
                return
            turn = _Turn(message, threading.Condition(self._lock))
            self._line.append(turn)
            try:
                turn.condition.wait_for(lambda: turn.is_admitted or self._is_closed, timeout)
            finally:  # also when interrupted: a message that nobody waits for must not get in
                if not turn.is_admitted:
                    self._line.remove(turn)
            if not turn.is_admitted:
                self._check_open()
                raise TimeoutError(f"no room in the topic queue within {timeout:g} s")

    def get(self, subscriber: Hashable, timeout: float | None = None) -> M | None:
        """The subscriber's next message; waits while it has read everything.

        None for who is not subscribed (any more). Raises TimeoutError if nothing came in time,
        and ClosedError if the queue is closed and everything is read.
        """
        with self._lock:
            reader = self._readers.get(subscriber)
            if reader is None:
                return None
            self._readable.wait_for(
                lambda: self._unread(reader) or not reader.is_subscribed or self._is_closed,
                timeout,
            )
            if not reader.is_subscribed:
                return None
            if not self._unread(reader):
                self._check_open()
                raise TimeoutError(f"no message in the topic queue within {timeout:g} s")
            number = max(reader.place, self._first)
            reader.place = number + 1
            slot = self._slots[number]
            slot.unread -= 1
            if slot.unread == 0:
                self._drop_read()
                self._admit()
            return slot.message

    def available(self, subscriber: Hashable) -> int:
        """How many messages the subscriber has yet to read; 0 for who is not subscribed."""
        with self._lock:
            reader = self._readers.get(subscriber)
            return 0 if reader is None else self._unread(reader)

    def remove(self, message: M) -> bool:
        """Take a message out, so that nobody reads it any more; False if it is not there.

        Of equal messages the oldest goes.
        """
        with self._lock:
            for removed in range(self._first, self._end):
                held = self._slots[removed].message
                if held is message or held == message:
                    break
            else:
                return False
            # The messages before it move up by one, and with them the places of those who have
            # not read it.
            for number in range(removed, self._first, -1):
                self._slots[number] = self._slots[number - 1]
            for reader in self._readers.values():
                if reader.place <= removed:
                    reader.place += 1
            self._drop_first()
            self._admit()
            return True

    def resize(self, maxsize: int) -> int:
        """Change how many messages fit; returns how many of the oldest were dropped for it.

        Raises ConfigError if maxsize is not a positive integer.
        """
        with self._lock:
            self._maxsize = _check_maxsize(maxsize)
            dropped = max(0, self._end - self._first - maxsize)
            for _ in range(dropped):
                self._drop_first()
            self._admit()
            return dropped

    def close(self) -> None:
        """Take no more messages. What is there can still be read.

        Whoever waits in `put`, or in `get` with nothing to read, gets ClosedError. Closing twice
        is fine.
        """
        with self._lock:
            self._is_closed = True
            for turn in self._line:
                turn.condition.notify()
            self._readable.notify_all()

    # The lock is held in all of these.

    def _check_open(self) -> None:
        if self._is_closed:
            raise ClosedError("the topic queue is closed")

    def _unread(self, reader: _Reader) -> int:
        return self._end - max(reader.place, self._first)

    def _has_room(self) -> bool:
        return self._end - self._first < self._maxsize

    def _append(self, message: M) -> None:
        if self._readers:
            self._slots[self._end] = _Slot(message, len(self._readers))
            self._end += 1
            self._readable.notify_all()

    def _admit(self) -> None:
        """Let those at the head of the line in, as far as there is room."""
        while self._line and self._has_room() and not self._is_closed:
            turn = self._line.popleft()
            turn.is_admitted = True
            self._append(turn.message)
            turn.condition.notify()

    def _drop_read(self) -> None:
        while self._first < self._end and self._slots[self._first].unread == 0:
            self._drop_first()

    def _drop_first(self) -> None:
        del self._slots[self._first]
        self._first += 1


class _Slot(Generic[M]):
    """A message, and how many subscribers have yet to read it."""

    __slots__ = ("message", "unread")

    def __init__(self, message: M, unread: int) -> None:
        self.message = message
        self.unread = unread


class _Reader:
    """A subscriber's place: the number of the message it reads next."""

    __slots__ = ("is_subscribed", "place")

    def __init__(self, place: int) -> None:
        self.place = place
        self.is_subscribed = True  # a thread may still wait with it when it no longer is


class _Turn(Generic[M]):
    """A writer's turn, from standing in line until its message is in the queue."""

    __slots__ = ("condition", "is_admitted", "message")

    def __init__(self, message: M, condition: threading.Condition) -> None:
        self.message = message
        self.condition = condition
        self.is_admitted = False


def _check_maxsize(maxsize: int) -> int:
    if type(maxsize) is not int or maxsize < 1:
        raise ConfigError(
            f"maxsize is {maxsize!r}: give the number of messages to hold, at least 1"
        )
    return maxsize
