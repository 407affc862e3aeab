"""The state of a partition on disk at one moment: everything that readers look at."""

from __future__ import annotations

import bisect
from operator import attrgetter
from typing import NamedTuple

import pyarrow as pa

from .segment import Segment


class View(NamedTuple):
    """The state of a partition on disk at one moment. There is always a last segment, maybe
    empty.
    """

    segments: tuple[Segment, ...]
    tail: tuple[pa.RecordBatch, ...]
    tail_bytes: int  # size of its rows, uncompressed
    end: int

    @property
    def first(self) -> int:
        """The oldest offset that is kept."""
        return self.segments[0].first

    @property
    def sealed_end(self) -> int:
        """The offset where the segments end and the tail begins."""
        return self.segments[-1].end

    def segments_of(self, start: int, end: int) -> tuple[Segment, ...]:
        """Return the segments that have any of the offsets from start to end - 1."""
        low = bisect.bisect_right(self.segments, start, key=attrgetter("first")) - 1
        high = bisect.bisect_left(self.segments, end, key=attrgetter("first"))
        return self.segments[max(low, 0) : high]

    def tail_of(self, start: int, end: int) -> list[pa.RecordBatch]:
        """Return the rows of the tail from start to end - 1."""
        rows = []
        first = self.sealed_end
        for batch in self.tail:
            low, high = max(start - first, 0), min(end - first, batch.num_rows)
            if low < high:
                rows.append(batch.slice(low, high - low))
            first += batch.num_rows
        return rows
