"""One segment: a file of sealed blocks, named by its first offset, with its index beside it.

`Segment` is what readers see: it never changes, and can be read as long as it is held, even after
retention has deleted the file. `SegmentWriter` appends to the last segment of a partition and
publishes a new `Segment` when what it wrote is on disk.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from .block import SAME_FLUSH, distinct_topics, encode_block, parse_header
from .block_index import (
    ENTRY_BYTES,
    BlockEntry,
    describe,
    find_block,
    load_index,
    load_listed,
    unpack,
)
from .disk import LogFile, cut_back, open_for_writing, sync_directory, write_at
from .recovery import check_order, corrupt, scan_blocks, verify_blocks, walk_headers

LOG_SUFFIX, INDEX_SUFFIX = ".log", ".index"
NEVER_US = -(1 << 63)  # the latest time of a segment without rows


def segment_path(directory: Path, first: int) -> Path:
    """Return the path of the segment with that first offset."""
    return directory / f"{first:020d}{LOG_SUFFIX}"


class SegmentFile:
    """The file of a segment, for as long as anybody can still see the segment."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._kept: LogFile | None = None

    def open(self) -> LogFile:
        """Open the file for reading. May be called from any thread at any time."""
        if self._kept is not None:
            return self._kept
        try:
            return LogFile(self.path)
        except FileNotFoundError:
            # Deleted between the two checks; it was kept open before that.
            if self._kept is None:
                raise
            return self._kept

    def delete(self) -> None:
        """Delete the file and its index. The bytes are freed when the last reader closes it.

        May be repeated after an OSError. Does nothing if somebody else deleted the files.
        """
        with suppress(FileNotFoundError):
            self._kept = self.open()
        self.path.unlink(missing_ok=True)
        self.path.with_suffix(INDEX_SUFFIX).unlink(missing_ok=True)


@dataclass(frozen=True, slots=True)
class Segment:
    """The blocks of a segment that are on disk. Immutable: it grows by being replaced."""

    file: SegmentFile
    first: int
    end: int
    blocks: int
    size_bytes: int
    plain_bytes: int
    received_min_us: int
    received_max_us: int
    #: May have more entries than `blocks`: those of later versions of the same segment.
    packed_entries: Sequence[bytes] = field(repr=False)

    def entries(self, start: int, end: int) -> Iterator[BlockEntry]:
        """Return the entries of all blocks with offsets from start to end - 1."""
        start, end = max(start, self.first), min(end, self.end)
        if start >= end:
            return iter(())
        low = find_block(self.packed_entries, start, self.blocks)
        high = find_block(self.packed_entries, end - 1, self.blocks)
        return map(unpack, self.packed_entries[low : high + 1])

    def plus(self, added: Sequence[BlockEntry]) -> Segment:
        """Return the segment with more blocks, whose entries have been added to
        `packed_entries`.
        """
        if not added:
            return self
        return Segment(
            self.file,
            self.first,
            added[-1].end,
            self.blocks + len(added),
            added[-1].position + added[-1].size_bytes,
            self.plain_bytes + sum(each.plain_bytes for each in added),
            min(self.received_min_us, min(each.received_min_us for each in added)),
            max(self.received_max_us, max(each.received_max_us for each in added)),
            self.packed_entries,
        )


def open_complete(path: Path) -> Segment:
    """Open a segment that is not the last, trusting its index or its headers.

    Raises LogCorruptError if the blocks do not follow each other to the end of the file.
    """
    first = int(path.stem)
    packed = load_index(path.with_suffix(INDEX_SUFFIX), first, path.stat().st_size)
    if packed is not None:
        entries = [unpack(each) for each in packed]
    else:
        with LogFile(path) as file:
            entries = walk_headers(file.fileno(), path, first)
        packed = [each.pack() for each in entries]
        with suppress(OSError):
            path.with_suffix(INDEX_SUFFIX).write_bytes(b"".join(packed))
    return _empty(path, first, packed).plus(entries)


