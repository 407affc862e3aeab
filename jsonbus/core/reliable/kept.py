"""Messages of reliable topics that a publisher keeps (core.history says what for)."""

from __future__ import annotations

import math
from collections.abc import Iterator

from jsonbus.core.limits import BEAT_MIN_S, HISTORY_AGE_S


class Record:
    """A message that is kept. `number`, `text` and `mark` are the caller's."""

    __slots__ = (
        "is_asked",
        "kept_at",
        "mark",
        "number",
        "repaired_at",
        "sequence",
        "text",
        "topic",
    )

    def __init__(
        self, topic: str, sequence: int, number: int, text: bytes, now: float, mark: bytes = b""
    ) -> None:
        self.topic = topic
        self.sequence = sequence
        self.number = number
        self.text = text
        self.mark = mark
        self.kept_at = now
        self.repaired_at = -math.inf
        self.is_asked = False  # and will be sent again

    def free_at(self, hold_s: float) -> float:
        """When it may be pushed out."""
        held_until = max(self.kept_at, self.repaired_at) + hold_s
        return min(held_until, self.kept_at + HISTORY_AGE_S)


class KeptTopic:
    """Kept are the sequences from `first` to `last`, without holes."""

    __slots__ = ("beat_s", "beaten_at", "first", "last", "name", "records", "size_bytes")

    def __init__(self, name: str, last: int) -> None:
        self.name = name
        self.first = last + 1
        self.last = last
        self.records: dict[int, Record] = {}
        self.size_bytes = 0
        self.beat_s = BEAT_MIN_S
        self.beaten_at = -math.inf

    def in_order(self) -> Iterator[Record]:
        return map(self.records.__getitem__, range(self.first, self.last + 1))
