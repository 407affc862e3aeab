"""What a publisher keeps of one topic, and the messages of it that are sent again.

Messages of a topic that leave in one datagram, one after the other, are kept as one *stretch*: the
list of their items, which were made to be sent anyway, and one object around it. More is noted of a
message only when it is asked for.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Iterator
from operator import attrgetter
from typing import NamedTuple

from jsonbus.core.limits import (
    BEAT_MIN_S,
    HISTORY_AGE_S,
    RECORD_OVERHEAD_BYTES,
    REPAIR_IGNORE_S,
)

_first_of = attrgetter("first")


class Stretch:
    """Messages of one topic that follow each other in a datagram, and are kept together.

    The oldest ones leave first: `first` and `number` are those of the first that is left.
    """

    __slots__ = ("asked", "first", "kept_at", "mark", "number", "texts", "topic")

    def __init__(
        self,
        topic: str,
        first: int,
        number: int,
        texts: tuple[bytes, ...],
        kept_at: float,
        mark: bytes,
    ) -> None:
        self.topic = topic
        self.first = first
        self.number = number
        self.texts = texts  # a tuple of bytes is nothing that the garbage collector looks through
        self.kept_at = kept_at
        self.mark = mark
        #: By sequence, when a message was sent again or asked for, and whether it still has to be
        #: sent; None as long as nothing was asked for.
        self.asked: dict[int, tuple[float, bool]] | None = None

    def free_at(self, sequence: int, keep_s: float) -> float:
        """When that message may be pushed out."""
        at, _ = (self.asked or {}).get(sequence, (self.kept_at, False))
        return min(at + keep_s, self.kept_at + HISTORY_AGE_S)

    def all_free_at(self, count: int, keep_s: float) -> float:
        """When the first `count` messages may be pushed out."""
        if self.asked is None:
            return self.free_at(self.first, keep_s)
        return max(self.free_at(self.first + place, keep_s) for place in range(max(1, count)))

    def ask(self, sequence: int, now: float) -> bool:
        """Note that the message was asked for; False if it is on its way to be sent again."""
        if self.asked is None:
            self.asked = {}
        at, waits = self.asked.get(sequence, (-math.inf, False))
        if waits or now - at < REPAIR_IGNORE_S:
            return False
        self.asked[sequence] = (now, True)  # or soon: its keep time starts again
        return True

    def repair(self, sequence: int, now: float) -> HistoryRecord:
        """Return a message that was asked for, to be sent again now."""
        assert self.asked is not None
        self.asked[sequence] = (now, False)
        place = sequence - self.first
        number = self.number + place if self.number > 0 else self.number
        return HistoryRecord(self.topic, sequence, number, self.texts[place], self.mark, self)


class HistoryRecord(NamedTuple):
    """A message to be sent again. see history.py for `number`."""

    topic: str
    sequence: int
    number: int
    text: bytes
    mark: bytes
    stretch: Stretch


class KeptTopic:
    """The stretches of one topic: the sequences from `first` to `last`, without holes."""

    __slots__ = (
        "beat_s",
        "beaten_at",
        "beats_until",
        "first",
        "is_unsent",
        "last",
        "name",
        "stretches",
        "size_bytes",
        "slack_bytes",
    )

    def __init__(self, name: str, last: int) -> None:
        self.name = name
        self.first = last + 1
        self.last = last
        self.stretches: deque[Stretch] = deque()
        self.size_bytes = 0
        self.slack_bytes = 0  # see `History.is_at_ease`
        self.beat_s = BEAT_MIN_S
        self.beaten_at = -math.inf
        self.beats_until = -math.inf  # often until then, and as long as it has messages
        self.is_unsent = False  # nobody wants it, so nobody needs its beats

    def __len__(self) -> int:
        return self.last + 1 - self.first

    def __bool__(self) -> bool:
        return True

    def find(self, sequence: int) -> Stretch:
        """The stretch of a message that is kept."""
        return self.stretches[bisect_right(self.stretches, sequence, key=_first_of) - 1]


def oldest(stretches: Iterable[Stretch], over: int, count: int) -> Iterator[tuple[Stretch, int]]:
    """How many messages of which of these stretches make up so many bytes, and so many messages."""
    for stretch in stretches:
        if over <= 0 and count <= 0:
            return
        if over <= 0:
            taken = min(count, len(stretch.texts))
        else:
            taken = 0
            for text in stretch.texts:
                over -= len(text) + RECORD_OVERHEAD_BYTES
                taken += 1
                if over <= 0 and taken >= count:
                    break
        count -= taken
        yield stretch, taken
