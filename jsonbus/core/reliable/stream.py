"""The place of one stream: what was delivered, what is missing, what waits behind it.

Below `next` all was delivered or given up; from `top` on nothing is known of. In between everything
is in a gap, or waits, or was given up while something before it is still missing. Without gaps
`next` is `top`.
"""

from __future__ import annotations

from typing import Generic, TypeVar

from jsonbus.core.limits import STREAM_BYTES_MAX, STREAMS_AHEAD_MAX, STREAMS_BYTES_MAX
from jsonbus.core.reliable.gaps import Gaps, Range

T = TypeVar("T")

Key = tuple[str, int, str]  # node, incarnation, topic


class Waiting:
    """Messages of all streams that wait for their turn."""

    __slots__ = ("messages", "size_bytes")

    def __init__(self) -> None:
        self.messages = 0
        self.size_bytes = 0

    def has_room(self, size_bytes: int) -> bool:
        return self.messages == 0 or (
            self.messages < STREAMS_AHEAD_MAX and self.size_bytes + size_bytes <= STREAMS_BYTES_MAX
        )


class Stream(Generic[T]):
    __slots__ = (
        "_ahead",
        "_ahead_bytes",
        "_waiting",
        "checked_at",
        "far",
        "floor",
        "gaps",
        "heard_at",
        "key",
        "top",
    )

    def __init__(self, key: Key, top: int, waiting: Waiting, now: float) -> None:
        self.key = key
        self.top = top
        self.gaps: Gaps | None = None  # None rather than empty: the quickest to tell
        self._ahead: dict[int, tuple[T, int]] = {}  # what waits, with its size
        self._ahead_bytes = 0
        self._waiting = waiting
        self.heard_at = now
        self.checked_at = now  # for idleness
        self.far: int | None = None  # a sequence that is not believed yet
        self.floor = 0  # messages with a lower number are not wanted, though they count

    @property
    def next(self) -> int:
        """The sequence to be delivered next."""
        return self.top if self.gaps is None else self.gaps.first

    def note(self, last: int, now: float) -> None:
        """Everything from the top to that one is missing."""
        if self.gaps is None:
            self.gaps = Gaps()
        self.gaps.note(self.top, last, now)
        self.top = last + 1

    def has_room(self, size_bytes: int) -> bool:
        """Whether a message of that size may wait. A single one may, however large."""
        if self.gaps is not None and self.gaps.is_full:
            return False
        if self._ahead and self._ahead_bytes + size_bytes > STREAM_BYTES_MAX:
            return False
        return self._waiting.has_room(size_bytes)

    def wait(self, sequence: int, item: T, size_bytes: int) -> None:
        """Put a message where its turn will find it."""
        self._ahead[sequence] = (item, size_bytes)
        self._ahead_bytes += size_bytes
        self._waiting.messages += 1
        self._waiting.size_bytes += size_bytes

    def fill_first(self, item: T, ready: list[T]) -> None:
        """The message that is missing first has come: it is ready, and what waited behind it."""
        assert self.gaps is not None
        sequence = self.gaps.first
        self.gaps.fill(0, sequence)
        ready.append(item)
        self.release(sequence + 1, ready)

    def cut(self, sequence: int, ready: list[T]) -> list[Range]:
        """Miss nothing below that sequence any more; what was missed. What waited is ready."""
        ranges: list[Range] = []
        if self.gaps is not None:
            start = self.gaps.first
            ranges = self.gaps.cut(sequence)
            self.release(start, ready)
        if sequence > self.top:
            first = self.top
            if ranges and ranges[-1][1] + 1 == first:
                first = ranges.pop()[0]
            ranges.append((first, sequence - 1))
            self.top = sequence
        return ranges

    def release(self, start: int, ready: list[T]) -> None:
        """Gaps were closed: what waited from `start` up to the next one is ready."""
        if not self.gaps:
            self.gaps = None
        if not self._ahead:
            return
        for sequence in range(start, self.next):
            waited = self._ahead.pop(sequence, None)
            if waited is not None:  # else given up
                item, size_bytes = waited
                self._ahead_bytes -= size_bytes
                self._waiting.messages -= 1
                self._waiting.size_bytes -= size_bytes
                ready.append(item)
