"""LineBacklog: what a text client has not read yet."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

#: Bytes joined for one write, as far as they are several chunks: a pipe's worth.
PIECE_BYTES = 65_536


class Chunk(NamedTuple):
    """Whole lines as bytes, and how many; one object for all clients that get them."""

    data: bytes
    lines: int


class LineBacklog:
    """Chunks in order, counted. At most so many lines and bytes, but one chunk always."""

    __slots__ = ("_chunks", "bytes", "lines")

    def __init__(self) -> None:
        self._chunks: deque[Chunk] = deque()
        self.lines = 0
        self.bytes = 0

    def __bool__(self) -> bool:
        return bool(self._chunks)

    def append(self, chunk: Chunk, lines_max: int, bytes_max: int) -> bool:
        """Keep a chunk; False, and no change, if that would be too much."""
        lines = self.lines + chunk.lines
        size_bytes = self.bytes + len(chunk.data)
        if (lines > lines_max or size_bytes > bytes_max) and self._chunks:
            return False
        self._chunks.append(chunk)
        self.lines = lines
        self.bytes = size_bytes
        return True

    def take_piece(self) -> bytes:
        """The first chunk, and those behind it as far as PIECE_BYTES reach; not when empty."""
        chunks = self._chunks
        chunk = chunks.popleft()
        lines, size_bytes = chunk.lines, len(chunk.data)
        parts = [chunk.data]
        while chunks and size_bytes + len(chunks[0].data) <= PIECE_BYTES:
            chunk = chunks.popleft()
            parts.append(chunk.data)
            lines += chunk.lines
            size_bytes += len(chunk.data)
        self.lines -= lines
        self.bytes -= size_bytes
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def clear(self) -> None:
        self._chunks.clear()
        self.lines = self.bytes = 0
