"""ChannelIO: reads and writes all channels of a bus, in its event loop."""

from __future__ import annotations

import asyncio
import math
import socket
from collections.abc import Callable
from time import monotonic

from jsonbus.aio.signal import Signal
from jsonbus.aio.timer import Timer
from jsonbus.frontend.channels.connection import Connection
from jsonbus.frontend.channels.manager import ChannelManager
from jsonbus.frontend.log import BusLog


class ChannelIO:
    """See frontend/channels/manager.py. All methods belong to the thread of the event loop."""

    def __init__(
        self, manager: ChannelManager, event_loop: asyncio.AbstractEventLoop, log: BusLog
    ) -> None:
        self._manager = manager
        self._event_loop = event_loop
        self._log = log
        self._timer = Timer(event_loop, self._tend)
        self._is_woken = False
        self._watched: dict[socket.socket, tuple[bool, bool]] = {}  # reads, writes
        self._stepped = Signal(event_loop)
        manager.watcher = self

    async def close(self, deadline: float) -> None:
        """Close all channels; drop what was not delivered by the deadline."""
        manager = self._manager
        try:
            manager.post(manager.close)
            async with asyncio.timeout(max(0.0, deadline - monotonic())):
                while not (manager.is_closing and manager.is_quiet):
                    await self._stepped.wait()
        except TimeoutError:
            pass
        finally:
            self.end_now()

    def end_now(self) -> None:
        """Drop all channels without waiting."""
        if not self._manager.is_over:
            self._manager.finish()
            self._timer.cancel()
            self._stepped.fire()

    # For the manager:

    def wake(self) -> None:
        """Have `tend` called in the next iteration of the event loop."""
        if not self._is_woken and not self._event_loop.is_closed():
            self._is_woken = True
            self._event_loop.call_soon(self._tend)

    def watch(
        self, sock: socket.socket, connection: Connection | None, reads: bool, writes: bool
    ) -> None:
        event_loop = self._event_loop
        had_reads, had_writes = self._watched.get(sock, (False, False))
        if reads and not had_reads:
            if connection is None:
                event_loop.add_reader(sock, self._accept, sock)
            else:
                event_loop.add_reader(sock, self._serve, self._manager.readable, connection)
        elif had_reads and not reads:
            event_loop.remove_reader(sock)
        if writes and not had_writes:
            assert connection is not None
            event_loop.add_writer(sock, self._serve, self._manager.writable, connection)
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
            self._manager.listener.accept(sock)
        except Exception:
            self._log.fail("a connection could not be accepted: this is a bug")

    def _serve(self, serve: Callable[[Connection], None], connection: Connection) -> None:
        try:
            serve(connection)
        except Exception:
            self._log.fail("the channel to %r failed: this is a bug", connection.end.name)
            self._manager.drop(connection, "a bug at this end")
        if self._manager.is_closing:
            self._stepped.fire()

    def _tend(self) -> None:
        self._is_woken = False
        if self._manager.is_over:
            return
        try:
            at = self._manager.tend()
            if at != math.inf:
                self._timer.set(at)
        except Exception:
            self._log.fail("channels failed and continue: this is a bug")
        self._stepped.fire()
