"""The index of a segment: one entry of fixed size per block, so that an offset is found by halving.

    entry = first offset, end offset, position in the segment, size, rows, bytes of the topics,
            CRC-32 of the topics, plain bytes, flags, earliest and latest `received_at`, CRC-32 of
            all that; little endian, see ENTRY

The file is a convenience: it is never synced, and rebuilt from the headers of the blocks when it
does not fit its segment to the byte. In memory the entries stay packed: 100 GB of log have about
half a million of them.
"""

from __future__ import annotations

import bisect
import struct
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from .block import HAS_GAPS, HEADER_BYTES, BlockHeader

ENTRY = struct.Struct("<QQQIIIIIIqq")
_CHECKSUM = struct.Struct("<I")
ENTRY_BYTES = ENTRY.size + _CHECKSUM.size


class BlockEntry(NamedTuple):
    """The index entry of a block. A block in a segment has end - first rows."""

    first: int
    end: int
    position: int
    size_bytes: int
    rows: int
    topics_bytes: int
    topics_checksum: int
    plain_bytes: int
    flags: int
    received_min_us: int
    received_max_us: int

    @property
    def has_gaps(self) -> bool:
        """True if some rows are gap records."""
        return bool(self.flags & HAS_GAPS)

    def pack(self) -> bytes:
        """Return the entry as it is on disk."""
        fields = ENTRY.pack(*self)
        return fields + _CHECKSUM.pack(zlib.crc32(fields))


def unpack(packed: bytes) -> BlockEntry:
    """Parse an entry that `pack` made."""
    return BlockEntry._make(ENTRY.unpack_from(packed))


def describe(header: BlockHeader, begin: bytes, position: int) -> BlockEntry:
    """Make the entry of a block from its header and the bytes that it begins with, up to the end of
    its topics at least.
    """
    topics = memoryview(begin)[HEADER_BYTES : HEADER_BYTES + header.topics_bytes]
    return BlockEntry(
        header.first,
        header.end,
        position,
        header.size_bytes,
        header.rows,
        header.topics_bytes,
        zlib.crc32(topics),
        header.plain_bytes,
        header.flags,
        header.received_min_us,
        header.received_max_us,
    )


def find_block(entries: Sequence[bytes], offset: int, count: int) -> int:
    """Return the number of the block that has an offset, among the first `count`."""
    return bisect.bisect_right(entries, offset, hi=count, key=_first) - 1


def load_index(path: Path, first: int, length: int) -> list[bytes] | None:
    """Load the entries of a segment of that length; None if they do not fit it from end to end."""
    entries = load_listed(path, first)
    if not entries:
        return entries if length == 0 else None
    last = unpack(entries[-1])
    return entries if last.position + last.size_bytes == length else None


def load_listed(path: Path, first: int) -> list[bytes]:
    """Load the entries of an index, up to the first that is damaged or out of order."""
    try:
        data = path.read_bytes()
    except OSError:
        return []
    entries = []
    position = 0
    for at in range(0, len(data) - ENTRY_BYTES + 1, ENTRY_BYTES):
        packed = data[at : at + ENTRY_BYTES]
        entry = unpack(packed)
        if not _is_intact(packed) or (entry.first, entry.position) != (first, position):
            break
        entries.append(packed)
        first = entry.end
        position += entry.size_bytes
    return entries


def _first(packed: bytes) -> int:
    return int.from_bytes(packed[:8], "little")


def _is_intact(packed: bytes) -> bool:
    (checksum,) = _CHECKSUM.unpack_from(packed, ENTRY.size)
    return bool(zlib.crc32(packed[: ENTRY.size]) == checksum)
