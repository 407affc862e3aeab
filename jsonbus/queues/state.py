"""What TopicQueue and AsyncTopicQueue have in common: messages and places, without any waiting.

Theory of operation
-------------------
Messages are numbered as they come; the queue holds those from `first` to `end - 1`, without gaps.
A subscriber's place is the number of the message it reads next, so what it has yet to read is
counted by one subtraction. A place may lag behind `first` after messages were dropped; whoever
uses it takes the larger of the two.

A message knows how many subscribers have yet to read it. Who has not read a message has not read
any later one either, so messages are done in the order in which they came: only the first is ever
looked at, and to add or take one costs the same for one subscriber as for a thousand.

Invariants between calls: at most `maxsize` messages; none that everybody has read, so none at all
without subscribers.

There is no lock here: whoever calls keeps others out. No call runs code of the program, except to
hash and compare subscribers, and to compare messages in `remove`. What is dropped is handed to
the caller, so that a message's `__del__` does not run where it would meet a lock.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final, Generic, TypeVar

from jsonbus.errors import ClosedError, ConfigError

M = TypeVar("M")


class _Caller:
    """The default for a subscriber: None would not do, since it can be one."""

    def __repr__(self) -> str:
        return "<the caller>"


#: Stands for the thread or task that calls.
CALLER: Final = _Caller()


class QueueState(Generic[M]):
    """A bounded list of messages, and the place of each subscriber in it.

    Raises ConfigError for a maxsize that is not a positive integer.
    """

    __slots__ = ("_readers", "_slots", "end", "first", "is_closed", "maxsize")

    def __init__(self, maxsize: int) -> None:
        self.maxsize = _check_maxsize(maxsize)
        self.first = 0
        self.end = 0
        self.is_closed = False
        self._readers: dict[Hashable, Reader] = {}
        self._slots: dict[int, _Slot[M]] = {}  # by number: any place is found at once

    def __len__(self) -> int:
        return self.end - self.first

    @property
    def has_room(self) -> bool:
        return self.end - self.first < self.maxsize

    def check_open(self) -> None:
        """Raises ClosedError."""
        if self.is_closed:
            raise ClosedError("the topic queue is closed")

    def subscribe(self, subscriber: Hashable) -> bool:
        """False, and no change, if it is subscribed already. Raises ClosedError."""
        self.check_open()
        if subscriber in self._readers:
            return False
        self._readers[subscriber] = Reader(self.end)
        return True

    def unsubscribe(self, subscriber: Hashable) -> list[M] | None:
        """What nobody else has yet to read, and is dropped; None if it was not subscribed."""
        reader = self._readers.pop(subscriber, None)
        if reader is None:
            return None
        reader.is_subscribed = False
        for number in range(max(reader.place, self.first), self.end):
            self._slots[number].unread -= 1
        dropped = []
        while self.first < self.end and self._slots[self.first].unread == 0:
            dropped.append(self._drop_first())
        return dropped

    def reader(self, subscriber: Hashable) -> Reader | None:
        return self._readers.get(subscriber)

    def unread(self, reader: Reader) -> int:
        """How many messages a subscriber has yet to read."""
        return self.end - max(reader.place, self.first)

    def append(self, message: M) -> bool:
        """Add a message, for which there must be room; False if there was nobody to read it."""
        if not self._readers:
            return False
        self._slots[self.end] = _Slot(message, len(self._readers))
        self.end += 1
        return True

    def take(self, reader: Reader) -> M:
        """The next message of a subscriber, which must have one to read."""
        number = max(reader.place, self.first)
        reader.place = number + 1
        slot = self._slots[number]
        slot.unread -= 1
        if slot.unread == 0:  # then nobody has any earlier one to read
            self._drop_first()
        return slot.message

    def remove(self, message: M) -> list[M]:
        """The oldest message that equals the given one, taken out; empty if there is none."""
        for removed in range(self.first, self.end):
            held = self._slots[removed].message
            if held is message or held == message:
                break
        else:
            return []
        # The messages before it move up by one, and with them the places of those who have not
        # read it.
        for number in range(removed, self.first, -1):
            self._slots[number] = self._slots[number - 1]
        for reader in self._readers.values():
            if reader.place <= removed:
                reader.place += 1
        self._drop_first()
        return [held]

    def resize(self, maxsize: int) -> list[M]:
        """The oldest messages that no longer fit, and are dropped. Raises ConfigError."""
        self.maxsize = _check_maxsize(maxsize)
        return [self._drop_first() for _ in range(self.end - self.first - maxsize)]

    def _drop_first(self) -> M:
        slot = self._slots.pop(self.first)
        self.first += 1
        return slot.message


class Reader:
    """A subscriber's place: the number of the message it reads next."""

    __slots__ = ("is_subscribed", "place")

    def __init__(self, place: int) -> None:
        self.place = place
        self.is_subscribed = True  # somebody may still wait with it when it no longer is


class _Slot(Generic[M]):
    """A message, and how many subscribers have yet to read it."""

    __slots__ = ("message", "unread")

    def __init__(self, message: M, unread: int) -> None:
        self.message = message
        self.unread = unread


def _check_maxsize(maxsize: int) -> int:
    if type(maxsize) is not int or maxsize < 1:
        raise ConfigError(
            f"maxsize is {maxsize!r}: give the number of messages to hold, at least 1"
        )
    return maxsize
