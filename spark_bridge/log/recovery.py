"""Finds which bytes of a file are blocks: the scan at opening, and after a failed sync.

A crash can damage only what was written since the last sync, and that is the end of a file. So a
block that its checksum does not confirm is one of two things:

    torn      nothing follows it but more of the same flush: cut off, nobody was ever shown it
    corrupt   a block follows that was written after a sync, or the index, which is written after
              the sync, lists it: bytes that were right have changed. That is an error, as it would
              be if the file were not the last one: to cut here would give offsets a second meaning.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from ..errors import LogCorruptError
from .block import HEADER_BYTES, MAGIC, SAME_FLUSH, BlockHeader, is_intact, parse_header
from .block_index import BlockEntry, describe
from .disk import cut_back, drop_cached


def scan_blocks(fd: int, path: Path, *, sealed_end: int = 0) -> Iterator[tuple[BlockHeader, bytes]]:
    """Yield the whole and intact blocks of a file from its start up to its torn end.

    Blocks below `sealed_end` are remains and prove nothing. Raises LogCorruptError.
    """
    length = os.fstat(fd).st_size
    position = 0
    while position < length:
        found = _read_block(fd, position, length)
        if found is None:
            _check_torn(fd, path, position, length, sealed_end)
            return
        yield found
        position += found[0].size_bytes


def walk_headers(fd: int, path: Path, first: int) -> list[BlockEntry]:
    """Return the entries of a complete segment, from the headers of its blocks alone.

    Raises LogCorruptError if they do not follow each other from `first` to the end of the file.
    """
    length = os.fstat(fd).st_size
    entries = []
    position = 0
    while position < length:
        header = parse_header(os.pread(fd, HEADER_BYTES, position))
        if header is None or position + header.size_bytes > length:
            raise corrupt(path, position, "no whole block is there")
        check_order(path, position, header, first)
        begin = os.pread(fd, HEADER_BYTES + header.topics_bytes, position)
        entries.append(describe(header, begin, position))
        first = header.end
        position += header.size_bytes
    return entries


def verify_blocks(fd: int, path: Path, length: int, first: int, end: int) -> None:
    """After a failed sync, cut a file back to its former length and read it from the disk.

    Raises OSError, and LogCorruptError unless the file has the offsets from `first` to end - 1.
    """
    cut_back(fd, length)
    drop_cached(fd)
    found = first
    for header, _ in scan_blocks(fd, path, sealed_end=first):
        found = max(found, header.end)
    if found != end:
        raise corrupt(path, length, "a failed sync damaged what was on disk")


def check_order(path: Path, position: int, header: BlockHeader, first: int) -> None:
    """Raise LogCorruptError unless a block of a segment begins with that offset and skips none."""
    if header.first != first or header.rows != header.end - header.first:
        raise corrupt(path, position, f"a block from offset {header.first}, not {first}, is there")


def corrupt(path: Path, position: int, reason: str) -> LogCorruptError:
    """Return the error that names the place."""
    return LogCorruptError(
        f"{path} is damaged at byte {position} ({reason}): bring it back from a copy, or start a "
        f"new log in an empty directory"
    )


def _read_block(fd: int, position: int, length: int) -> tuple[BlockHeader, bytes] | None:
    header = parse_header(os.pread(fd, HEADER_BYTES, position))
    if header is None or position + header.size_bytes > length:
        return None
    block = os.pread(fd, header.size_bytes, position)
    if len(block) < header.size_bytes or not is_intact(block, header):
        return None
    return header, block


def _check_torn(fd: int, path: Path, position: int, length: int, sealed_end: int) -> None:
    """Raise LogCorruptError if what follows a bad block shows that the bad one was on disk."""
    rest = os.pread(fd, length - position, position)
    at = rest.find(MAGIC, 1)
    while at >= 0:
        # Blocks begin at multiples of 8; values are JSON text, which cannot look like a header.
        found = _read_block(fd, position + at, length) if at % 8 == 0 else None
        if found is not None and found[0].end > sealed_end and not found[0].flags & SAME_FLUSH:
            raise corrupt(path, position, f"a good block follows at byte {position + at}")
        at = rest.find(MAGIC, at + (found[0].size_bytes if found is not None else 1))