class SegmentWriter:
    """Appends to the last segment of a partition. Used by one thread at a time."""

    def __init__(self, path: Path) -> None:
        """Open a segment, new or as a crash left it.

        Cuts off a torn end; what is left is on disk. Raises LogCorruptError.
        """
        self.torn_bytes_cut = 0
        with ExitStack() as opened:
            self.fd = open_for_writing(path)
            opened.callback(os.close, self.fd)
            self._index_fd = open_for_writing(path.with_suffix(INDEX_SUFFIX))
            opened.callback(os.close, self._index_fd)
            self._entries: list[bytes] = []
            self.segment = _empty(path, int(path.stem), self._entries)
            self._recover(path)
            self._opened = opened.pop_all()

    def write(self, batches: Sequence[pa.RecordBatch]) -> list[BlockEntry]:
        """Write numbered rows, a block for each batch. After an OSError, call `undo`."""
        entries: list[BlockEntry] = []
        blocks: list[bytes] = []
        position = self.segment.size_bytes
        end = self.segment.end
        for batch in batches:
            first, end = end, end + batch.num_rows
            flags = SAME_FLUSH if blocks else 0
            block = encode_block(batch, first, end, distinct_topics(batch), flags=flags)
            header = parse_header(block)
            assert header is not None
            blocks.append(block)
            entries.append(describe(header, block, position))
            position += len(block)
        write_at(self.fd, self.segment.size_bytes, blocks)
        return entries

    def confirm(self, entries: Sequence[BlockEntry]) -> None:
        """Add what was written to the segment: it is on disk."""
        packed = [each.pack() for each in entries]
        # A hole that a failed write leaves in the index has no checksum; the index is then rebuilt.
        with suppress(OSError):
            write_at(self._index_fd, len(self._entries) * ENTRY_BYTES, packed)
        self._entries.extend(packed)
        self.segment = self.segment.plus(entries)

    def undo(self) -> None:
        """Take back what was written and not confirmed, on disk, too."""
        cut_back(self.fd, self.segment.size_bytes)

    def verify(self) -> None:
        """After a failed sync, take back what was not confirmed, and read the rest from the disk.

        Raises OSError or LogCorruptError.
        """
        segment = self.segment
        verify_blocks(self.fd, segment.file.path, segment.size_bytes, segment.first, segment.end)

    def close(self) -> None:
        """Close the files. Readers have their own."""
        self._opened.close()

    def _recover(self, path: Path) -> None:
        found = []
        end = self.segment.first
        position = 0
        for header, block in scan_blocks(self.fd, path):
            check_order(path, position, header, end)
            found.append(describe(header, block, position))
            end = header.end
            position += header.size_bytes
        self._check_against_index(path, position)
        self.torn_bytes_cut = os.fstat(self.fd).st_size - position
        # Also without a torn end: a killed process may have left data that was never synced.
        cut_back(self.fd, position)
        self._entries.extend(each.pack() for each in found)
        self.segment = self.segment.plus(found)
        with suppress(OSError):
            os.ftruncate(self._index_fd, 0)
            write_at(self._index_fd, 0, self._entries)

    def _check_against_index(self, path: Path, good_bytes: int) -> None:
        """Check the blocks against the index. A block that the index lists was on disk, so it
        cannot be torn.
        """
        listed = load_listed(path.with_suffix(INDEX_SUFFIX), self.segment.first)
        if listed:
            last = unpack(listed[-1])
            if last.position + last.size_bytes > good_bytes:
                raise corrupt(path, good_bytes, "the index lists more than there is")


def create_segment(directory: Path, first: int) -> SegmentWriter:
    """Create an empty segment, on disk."""
    path = segment_path(directory, first)
    path.with_suffix(INDEX_SUFFIX).unlink(missing_ok=True)
    writer = SegmentWriter(path)
    try:
        sync_directory(directory)
    except BaseException:
        writer.close()
        raise
    return writer


def _empty(path: Path, first: int, packed_entries: Sequence[bytes]) -> Segment:
    return Segment(SegmentFile(path), first, first, 0, 0, 0, -NEVER_US, NEVER_US, packed_entries)
