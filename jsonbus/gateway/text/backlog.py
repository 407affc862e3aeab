"""LineBacklog: what one client has not read yet; LineBudget: what all of them cost.

A chunk is made once and kept by reference in the backlog of every client that lags behind, so a
thousand of them on one topic cost what one does. The budget counts that: a chunk's bytes while any
backlog holds it, and for each reference to it REFERENCE_BYTES. To count each backlog in full would
cut off clients for want of memory that is free.

Retained values, which a client gets all at once when it subscribes, count for the budget and not
for the limits of the client: it has not had the time to read, and would be cut off again each time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence

#: Bytes joined for one write, as far as they are several chunks: a pipe's worth.
PIECE_BYTES = 65_536

#: What a chunk in a backlog costs beside its bytes: its place in there, and part of the objects.
REFERENCE_BYTES = 64


class Chunk:
    """Whole lines as bytes, and how many; one object for all clients that get them."""

    __slots__ = ("data", "holders", "is_spared", "lines")

    def __init__(self, data: bytes, lines: int, *, is_spared: bool = False) -> None:
        self.data = data
        self.lines = lines
        #: Whether a client's limits do not count it.
        self.is_spared = is_spared
        #: Backlogs that it is in; theirs to count.
        self.holders = 0


class LineBudget:
    """How many bytes the backlogs of a server's clients take together, and may take."""

    __slots__ = ("bytes", "bytes_max")

    def __init__(self, bytes_max: int) -> None:
        self.bytes = 0
        self.bytes_max = bytes_max

    @property
    def is_exceeded(self) -> bool:
        return self.bytes > self.bytes_max


class LineBacklog:
    """Chunks in order, counted. At most so many lines and bytes, but one chunk always."""

    __slots__ = ("_budget", "_chunks", "_spared_bytes", "_spared_lines", "bytes", "lines")

    def __init__(self, budget: LineBudget) -> None:
        self._budget = budget
        self._chunks: deque[Chunk] = deque()
        self._spared_lines = 0
        self._spared_bytes = 0
        #: All that waits, the spared included.
        self.lines = 0
        self.bytes = 0

    def __bool__(self) -> bool:
        return bool(self._chunks)

    def append(self, chunk: Chunk, lines_max: int, bytes_max: int) -> bool:
        """Keep a chunk; False, and no change, if that would be too much."""
        if not chunk.is_spared and self._chunks:
            lines = self.lines - self._spared_lines + chunk.lines
            size_bytes = self.bytes - self._spared_bytes + len(chunk.data)
            if lines > lines_max or size_bytes > bytes_max:
                return False
        self._chunks.append(chunk)
        self._hold(chunk)
        return True

    def prepend(self, chunks: Sequence[Chunk]) -> None:
        """Put chunks that are spared in front of all others."""
        self._chunks.extendleft(reversed(chunks))
        for chunk in chunks:
            self._hold(chunk)

    def take_piece(self) -> bytes:
        """The first chunk, and those behind it as far as PIECE_BYTES reach; not when empty."""
        chunks = self._chunks
        parts = [self._take()]
        size_bytes = len(parts[0])
        while chunks and size_bytes + len(chunks[0].data) <= PIECE_BYTES:
            data = self._take()
            parts.append(data)
            size_bytes += len(data)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def clear(self) -> None:
        while self._chunks:
            self._take()

    def _take(self) -> bytes:
        chunk = self._chunks.popleft()
        data = chunk.data
        self.lines -= chunk.lines
        self.bytes -= len(data)
        if chunk.is_spared:
            self._spared_lines -= chunk.lines
            self._spared_bytes -= len(data)
        chunk.holders -= 1
        self._budget.bytes -= REFERENCE_BYTES if chunk.holders else REFERENCE_BYTES + len(data)
        return data

    def _hold(self, chunk: Chunk) -> None:
        size_bytes = len(chunk.data)
        self.lines += chunk.lines
        self.bytes += size_bytes
        if chunk.is_spared:
            self._spared_lines += chunk.lines
            self._spared_bytes += size_bytes
        holders = chunk.holders
        chunk.holders = holders + 1
        self._budget.bytes += REFERENCE_BYTES if holders else REFERENCE_BYTES + size_bytes


def join_spared(lines: Iterable[bytes]) -> list[Chunk]:
    """Lines as chunks that are spared, each of about PIECE_BYTES."""
    chunks: list[Chunk] = []
    part: list[bytes] = []
    size_bytes = 0
    for line in lines:
        if part and size_bytes + len(line) > PIECE_BYTES:
            chunks.append(Chunk(b"".join(part), len(part), is_spared=True))
            part, size_bytes = [], 0
        part.append(line)
        size_bytes += len(line)
    if part:
        chunks.append(Chunk(b"".join(part), len(part), is_spared=True))
    return chunks
