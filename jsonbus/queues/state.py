"""QueueState: the messages of a topic queue and each subscriber's position, without any waiting.

Messages are numbered as they are put; the queue holds those from `first` to `end - 1`, without
gaps. A subscriber's position is the number of the message it reads next, so one subtraction counts
what it has yet to read. After messages were dropped, a position may lag behind `first`: the larger
of the two is valid.

A message knows how many subscribers have yet to read it. A subscriber that has not read a message
has not read any later one either, so messages are done in the order in which they were put: only
the first is ever checked, and adding or taking one costs the same for one subscriber as for a
thousand.

Invariants between calls: at most `maxsize` messages; none that everybody has read, so none at all
without subscribers.

There is no lock here: the caller keeps others out. No call runs code of the program, except to
hash and compare subscribers, and to compare messages in `remove`. Dropped messages are returned to
the caller, so that their `__del__` does not run while a lock is held.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final, Generic, TypeVar

from jsonbus.errors import ClosedError, ConfigError

M = TypeVar("M")


class _Caller:
    """The type of the default for a subscriber; None may be a subscriber itself."""

    def __repr__(self) -> str:
        return "<the caller>"


#: Stands for the calling thread or task.
CALLER: Final = _Caller()


class QueueState(Generic[M]):
    """A bounded list of messages, and the position of each subscriber in it.

    Raises ConfigError for a maxsize that is not a positive integer.
    """

    __slots__ = ("_readers", "_slots", "end", "first", "is_closed", "maxsize")

    def __init__(self, maxsize: int) -> None:
        self.maxsize = _check_maxsize(maxsize)
        self.first = 0
        self.end = 0
        self.is_closed = False
        self._readers: dict[Hashable, Reader] = {}
        self._slots: dict[int, _Slot[M]] = {}  # by number

    def __len__(self) -> int:
        return self.end - self.first

    @property
    def has_room(self) -> bool:
        return self.end - self.first < self.maxsize

    def check_open(self) -> None:
        """Raise ClosedError if the queue is closed."""
        if self.is_closed:
            raise ClosedError("the topic queue is closed")

    def subscribe(self, subscriber: Hashable) -> bool:
        """Add a subscriber; return False if it is subscribed already. Raises ClosedError."""
        self.check_open()
        if subscriber in self._readers:
            return False
        self._readers[subscriber] = Reader(self.end)
        return True

    def unsubscribe(self, subscriber: Hashable) -> list[M] | None:
        """Remove a subscriber; return the messages dropped for it, None if it was unknown."""
        reader = self._readers.pop(subscriber, None)
        if reader is None:
            return None
        reader.is_subscribed = False
        for number in range(max(reader.position, self.first), self.end):
            self._slots[number].unread -= 1
        dropped = []
        while self.first < self.end and self._slots[self.first].unread == 0:
            dropped.append(self._drop_first())
        return dropped

    @property
    def subscriber_count(self) -> int:
        return len(self._readers)

    def reader(self, subscriber: Hashable) -> Reader | None:
        return self._readers.get(subscriber)

    def unread(self, reader: Reader) -> int:
        """Return how many messages a subscriber has yet to read."""
        return self.end - max(reader.position, self.first)

    def append(self, message: M) -> bool:
        """Add a message, for which there must be room; return False if nobody is subscribed."""
        if not self._readers:
            return False
        self._slots[self.end] = _Slot(message, len(self._readers))
        self.end += 1
        return True

    def take(self, reader: Reader) -> M:
        """Return the next message of a subscriber, which must have one to read."""
        number = max(reader.position, self.first)
        reader.position = number + 1
        slot = self._slots[number]
        slot.unread -= 1
        if slot.unread == 0:  # then all earlier ones are read, too
            self._drop_first()
        return slot.message

    def remove(self, message: M) -> list[M]:
        """Remove the oldest message equal to the given one; return it in a list, empty if none."""
        for removed in range(self.first, self.end):
            held = self._slots[removed].message
            if held is message or held == message:
                break
        else:
            return []
        # The messages before it move up by one, and with them the positions of the subscribers
        # that have not read it.
        for number in range(removed, self.first, -1):
            self._slots[number] = self._slots[number - 1]
        for reader in self._readers.values():
            if reader.position <= removed:
                reader.position += 1
        self._drop_first()
        return [held]

    def resize(self, maxsize: int) -> list[M]:
        """Change `maxsize`; return the oldest messages, dropped to fit. Raises ConfigError."""
        self.maxsize = _check_maxsize(maxsize)
        return [self._drop_first() for _ in range(self.end - self.first - maxsize)]

    def _drop_first(self) -> M:
        slot = self._slots.pop(self.first)
        self.first += 1
        return slot.message


class Reader:
    """A subscriber's position: the number of the message it reads next."""

    __slots__ = ("is_subscribed", "position")

    def __init__(self, position: int) -> None:
        self.position = position
        self.is_subscribed = True  # a call of `get` may still wait when it no longer is


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
