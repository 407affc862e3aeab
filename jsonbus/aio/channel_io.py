"""Looks after all channels of a bus, in its event loop."""

from __future__ import annotations

import asyncio
import math
import socket
from time import monotonic

from jsonbus.aio.signal import Signal
from jsonbus.aio.timer import Timer
from jsonbus.frontend.channels.connection import Line
from jsonbus.frontend.channels.manager import Exchange
from jsonbus.frontend.log import BusLog


class Operator:
    """See frontend/exchange.py. All methods are for the event loop's thread."""

    def __init__(
        self, exchange: Exchange, event_loop: asyncio.AbstractEventLoop, log: BusLog
    ) -> None:
        self._exchange = exchange
        self._event_loop = event_loop
        self._log = log
        self._timer = Timer(event_loop, self._tend)
        self._is_woken = False
        self._watched: dict[socket.socket, tuple[bool, bool]] = {}  # reads, writes
        self._stepped = Signal(event_loop)
        exchange.start(self)

    async def close(self, deadline: float) -> None:
        """Close all channels; what did not arrive by then is given up."""
        exchange = self._exchange
        try:
            exchange.post(exchange.close)
            async with asyncio.timeout(max(0.0, deadline - monotonic())):
                while not (exchange.is_closing and exchange.is_quiet):
                    await self._stepped.wait()
        except TimeoutError:
            pass
        finally:
            self.end_now()

    def end_now(self) -> None:
        """Close them without waiting."""
        if not self._exchange.is_over:
            self._exchange.finish()
            self._timer.cancel()
            self._stepped.fire()

    # What the exchange calls.

    def wake(self) -> None:
        """Have `tend` called in the next turn of the event loop."""
        if not self._is_woken and not self._event_loop.is_closed():
            self._is_woken = True
            self._event_loop.call_soon(self._tend)

    def watch(self, sock: socket.socket, line: Line | None, reads: bool, writes: bool) -> None:
        event_loop = self._event_loop
        had_reads, had_writes = self._watched.get(sock, (False, False))
        if reads and not had_reads:
            if line is None:
                event_loop.add_reader(sock, self._accept, sock)
            else:
                event_loop.add_reader(sock, self._read, line)
        elif had_reads and not reads:
            event_loop.remove_reader(sock)
        if writes and not had_writes:
            assert line is not None
            event_loop.add_writer(sock, self._write, line)
        elif had_writes and not writes:
            event_loop.remove_writer(sock)
        if reads or writes:
            self._watched[sock] = reads, writes
        else:
            self._watched.pop(sock, None)

    def forget(self, sock: socket.socket) -> None:
        if sock in self._watched and not self._event_loop.is_closed():
            self.watch(sock, None, False, False)

    def _accept(self, sock: socket.socket) -> None:
        try:
            self._exchange.reception.callers(sock)
        except Exception:
            self._log.fail("a caller could not be answered: this is a bug")

    def _read(self, line: Line) -> None:
        try:
            self._exchange.readable(line)
        except Exception:
            self._fail(line)
        if self._exchange.is_closing:
            self._stepped.fire()

    def _write(self, line: Line) -> None:
        try:
            self._exchange.writable(line)
        except Exception:
            self._fail(line)
        if self._exchange.is_closing:
            self._stepped.fire()

    def _fail(self, line: Line) -> None:
        self._log.fail("the channel to %r failed: this is a bug", line.end.name)
        self._exchange.drop(line, "of a bug at this end")

    def _tend(self) -> None:
        self._is_woken = False
        if self._exchange.is_over:
            return
        try:
            at = self._exchange.tend()
            if at != math.inf:
                self._timer.set(at)
        except Exception:
            self._log.fail("channels failed, and go on: this is a bug")
        self._stepped.fire()
