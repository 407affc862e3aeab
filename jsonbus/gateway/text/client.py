"""TextClient: one connection of the text server, its bytes in and its lines out.

Lines out
---------
A chunk is one or more whole lines, made once and shared by all clients that get it. While the
socket takes everything, a chunk goes straight to it. From the first byte that the socket refuses,
chunks wait in the client's backlog, where they cost a reference each; asyncio's own buffer, which
would copy them for every client, holds no more than the rest of one write. A client whose backlog
exceeds its limits is cut off: waiting for it would cost the others. One line is always kept,
however large. The server's budget counts all backlogs, asyncio's buffers and half lines of input;
when it is exceeded, the server cuts off the clients with the most unread bytes.

How a client ends
-----------------
    open --finish()--> finishing --all sent--> half closed --its end of input--> closed
                           |                       |
                           +---- FINISH_S_MAX -----+--> aborted

`finish` follows the last command (quit, end of input, a browser's request, wrong tokens). It stops
deliveries and sends what waits. Then only our direction is closed, and further input is discarded:
closing a socket with unread bytes resets the connection, and the client might lose the last lines,
such as the error that gives the reason. A connection can be lost in any state. Commands that
arrived before are still executed: `echo publish a 1 > /dev/tcp/HOST/PORT` closes
without reading a byte. So a client is *gone* when it is lost and its last command was executed.
"""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from typing import TYPE_CHECKING

from .backlog import PIECE_BYTES, Chunk, LineBacklog
from .wire import Command, CommandReader, format_error

if TYPE_CHECKING:
    from .server import TextServer

#: How long a client may take to read the rest and close, after its last command.
FINISH_S_MAX = 5.0

#: A peer that vanished without a word is noticed after about 60 + 3 x 20 seconds of silence.
KEEPALIVE_S = 60
KEEPALIVE_INTERVAL_S = 20
KEEPALIVE_PROBES = 3


