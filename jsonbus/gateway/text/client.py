"""TextClient: one connection of the text server, its bytes in and its lines out.

outlet.py has the way of the lines out. The budget counts half lines of input, too.

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

from .backlog import Chunk
from .outlet import Outlet
from .wire import Command, CommandReader, format_error

if TYPE_CHECKING:
    from .server import TextServer

#: How long a client may take to read the rest and close, after its last command.
FINISH_S_MAX = 5.0

#: A peer that vanished without a word is noticed after about 60 + 3 x 20 seconds of silence.
KEEPALIVE_S = 60
KEEPALIVE_INTERVAL_S = 20
KEEPALIVE_PROBES = 3


class TextClient(Outlet, asyncio.BufferedProtocol):
    """One text client. Use it in the server's event loop."""

    def __init__(self, server: TextServer) -> None:
        limits = server.limits
        super().__init__(server.budget, limits.backlog_lines, limits.backlog_bytes)
        self._server = server
        self._reader = CommandReader()
        self._half_line_bytes = 0  # of the input, as far as the budget counts them
        self._has_input_ended = False
        self._deadline: asyncio.TimerHandle | None = None
        self.id = ""
        self.peer = ""
        self.rights: frozenset[str] = frozenset()
        self.wrong_tokens = 0
        self.has_published = False
        self.is_turned_away = False
        self.is_finishing = False
        self.is_lost = False
        #: For the command buffer: commands read and not yet taken; whether this client is in line
        #: or a handler has it; whether it waits for room, and receives nothing meanwhile.
        self.commands: deque[Command] = deque()
        self.has_turn = False
        self.waits_for_room = False

    def send(self, line: bytes) -> None:
        """Send a reply, behind the messages that came before it."""
        self._server.flush()
        if self.is_writable:
            self.write(line, 1)
        else:
            self.keep(Chunk(line, 1))

    def cut_off(self) -> None:
        self._server.count_dropped(self)
        self.abort()

    def keep_budget(self) -> None:
        self._server.keep_budget()

    def has_sent_all(self) -> None:
        if self.is_finishing:
            # Not here: the transport would finish what it was doing and close twice.
            asyncio.get_running_loop().call_soon(self._end_output)

    @property
    def held_bytes(self) -> int:
        return super().held_bytes + self._half_line_bytes

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
        self.stop()
        self._transport.close()

    def finish(self) -> None:
        """Take no more commands and deliveries, send what waits, and close. Bounded in time."""
        self._server.flush()
        if self.is_lost or self.is_finishing:
            return
        self.is_finishing = True
        self.stop()
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
        self.open(transport)
        _keep_alive(transport.get_extra_info("socket"))
        self.peer = _name_of(transport.get_extra_info("peername"))
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
        self.set_deadline(None)
        self.drop()
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
