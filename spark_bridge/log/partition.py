"""One partition of the log: its segments, oldest first, and its tail.

An append is three steps, so that the log can sync the files of several partitions at once:

    stage     rows are written to the tail or, if there are enough, with the tail's to the segment
    (sync)    by the caller, of the descriptor that `stage` returned
    confirm   what was written becomes visible: a new View takes the place of the old one
    reject    instead of confirm, if the sync failed

Readers take `view` and work on that: it never changes, and getting it waits for nobody.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pyarrow as pa

from ..errors import LogCorruptError
from .block import BLOCK_BYTES_MAX, combine_rows, cut_rows, number_rows
from .block_index import BlockEntry
from .disk import sync_directory
from .segment import INDEX_SUFFIX, LOG_SUFFIX, Segment, SegmentWriter, create_segment, open_complete
from .tail import TAIL_NAME, Tail
from .view import View

#: Rows wait in the tail at most this long: retention cannot delete them there.
TAIL_AGE_MAX_S = 600.0

#: A flush of at least this fraction of a sealed block is not worth writing twice.
_LARGE_PART = 4


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings that all partitions of a log share."""

    segment_bytes: int
    segment_age_max_s: float | None
    seal_rows: int
    seal_bytes: int
    now: Callable[[], float]


class Partition:
    """A partition. One thread writes at a time; any thread may take `view`."""

    def __init__(self, directory: Path, settings: Settings) -> None:
        """Open a partition as a crash left it. Raises LogCorruptError or OSError."""
        self.torn_bytes_cut = 0
        self.seals = 0
        self.rows_appended = 0
        self._directory = directory
        self._settings = settings
        #: Confirms what is written but not known to be on disk.
        self._staged: Callable[[], None] | None = None
        self._is_suspect = False
        *complete, last = _find_segments(directory)
        segments = [open_complete(path) for path in complete]
        self._writer = SegmentWriter(last)
        try:
            segments.append(self._writer.segment)
            _check_chain(segments)
            self._tail = Tail(directory, segments[-1].end)
        except BaseException:
            self._writer.close()
            raise
        self.torn_bytes_cut = self._writer.torn_bytes_cut + self._tail.torn_bytes_cut
        self._tail_since_at = settings.now()
        self.view = self._make_view(tuple(segments))

    @property
    def size_bytes(self) -> int:
        """Size of the partition on disk, without indexes."""
        return sum(each.size_bytes for each in self.view.segments) + self._tail.size_bytes

    def stage(self, rows: pa.RecordBatch | None) -> int | None:
        """Write rows without offsets; None writes only the tail's rows, if they have waited too
        long.

        Returns the descriptor to sync, or None if there is nothing to do. Raises OSError or
        LogCorruptError; then none of the rows is kept.
        """
        self._verify_if_suspect()
        if rows is None and not (self._tail.rows and self._is_tail_old()):
            return None
        try:
            if rows is None:
                return self._stage_seal(None)
            numbered = number_rows(rows, self.view.end)
            plain_bytes = numbered.nbytes
            if self._is_seal_due(numbered.num_rows, plain_bytes):
                return self._stage_seal(numbered)
            if not self._tail.rows:
                self._tail_since_at = self._settings.now()
            block_bytes = self._tail.write(numbered, plain_bytes)
            self._staged = partial(self._tail.confirm, numbered, plain_bytes, block_bytes)
            return self._tail.fd
        except BaseException:
            self._undo()
            raise

    def confirm(self) -> None:
        """Make what was staged visible: it is on disk."""
        staged, self._staged = self._staged, None
        assert staged is not None
        staged()
        self.rows_appended += self._tail.end - self.view.end
        self.view = self._make_view((*self.view.segments[:-1], self._writer.segment))

    def reject(self) -> None:
        """Drop what was staged: its sync failed.

        Nothing that the kernel shows of the files counts now. They are read again, from the disk,
        before anything else is appended.
        """
        self._staged = None
        self._is_suspect = True

    def roll(self) -> None:
        """Begin a new segment, unless the last one is empty. Raises OSError or LogCorruptError."""
        self._verify_if_suspect()  # only the last segment is ever cut
        if self._writer.segment.blocks:
            writer = create_segment(self._directory, self._writer.segment.end)
            self._writer.close()
            self._writer = writer
            self.view = self.view._replace(segments=(*self.view.segments, writer.segment))

    def drop_oldest(self) -> int:
        """Delete the oldest segment, which must not be the last, and return how many rows it
        had.
        """
        oldest, *rest = self.view.segments
        assert rest
        oldest.file.delete()
        self.view = self.view._replace(segments=tuple(rest))
        # No sync is needed: if a crash brings the file back, it is deleted again.
        with suppress(OSError):
            sync_directory(self._directory)
        return oldest.end - oldest.first

    def close(self) -> None:
        """Close the files. Views stay readable."""
        self._writer.close()
        self._tail.close()

    def _stage_seal(self, rows: pa.RecordBatch | None) -> int:
        settings = self._settings
        if self._is_segment_full():
            self.roll()
        batches: list[pa.RecordBatch] = []
        if rows is not None:
            batches.extend(cut_rows(rows, settings.seal_rows, BLOCK_BYTES_MAX))
        if self._tail.batches:
            # Not all at once: only a little of a large flush has to be copied.
            head = combine_rows([*self._tail.batches, *batches[:1]])
            batches[:1] = cut_rows(head, settings.seal_rows, BLOCK_BYTES_MAX)
        self._staged = partial(self._confirm_seal, self._writer.write(batches))
        return self._writer.fd

    def _confirm_seal(self, entries: list[BlockEntry]) -> None:
        self._writer.confirm(entries)
        self._tail.clear(self._writer.segment.end)
        self.seals += 1

    def _make_view(self, segments: tuple[Segment, ...]) -> View:
        tail = self._tail
        return View(segments, tail.batches, tail.plain_bytes, tail.end)

    def _is_seal_due(self, rows: int, plain_bytes: int) -> bool:
        settings = self._settings
        return (
            self._tail.rows + rows >= settings.seal_rows
            or self._tail.plain_bytes + plain_bytes >= settings.seal_bytes
            or rows * _LARGE_PART >= settings.seal_rows
            or plain_bytes * _LARGE_PART >= settings.seal_bytes
            or (self._tail.rows > 0 and self._is_tail_old())
        )

    def _is_tail_old(self) -> bool:
        now = self._settings.now()
        self._tail_since_at = min(self._tail_since_at, now)  # the clock may have been set back
        return now - self._tail_since_at >= TAIL_AGE_MAX_S

    def _is_segment_full(self) -> bool:
        segment, settings = self._writer.segment, self._settings
        if segment.size_bytes >= settings.segment_bytes:
            return True
        if settings.segment_age_max_s is None or not segment.blocks:
            return False
        return segment.received_min_us < (settings.now() - settings.segment_age_max_s) * 1e6

    def _undo(self) -> None:
        """Restore the files after a write that failed."""
        self._staged = None
        try:
            self._writer.undo()
            self._tail.undo()
        except OSError:
            self._is_suspect = True

    def _verify_if_suspect(self) -> None:
        # Something is staged, but neither confirmed nor rejected: the append was interrupted.
        if self._is_suspect or self._staged is not None:
            self._staged = None
            self._is_suspect = True
            self._writer.verify()
            self._tail.verify()
            self._is_suspect = False


