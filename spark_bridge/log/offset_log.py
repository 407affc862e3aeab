"""The bridge's log: every message that it heard, each with an offset that means it for ever.

Theory of operation
===================
A log is a directory that one process has at a time:

    meta.json                       id, version, partitions, created_at
    lock                            held while the log is open; has the process id, for people
    partition-0/<first>.log         a segment: sealed blocks (block.py), named by its first offset
               /<first>.index       where each block is (block_index.py); can be rebuilt
               /tail.log            small blocks since the last seal (tail.py)

What is promised, and by what:

- **An offset is shown when it is on disk.** `append` writes, syncs, and only then swaps the View
  (partition.py) that `end` and `read` look at. Readers take the View and never wait for a sync.
- **An offset never means two messages.** What was not synced is cut off before anything else is
  written: after a crash at opening (recovery.py), after a failed write at once. After a failed
  sync the kernel may show bytes that the disk does not have, so the files are read again, past the
  cache, before the next append. A crash between sealing and emptying the tail leaves rows in both;
  those of the tail are left out.
- **Damage is an error, not a shorter log.** Only the end of the last segment and of the tail can be
  torn; a bad block anywhere else is LogCorruptError.
- **A full disk stops appending, nothing else.** LogFullError tells whose rows were not taken; those
  partitions are as they were, and take rows again when there is room.

Costs: an append encodes each row once if the flush is large, else twice (tail, then seal); rows are
only ever touched as Arrow columns. Reading whole blocks is a sendfile. Finding an offset is two
binary searches in memory, whatever the size of the log.

Locks: `_lock` is held by append, expire and close. first, end, read, find, limit and stats take
none: they use one View per partition, which never changes. Files that retention deletes stay open
for those who still read them (segment.py).
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Self

import pyarrow as pa

from ..errors import LogError, OffsetOutOfRangeError, RequestError
from .block import ROWS_WITHOUT_OFFSET
from .disk import lock_directory, make_directory
from .flush import Flusher, as_error
from .meta import PARTITIONS_DEFAULT, load_or_create
from .partition import Partition, Settings
from .range_reader import FileRun, Piece, RangeReader
from .retention import Retention
from .search import count_bytes, find_bytes, find_time, share_bytes
from .view import View

__all__ = ["FileRun", "OffsetLog", "Piece"]

#: Retention deletes whole segments: with this many per partition, it stays close to what was asked
#: for.
_SEGMENTS_KEPT_MIN = 8
_SEGMENT_BYTES_MIN = 64 << 10


class OffsetLog:
    """The log in a directory. One thread appends; every other method may be called from any
    thread.
    """

    def __init__(
        self,
        directory: Path,
        *,
        partitions: int | None = PARTITIONS_DEFAULT,
        retention_bytes: int | None = None,
        retention_s: float | None = None,
        segment_bytes: int = 64 << 20,
        seal_rows: int = 8192,
        seal_bytes: int = 1 << 20,
        now: Callable[[], float] = time.time,
    ) -> None:
        """Open a log, or create one with that many partitions.

        An existing log keeps its number of partitions: a different one is an error, None accepts
        any. Raises LogError, including LogLockedError and LogCorruptError.
        """
        self.directory = directory = Path(directory)
        self._lock = threading.Lock()
        self._is_closed = False
        self._retention = Retention(retention_bytes, retention_s, now)
        self._partitions: list[Partition] = []
        try:
            make_directory(directory)
            with ExitStack() as opened:
                opened.callback(os.close, lock_directory(directory))
                meta = load_or_create(directory, partitions, now)
                if retention_bytes is not None:
                    share = retention_bytes // (meta.partitions * _SEGMENTS_KEPT_MIN)
                    segment_bytes = min(segment_bytes, max(share, _SEGMENT_BYTES_MIN))
                age_max_s = None if retention_s is None else retention_s / _SEGMENTS_KEPT_MIN
                settings = Settings(segment_bytes, age_max_s, seal_rows, seal_bytes, now)
                for number in range(meta.partitions):
                    partition = Partition(directory / f"partition-{number}", settings)
                    opened.callback(partition.close)
                    self._partitions.append(partition)
                self._opened = opened.pop_all()
        except OSError as error:
            raise LogError(f"the log in {directory} cannot be opened: {error}") from error
        self.id = meta.id
        self.partitions = meta.partitions
        self._flusher = Flusher(self._partitions)

    def first(self) -> list[int]:
        """Return the oldest offset that is kept, by partition. Never waits."""
        return [each.view.first for each in self._partitions]

    def end(self) -> list[int]:
        """Return the offset after the last one on disk, by partition. Never waits, never
        decreases.
        """
        return [each.view.end for each in self._partitions]

    def append(self, batches: dict[int, pa.RecordBatch]) -> None:
        """Append rows with the columns of ROWS_WITHOUT_OFFSET, by partition.

        They are on disk and visible when it returns. Raises LogWriteError (or its subclass
        LogFullError) if some partitions did not accept their rows: the error names them, and all
        others did.
        """
        for number, rows in batches.items():
            if not 0 <= number < self.partitions:
                raise ValueError(f"partition {number} of {self.partitions}: count from 0")
            if not rows.schema.equals(ROWS_WITHOUT_OFFSET):
                raise ValueError("rows to append have the columns of block.ROWS_WITHOUT_OFFSET")
        with self._lock:
            self._check_open()
            segments = self._count_segments()
            failures = self._flusher.flush(
                {n: rows for n, rows in batches.items() if rows.num_rows}
            )
            if failures or self._count_segments() != segments:
                self._retention.apply(self._partitions)
        if failures:
            raise as_error(failures, self.directory)

    def read(
        self,
        partition: int,
        start: int,
        end: int,
        *,
        wants: Callable[[str], bool] | None = None,
        gaps: bool = False,
    ) -> Iterator[Piece]:
        """Read the wanted rows from start to end - 1, as pieces in order.

        `wants` returns whether a topic is wanted; None means all. Gap records are included only if
        `gaps`, and then always those without a topic. Raises OffsetOutOfRangeError or RequestError
        at once, and LogCorruptError or OSError while the pieces are taken.
        """
        view = self._view(partition)
        for offset in (start, end):
            if not view.first <= offset <= view.end:
                raise OffsetOutOfRangeError(partition, offset, view.first, view.end)
        return RangeReader(view, start, end, wants, gaps).pieces()

    def find(self, time_us: int) -> list[int]:
        """Return, by partition, the first offset received at that time (µs since 1970) or
        later.
        """
        return [find_time(each.view, time_us) for each in self._partitions]

    def limit(self, start: list[int], end: list[int], max_bytes: int) -> list[int]:
        """Return the largest ends whose rows from `start` take about `max_bytes` uncompressed.

        The partitions get fair fractions, and each that has rows gives at least one. Offsets that
        are no longer kept take no bytes. Raises OffsetOutOfRangeError or RequestError.
        """
        if not len(start) == len(end) == self.partitions:
            raise RequestError(f"limit takes {self.partitions} offsets, one for each partition")
        views = [each.view for each in self._partitions]
        ranges = []
        for number, view in enumerate(views):
            if end[number] > view.end or start[number] > end[number]:
                offset = max(start[number], end[number])
                raise OffsetOutOfRangeError(number, offset, view.first, view.end)
            ranges.append((view, max(start[number], min(view.first, end[number])), end[number]))
        wanted = [count_bytes(*each) for each in ranges]
        ends = []
        for each, want, share in zip(ranges, wanted, share_bytes(wanted, max_bytes), strict=True):
            _, lower, upper = each
            found = upper if share >= want else find_bytes(*each, share)
            ends.append(min(upper, max(lower + 1, found)))
        return ends

    def expire(self) -> int:
        """Delete what is too old or too much, in whole segments, and return how many rows that
        were.

        Also seals what has waited in a tail for too long. Call it every few seconds.
        """
        with self._lock:
            self._check_open()
            self._flusher.flush(dict.fromkeys(range(self.partitions)))
            return self._retention.apply(self._partitions)

    def stats(self) -> dict[str, int]:
        """Return counters: what there is, and what was done since the log was opened. Never
        waits.
        """
        views = [each.view for each in self._partitions]
        segments = [segment for view in views for segment in view.segments]
        return {
            "rows": sum(view.end - view.first for view in views),
            "bytes": sum(each.size_bytes for each in self._partitions),
            "segments": len(segments),
            "blocks": sum(each.blocks for each in segments),
            "tail_rows": sum(view.end - view.sealed_end for view in views),
            "rows_appended": sum(each.rows_appended for each in self._partitions),
            "rows_expired": self._retention.rows_expired,
            "seals": sum(each.seals for each in self._partitions),
            "syncs": self._flusher.syncs,
            "torn_bytes_cut": sum(each.torn_bytes_cut for each in self._partitions),
        }

    def close(self) -> None:
        """Release the directory. Idempotent. Reads in progress can be finished."""
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
            self._flusher.close()
            self._opened.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _count_segments(self) -> int:
        return sum(len(each.view.segments) for each in self._partitions)

    def _view(self, partition: int) -> View:
        if not 0 <= partition < self.partitions:
            raise RequestError(f"there is no partition {partition}: the log has {self.partitions}")
        return self._partitions[partition].view

    def _check_open(self) -> None:
        if self._is_closed:
            raise LogError(f"the log in {self.directory} is closed")
