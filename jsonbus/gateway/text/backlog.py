"""FanOut: messages as lines for many clients; LineBacklog: the lines that one client has not read;
LineBudget: the memory of all backlogs.

A chunk is made once and kept by reference in the backlog of every client that lags behind, so a
thousand of them on one topic cost what one does. The budget counts that: a chunk's bytes while any
backlog holds it, and REFERENCE_BYTES for each reference. Counting each backlog in full would cut
off clients while memory is free.

Retained values, which a client gets all at once when it subscribes, count for the budget, not for
the limits of the client: it had no time to read them, and would be cut off again each time.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Sequence
from typing import Generic, Protocol, TypeVar

import jsonbus
from jsonbus.errors import PayloadError

logger = logging.getLogger("jsonbus.gateway")

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


class FanOut(Generic[ClientT]):
    """Encodes each message once as a line, and joins the lines that go to the same clients."""

    def __init__(self, encode: Callable[[jsonbus.Message], bytes]) -> None:
        self._encode = encode
        self.store: jsonbus.SubscriptionStore[ClientT] = jsonbus.SubscriptionStore()
        #: Messages nested deeper than can be written.
        self.unwritable = 0

    def join(self, messages: Iterable[jsonbus.Message]) -> list[tuple[Chunk, tuple[ClientT, ...]]]:
        """Return the messages as chunks of about PIECE_BYTES with their receivers, in order."""
        encode, subscribers_of = self._encode, self.store.subscribers_of
        joined: list[tuple[Chunk, tuple[ClientT, ...]]] = []
        lines: list[bytes] = []
        lines_bytes = 0
        receivers: tuple[ClientT, ...] = ()  # of `lines`
        for message in messages:
            subscribers = subscribers_of(message.topic)
            if not subscribers:
                continue
            if subscribers is not receivers or lines_bytes >= PIECE_BYTES:
                # Topics that only patterns match have a tuple each, though with the same clients.
                # Comparing a thousand references costs less than a thousand writes.
                if lines and (subscribers != receivers or lines_bytes >= PIECE_BYTES):
                    joined.append((Chunk(b"".join(lines), len(lines)), receivers))
                    lines, lines_bytes = [], 0
                receivers = subscribers
            try:
                line = encode(message)
            except PayloadError:
                self.unwritable += 1
                continue
            lines.append(line)
            lines_bytes += len(line)
        if lines:
            joined.append((Chunk(b"".join(lines), len(lines)), receivers))
        return joined

    def join_retained(self, messages: Iterable[jsonbus.Message]) -> list[Chunk]:
        """Return retained values as spared chunks, without those that cannot be written."""
        return join_spared(self._encode_all(messages))

    def _encode_all(self, messages: Iterable[jsonbus.Message]) -> Iterator[bytes]:
        for message in messages:
            try:
                yield self._encode(message)
            except PayloadError as error:
                logger.debug("! a retained value of %r: %s", message.topic, error)


def join_spared(lines: Iterable[bytes]) -> list[Chunk]:
    """Return lines as spared chunks of about PIECE_BYTES each."""
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
