"""Mailbox: the bounded buffer of one subscription, with a policy for when it is full.

    drop_oldest   the oldest messages are dropped to make room
    drop_newest   messages that do not fit are dropped
    block         messages that do not fit are not taken: the front end keeps them and waits for
                  `room`
    error         messages that do not fit are dropped, and so are all later ones, until the reader
                  has read up to the gap and taken the overflow: it learns exactly where messages
                  are missing, and how many

A mailbox neither locks nor waits. The front end calls it under its lock or in its event loop.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import chain, islice
from typing import Generic, Literal, TypeVar, get_args

from jsonbus.errors import ConfigError

#: What happens to messages that do not fit.
Overflow = Literal["drop_oldest", "drop_newest", "block", "error"]

OVERFLOW_POLICIES: tuple[Overflow, ...] = get_args(Overflow)

M = TypeVar("M")


class Mailbox(Generic[M]):
    """At most `maxsize` messages that wait for one reader.

    Raises ConfigError for a maxsize that is not a positive integer and for an unknown policy.
    """

    __slots__ = ("_lost", "_messages", "dropped", "maxsize", "overflow")

    def __init__(self, maxsize: int, overflow: Overflow = "drop_oldest") -> None:
        if type(maxsize) is not int or maxsize < 1:
            raise ConfigError(f"maxsize is {maxsize!r}: give the number of messages to keep")
        if overflow not in OVERFLOW_POLICIES:
            raise ConfigError(
                f"overflow is {overflow!r}: use one of {', '.join(OVERFLOW_POLICIES)}"
            )
        self.maxsize = maxsize
        self.overflow = overflow
        #: Messages lost so far because the mailbox was full.
        self.dropped = 0
        self._messages: deque[M] = deque(maxlen=maxsize)
        self._lost = 0  # policy error: dropped since the overflow that the reader has not taken yet

    @property
    def pending(self) -> int:
        """The number of messages that wait to be read."""
        return len(self._messages)

    @property
    def room(self) -> int:
        """The number of messages that fit without loss."""
        return 0 if self._lost else self.maxsize - len(self._messages)

    def put_many(self, messages: Sequence[M]) -> int:
        """Add messages in order, all those of a datagram at once; return how many were kept.

        Policy block keeps the first ones that fit and does not count the others as dropped: they
        still belong to the caller.
        """
        excess = len(messages) - self.room
        if excess <= 0:
            self._messages.extend(messages)
            return len(messages)
        if self.overflow != "block":
            self.dropped += excess
        if self.overflow == "drop_oldest":
            self._messages.extend(messages)  # the deque's maxlen pushes the oldest out
            return min(len(messages), self.maxsize)
        if self.overflow == "error":
            self._lost += excess
        kept = len(messages) - excess
        self._messages.extend(messages[:kept])
        return kept

    def losing(self, messages: Sequence[M]) -> list[M]:
        """Return what `put_many` would drop to add these."""
        excess = max(0, len(messages) - self.room)
        if self.overflow == "block" or not excess:
            return []
        if self.overflow == "drop_oldest":
            return list(islice(chain(self._messages, messages), excess))
        return list(messages[len(messages) - excess :])

    def take(self) -> M:
        """Return the oldest message and remove it; raise IndexError if none is pending."""
        return self._messages.popleft()

    def take_many(self, count_max: int) -> list[M]:
        """Return up to that many messages, oldest first, and remove them."""
        messages = self._messages
        if len(messages) <= count_max:
            taken = list(messages)
            messages.clear()
            return taken
        return [messages.popleft() for _ in range(count_max)]

    def take_overflow(self) -> int:
        """Return how many messages are missing here; 0 if none are, or others must be read first.

        Afterwards messages are accepted again. The front end raises QueueFullError with the number.
        """
        if self._messages:
            return 0
        lost, self._lost = self._lost, 0
        return lost

    def clear(self) -> int:
        """Drop the pending messages and the overflow; return how many messages were pending."""
        count = len(self._messages)
        self._messages.clear()
        self._lost = 0
        return count