def create_partition(directory: Path) -> None:
    """Make an empty partition on disk; one that exists and is unused stays as it is."""
    if not directory.is_dir():
        directory.mkdir()
        sync_directory(directory.parent)
    if not list(directory.glob(f"*{LOG_SUFFIX}")):
        create_segment(directory, 0).close()


def is_unused(directory: Path) -> bool:
    """Return whether no row was ever written to a partition."""
    return all(path.stat().st_size == 0 for path in directory.glob(f"*{LOG_SUFFIX}"))


def _find_segments(directory: Path) -> list[Path]:
    """Return the segments, oldest first, and delete indexes that a crash left without a
    segment.
    """
    paths = [path for path in directory.glob(f"*{LOG_SUFFIX}") if path.name != TAIL_NAME]
    if not paths:
        raise LogCorruptError(
            f"{directory} has no segments, and so the log lost its offsets: bring them back from "
            f"a copy, or start a new log in an empty directory"
        )
    for path in paths:
        if not (path.stem.isdecimal() and len(path.stem) == 20):
            raise LogCorruptError(f"{path} is no segment: move it elsewhere")
    for path in directory.glob(f"*{INDEX_SUFFIX}"):
        if not path.with_suffix(LOG_SUFFIX).exists():
            with suppress(OSError):
                os.unlink(path)
    return sorted(paths)


def _check_chain(segments: list[Segment]) -> None:
    for before, after in zip(segments, segments[1:], strict=False):
        if before.end != after.first:
            raise LogCorruptError(
                f"{after.file.path} begins with offset {after.first}, but the segment before it "
                f"ends with {before.end}: bring the files back from a copy, or start a new log in "
                f"an empty directory"
            )
