"""The tail of a partition: rows that are on disk in small blocks, waiting to be sealed.

The bridge syncs many times a second. Were each flush a block of a segment, a quiet bus would make
millions of blocks of five rows. So small flushes go to `tail.log`, and their rows stay in memory
too: reading never looks at the file, and it can be emptied as soon as the rows are in a segment.
"""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa

from .block import combine_rows, decode_rows, encode_block
from .disk import cut_back, open_for_writing, write_at
from .recovery import corrupt, scan_blocks, verify_blocks

TAIL_NAME = "tail.log"

#: Batches of rows are combined at this number, so that thousands of flushes of one row each do not
#: become thousands of batches to combine at every read.
_COMBINE_BATCHES = 64


class Tail:
    """The rows after the last segment of a partition. Used by one thread at a time."""

    def __init__(self, directory: Path, sealed_end: int) -> None:
        """Open the tail, new or as a crash left it; its rows begin at `sealed_end`.

        Cuts off a torn end; what is left is on disk. Raises LogCorruptError.
        """
        self.torn_bytes_cut = 0
        #: The numbered rows. Replaced, never changed, because readers keep a reference.
        self.batches: tuple[pa.RecordBatch, ...] = ()
        self.first = self.end = sealed_end
        self.plain_bytes = 0
        self.size_bytes = 0  # size of the file; more than the rows take if it could not be emptied
        self._path = directory / TAIL_NAME
        self.fd = open_for_writing(self._path)
        try:
            self._recover()
        except BaseException:
            self.close()
            raise

    @property
    def rows(self) -> int:
        """Number of rows that wait to be sealed."""
        return self.end - self.first

    def write(self, rows: pa.RecordBatch, plain_bytes: int) -> int:
        """Write numbered rows as a block, and return its size. After an OSError, call `undo`."""
        end = self.end + rows.num_rows
        block = encode_block(rows, self.end, end, None, plain_bytes=plain_bytes)
        write_at(self.fd, self.size_bytes, (block,))
        return len(block)

    def confirm(self, rows: pa.RecordBatch, plain_bytes: int, block_bytes: int) -> None:
        """Add what was written to the tail: it is on disk."""
        self.size_bytes += block_bytes
        self._add(rows, plain_bytes)

    def clear(self, sealed_end: int) -> None:
        """Forget all rows: they are on disk in the segment, which ends there."""
        self.batches = ()
        self.first = self.end = sealed_end
        self.plain_bytes = 0
        # Without a sync: what a crash brings back is below `sealed_end` and is then skipped.
        try:
            os.ftruncate(self.fd, 0)
        except OSError:
            return  # The file continues after the obsolete rows.
        self.size_bytes = 0

    def undo(self) -> None:
        """Take back what was written and not confirmed, on disk, too."""
        cut_back(self.fd, self.size_bytes)

    def verify(self) -> None:
        """After a failed sync, take back what was not confirmed, and read the rest from the disk.

        Raises OSError or LogCorruptError.
        """
        verify_blocks(self.fd, self._path, self.size_bytes, self.first, self.end)

    def close(self) -> None:
        """Close the file."""
        os.close(self.fd)

    def _recover(self) -> None:
        good_bytes = 0
        for header, block in scan_blocks(self.fd, self._path, sealed_end=self.first):
            if header.end > self.end:
                if header.first > self.end:
                    raise corrupt(self._path, good_bytes, f"offset {self.end} is missing")
                # The segment may have part of it, if a crash tore what was being sealed.
                rows = decode_rows(block, header).slice(self.end - header.first)
                self._add(rows, rows.nbytes)
            good_bytes += header.size_bytes
        self.torn_bytes_cut = os.fstat(self.fd).st_size - good_bytes
        self.size_bytes = good_bytes if self.batches else 0
        cut_back(self.fd, self.size_bytes)

    def _add(self, rows: pa.RecordBatch, plain_bytes: int) -> None:
        batches = (*self.batches, rows)
        recent = batches[-_COMBINE_BATCHES:]
        if len(recent) == _COMBINE_BATCHES and all(
            each.num_rows < rows.num_rows * _COMBINE_BATCHES for each in recent
        ):
            batches = (*batches[:-_COMBINE_BATCHES], combine_rows(recent))
        self.batches = batches
        self.end += rows.num_rows
        self.plain_bytes += plain_bytes