class TextClient(asyncio.BufferedProtocol):
    """One text client. Use it in the server's event loop."""

    def __init__(self, server: TextServer) -> None:
        self._server = server
        self._reader = CommandReader()
        self._transport: asyncio.Transport | None = None  # from connection made to lost
        self._is_choked = False  # the transport holds bytes that the socket refused
        self._choked_bytes = 0  # how many, as far as the budget counts them
        self._half_line_bytes = 0  # of the input, the same
        self._has_input_ended = False
        self._deadline: asyncio.TimerHandle | None = None
        self.backlog = LineBacklog(server.budget)
        self.id = ""
        self.peer = ""
        self.rights: frozenset[str] = frozenset()
        self.wrong_tokens = 0
        self.has_published = False
        self.is_turned_away = False
        #: Whether `write` may be called, with whole lines; otherwise call `send`.
        self.is_writable = False
        self.is_finishing = False
        self.is_lost = False
        #: For the command buffer: commands read and not yet taken; whether this client is in line
        #: or a handler has it; whether it waits for room, and receives nothing meanwhile.
        self.commands: deque[Command] = deque()
        self.has_turn = False
        self.waits_for_room = False

    def write(self, data: bytes) -> None:
        """Hand whole lines to the socket; only while `is_writable`."""
        transport = self._transport
        assert transport is not None
        transport.write(data)
        if transport.is_closing():  # the connection is broken; `connection_lost` comes later
            self.is_writable = False

    def send(self, line: bytes) -> None:
        """Send one line, now or when the client has read the lines before it."""
        if self.is_writable:
            self.write(line)
        else:
            self.keep(Chunk(line, 1))

    def send_chunks(self, chunks: list[Chunk]) -> None:
        """Send several chunks, in one write if they are small."""
        if self.is_writable and sum([len(chunk.data) for chunk in chunks]) <= PIECE_BYTES:
            self.write(b"".join([chunk.data for chunk in chunks]))
            return
        for chunk in chunks:
            if self.is_writable:
                self.write(chunk.data)
            else:
                self.keep(chunk)

    def keep(self, chunk: Chunk) -> None:
        """Put a chunk in the backlog; cut the client off if that exceeds a limit."""
        if self.is_lost or self.is_finishing:
            return
        server = self._server
        if not self.backlog.append(chunk, server.limits.backlog_lines, server.limits.backlog_bytes):
            self.cut_off()
        elif server.budget.is_exceeded:
            server.keep_budget()

    def cut_off(self) -> None:
        """Close at once: the client did not read."""
        self._server.count_dropped(self)
        self.abort()

    @property
    def held_bytes(self) -> int:
        """Return the bytes of the budget that it uses: unread lines, and half a line of input."""
        return self.backlog.bytes + self._choked_bytes + self._half_line_bytes

    def refuse(self, reason: str) -> None:
        """Send an error, then finish."""
        self.send(format_error(reason))
        self.finish()

    def turn_away(self, reason: str) -> None:
        """Send an error and close at once: the client was not admitted.

        If it has sent something, it may not see the error: a client that is refused for lack of
        room must not keep its socket for FINISH_S_MAX.
        """
        assert self._transport is not None
        self.send(format_error(reason))
        self.is_turned_away = True
        self.is_writable = False
        self._transport.close()

    def finish(self) -> None:
        """Take no more commands and deliveries, send what waits, and close. Bounded in time."""
        if self.is_lost or self.is_finishing:
            return
        self.is_finishing = True
        self.is_writable = False
        self._count_half_line(0)
        self._server.end_subscriptions(self)
        self.set_deadline(FINISH_S_MAX)
        self.resume_receiving()
        if not self._is_choked:
            self._end_output()

    def finish_after(self, seconds: float) -> None:
        """Take no more commands, but deliver for so many seconds; then finish."""
        self.set_deadline(None)
        self._deadline = asyncio.get_running_loop().call_later(seconds, self.finish)

    def abort(self) -> None:
        """Close at once, and discard what waits."""
        self._lose()
        if self._transport is not None:
            self._transport.abort()

    def set_deadline(self, seconds: float | None) -> None:
        """After so many seconds abort a finishing client, or refuse another; None: never."""
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        if seconds is not None:
            loop = asyncio.get_running_loop()
            self._deadline = loop.call_later(seconds, self._on_deadline)

    # ---- Called by the command buffer

    def next_command(self) -> Command | None:
        return self._reader.next_command()

    def pause_receiving(self) -> None:
        # A finishing client receives in order to see the end of the input.
        is_waiting_for_end = self.is_finishing or self._has_input_ended
        if self._transport is not None and not is_waiting_for_end:
            self._transport.pause_reading()

    def resume_receiving(self) -> None:
        # Not after the end of the input: asyncio would report the end again.
        if self._transport is not None and not self._has_input_ended:
            self._transport.resume_reading()

    # ---- Called by asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        # No buffer: asyncio calls `pause_writing` at the first byte that the socket refuses.
        transport.set_write_buffer_limits(high=0)
        _keep_alive(transport.get_extra_info("socket"))
        self.peer = _name_of(transport.get_extra_info("peername"))
        self.is_writable = True
        self._server.admit(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._server.receive_buffer

    def buffer_updated(self, nbytes: int) -> None:
        if self.is_finishing or self.is_lost:
            return
        self._reader.feed(self._server.receive_buffer[:nbytes])
        self._server.has_input(self)
        # Input that waits for room in the command buffer is not counted: that is not its fault.
        half_line_bytes = 0 if self.waits_for_room else self._reader.unread_bytes
        if half_line_bytes != self._half_line_bytes:
            self._count_half_line(half_line_bytes)
            self._server.keep_budget()

    def eof_received(self) -> bool:
        self._has_input_ended = True
        if self.is_finishing:
            return self._is_choked or bool(self.backlog)
        self._reader.feed_end()
        self._server.has_input(self)
        return True

    def pause_writing(self) -> None:
        assert self._transport is not None
        self._is_choked = True
        self.is_writable = False
        self._count_choked(self._transport.get_write_buffer_size())
        self._server.keep_budget()

    def resume_writing(self) -> None:
        assert self._transport is not None
        self._is_choked = False
        self._count_choked(0)
        while self.backlog and not self._is_choked and not self._transport.is_closing():
            self.write(self.backlog.take_piece())
        if self._is_choked or self._transport.is_closing():
            return
        if self.is_finishing:
            # Not here: the transport would finish what it was doing and close twice.
            asyncio.get_running_loop().call_soon(self._end_output)
        else:
            self.is_writable = True

    def connection_lost(self, error: Exception | None) -> None:
        self._lose()
        self._transport = None
        if self.is_turned_away:
            return
        if self._reader.is_over:
            self.leave_if_gone()
        else:
            self._reader.feed_end()
            self._server.has_input(self)

    def leave_if_gone(self) -> None:
        """Tell the server if the connection is lost and all commands were executed."""
        if self._transport is None and self._reader.is_over and not self.commands:
            self._server.is_gone(self)

    def _lose(self) -> None:
        if self.is_lost:
            return
        self.is_lost = True
        self.is_writable = False
        self.set_deadline(None)
        self.backlog.clear()
        self._count_choked(0)
        self._count_half_line(0)
        self._server.end_subscriptions(self)

    def _count_half_line(self, size_bytes: int) -> None:
        self._server.budget.bytes += size_bytes - self._half_line_bytes
        self._half_line_bytes = size_bytes

    def _count_choked(self, size_bytes: int) -> None:
        self._server.budget.bytes += size_bytes - self._choked_bytes
        self._choked_bytes = size_bytes

    def _on_deadline(self) -> None:
        self._deadline = None
        if self.is_finishing:
            self.abort()
        else:
            self.refuse("no token came in time: send auth TOKEN first")

    def _end_output(self) -> None:
        if self._transport is None or self.is_lost:
            return
        if self._has_input_ended:
            self._transport.close()
            return
        try:
            self._transport.write_eof()
        except OSError:  # it is gone; `connection_lost` comes later
            self.abort()


def _keep_alive(sock: socket.socket) -> None:
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, KEEPALIVE_S)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, KEEPALIVE_INTERVAL_S)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, KEEPALIVE_PROBES)


def _name_of(peername: object) -> str:
    if isinstance(peername, tuple) and len(peername) >= 2:
        return f"{peername[0]}:{peername[1]}"
    return "unknown"
