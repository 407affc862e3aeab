"""Outlet: the way of lines to one client, which is its transport and its backlog.

A chunk is one or more whole lines, made once and shared by all clients that get it. While the
socket takes everything, a chunk goes straight to it. From the first byte that the socket refuses,
chunks wait in the client's backlog, where they cost a reference each; asyncio's own buffer, which
would copy them for every client, holds no more than the rest of one write. A client whose backlog
exceeds its limits is cut off: waiting for it would cost the others. One chunk is always kept,
however large. The budget counts all backlogs and asyncio's buffers; when it is exceeded, the
clients with the most unread bytes are cut off.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Sequence

from .backlog import PIECE_BYTES, Chunk, LineBacklog, LineBudget


class Outlet(ABC):
    """See the head of this file. Use it in the event loop of the transport."""

    def __init__(self, budget: LineBudget, lines_max: int, bytes_max: int) -> None:
        self._budget = budget
        self._lines_max = lines_max
        self._bytes_max = bytes_max
        self._transport: asyncio.Transport | None = None  # from `open` until the connection is lost
        self._is_choked = False  # the transport holds bytes that the socket refused
        self._choked_bytes = 0  # how many, as far as the budget counts them
        self.backlog = LineBacklog(budget)
        #: Whether `write` may be called; otherwise call `keep`.
        self.is_writable = False
        #: False once the client gets nothing more than what waits for it.
        self.takes_lines = True
        #: The lines given to the transport.
        self.lines_sent = 0

    @abstractmethod
    def cut_off(self) -> None:
        """Close at once: the client did not read."""

    @abstractmethod
    def keep_budget(self) -> None:
        """Cut off the clients with the most unread bytes, perhaps this one."""

    @abstractmethod
    def has_sent_all(self) -> None:
        """Note that nothing waits any more."""

    @property
    def held_bytes(self) -> int:
        """The bytes of the budget that the client uses."""
        return self.backlog.bytes + self._choked_bytes

    def open(self, transport: asyncio.Transport, *, is_paused: bool = False) -> None:
        """Write to a transport from now on, what waits first.

        Its protocol must call `pause_writing` and `resume_writing`. If asyncio has paused the
        protocol already, it will not say so again: everything would go to its buffer, unbounded.
        """
        self._transport = transport
        if is_paused:
            self.pause_writing()
        # No buffer: asyncio calls `pause_writing` at the first byte that the socket refuses.
        transport.set_write_buffer_limits(high=0)
        if not self._is_choked:
            self._write_backlog()

    def write(self, data: bytes, lines: int) -> None:
        """Hand whole lines to the socket; only while `is_writable`."""
        transport = self._transport
        assert transport is not None
        self.lines_sent += lines
        transport.write(data)
        if transport.is_closing():  # the connection is broken; that is reported later
            self.is_writable = False

    def write_chunks(self, chunks: Sequence[Chunk]) -> None:
        """Send several chunks, in one write if they are small."""
        if self.is_writable and sum([len(chunk.data) for chunk in chunks]) <= PIECE_BYTES:
            data = b"".join([chunk.data for chunk in chunks])
            self.write(data, sum([chunk.lines for chunk in chunks]))
            return
        for chunk in chunks:
            if self.is_writable:
                self.write(chunk.data, chunk.lines)
            else:
                self.keep(chunk)

    def keep(self, chunk: Chunk) -> None:
        """Put a chunk in the backlog; cut the client off if that exceeds a limit."""
        if not self.takes_lines:
            return
        if not self.backlog.append(chunk, self._lines_max, self._bytes_max):
            self.cut_off()
        elif self._budget.is_exceeded:
            self.keep_budget()

    def stop(self) -> None:
        """Take no more lines; what waits is still sent."""
        self.takes_lines = self.is_writable = False

    def drop(self) -> None:
        """Take no more lines, and discard what waits."""
        self.stop()
        self.backlog.clear()
        self._count_choked(0)

    # ---- Called by asyncio

    def pause_writing(self) -> None:
        assert self._transport is not None
        self._is_choked = True
        self.is_writable = False
        self._count_choked(self._transport.get_write_buffer_size())
        if self._budget.is_exceeded:
            self.keep_budget()

    def resume_writing(self) -> None:
        self._is_choked = False
        self._count_choked(0)
        self._write_backlog()

    def _write_backlog(self) -> None:
        transport, backlog = self._transport, self.backlog
        assert transport is not None
        while backlog and not self._is_choked and not transport.is_closing():
            lines = backlog.lines
            piece = backlog.take_piece()
            self.write(piece, lines - backlog.lines)
        if self._is_choked or transport.is_closing():
            return
        self.is_writable = self.takes_lines
        self.has_sent_all()

    def _count_choked(self, size_bytes: int) -> None:
        self._budget.bytes += size_bytes - self._choked_bytes
        self._choked_bytes = size_bytes
