"""LineBacklog: the lines that one client has not read; LineBudget: the memory of all backlogs.

A chunk is made once and kept by reference in the backlog of every client that lags behind, so a
thousand of them on one topic cost what one does. The budget counts that: a chunk's bytes while any
backlog holds it, and REFERENCE_BYTES for each reference. Counting each backlog in full would cut
off clients while memory is free.

Retained values, which a client gets all at once when it subscribes, count for the budget, not for
the limits of the client: it had no time to read them, and would be cut off again each time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Sequence
from typing import Protocol, TypeVar

#: Small chunks are joined up to this size for one write: the size of a pipe.
PIECE_BYTES = 65_536

#: What a chunk in a backlog costs besides its bytes: its place, and a part of the objects.
REFERENCE_BYTES = 64


class Chunk:
    """Whole lines as bytes, and how many; one object for all clients that get them."""

    __slots__ = ("data", "holders", "is_spared", "lines")

    def __init__(self, data: bytes, lines: int, *, is_spared: bool = False) -> None:
        self.data = data
        self.lines = lines
        #: Whether the limits of a client ignore it.
        self.is_spared = is_spared
        #: The number of backlogs that hold it; they count it.
        self.holders = 0


class Client(Hashable, Protocol):
    @property
    def held_bytes(self) -> int:
        """The bytes of the budget that the client uses."""


ClientT = TypeVar("ClientT", bound=Client)


class LineBudget:
    """The bytes that the backlogs of all clients take together, and their limit."""

    __slots__ = ("bytes", "bytes_max")

    def __init__(self, bytes_max: int) -> None:
        self.bytes = 0
        self.bytes_max = bytes_max

    @property
    def is_exceeded(self) -> bool:
        return self.bytes > self.bytes_max

    def find_furthest(self, clients: Collection[ClientT]) -> Iterator[ClientT]:
        """Yield the clients with the most unread bytes until the others fit.

        The caller cuts each off, and so has it hold nothing: the number of clients bounds the loop.
        Of the clients of one topic those are the furthest behind.
        """
        while self.is_exceeded and clients:
            furthest = max(clients, key=lambda client: client.held_bytes)
            if not furthest.held_bytes:
                break
            yield furthest


class LineBacklog:
    """The unread chunks of one client, in order. One chunk is always allowed."""

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
        """Keep a chunk; return False, without a change, if that would exceed a limit."""
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
        """Remove and return the first chunk, joined with the next ones up to PIECE_BYTES."""
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


def join_spared(
    lines: Iterable[bytes], join: Callable[[list[bytes]], bytes] = b"".join
) -> list[Chunk]:
    """Return lines as spared chunks of about PIECE_BYTES each."""
    chunks: list[Chunk] = []
    part: list[bytes] = []
    size_bytes = 0
    for line in lines:
        if part and size_bytes + len(line) > PIECE_BYTES:
            chunks.append(Chunk(join(part), len(part), is_spared=True))
            part, size_bytes = [], 0
        part.append(line)
        size_bytes += len(line)
    if part:
        chunks.append(Chunk(join(part), len(part), is_spared=True))
    return chunks
