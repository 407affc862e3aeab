"""Waits for sockets, for a time, or for another thread that wakes it.

Where the kernel can (epoll), what is waited for stays registered with it: lists for select(), read
and written each time, took some 2 µs more of each lone message, from the kernel and from here. But
epoll counts in whole milliseconds, so short waits are still those of select().
"""

from __future__ import annotations

import contextlib
import select
import selectors
import socket
from collections.abc import Iterable
from time import monotonic

from jsonbus.sync.waker import Waker

#: Shorter waits are exact: batches end within a millisecond, but a timer may be a little late.
EXACT_S = 0.02

#: Who is ready beyond these is told by the next wait.
READY_MAX = 8

#: An endless wait looks up once an hour.
WAIT_S_MAX = 3600.0


class Waiter:
    """For one thread at a time, except for `wake`. Raises OSError if no descriptors are left."""

    def __init__(self) -> None:
        self._waker = Waker()
        self._sockets: dict[int, socket.socket] = {}
        try:
            self._epoll = select.epoll() if hasattr(select, "epoll") else None
        except OSError:
            self._waker.close()
            raise
        self._watch(self._waker.socket.fileno())
        #: End the wait, or keep the next one from waiting. Any thread.
        self.wake = self._waker.wake

    def listen(self, sockets: Iterable[socket.socket]) -> None:
        """Wait for input from these sockets from now on, and for no others."""
        if self._epoll is not None:
            for descriptor in self._sockets:
                with contextlib.suppress(OSError):  # it was closed
                    self._epoll.unregister(descriptor)
        self._sockets = {sock.fileno(): sock for sock in sockets}
        for descriptor in self._sockets:
            self._watch(descriptor)

    def wait(self, until: float) -> list[socket.socket]:
        """Wait until one of the sockets can be read, that time, or `wake`; return who can."""
        timeout_s = min(until - monotonic(), WAIT_S_MAX)
        if timeout_s < EXACT_S or self._epoll is None:
            ready = self._wait_exactly(max(0.0, timeout_s))
        else:
            ready = self._epoll.poll(timeout_s, READY_MAX)
        readable = []
        for descriptor, _ in ready:
            sock = self._sockets.get(descriptor)
            if sock is None:
                self._waker.clear()
            else:
                readable.append(sock)
        return readable

    def close(self) -> None:
        self._waker.close()
        if self._epoll is not None:
            self._epoll.close()

    def _watch(self, descriptor: int) -> None:
        if self._epoll is not None:
            self._epoll.register(descriptor, select.EPOLLIN)

    def _wait_exactly(self, timeout_s: float) -> list[tuple[int, int]]:
        descriptors = [*self._sockets, self._waker.socket.fileno()]
        try:
            ready = select.select(descriptors, (), (), timeout_s)[0]
            return [(descriptor, selectors.EVENT_READ) for descriptor in ready]
        except ValueError:  # a descriptor beyond what select() can hold
            with selectors.DefaultSelector() as selector:
                for descriptor in descriptors:
                    selector.register(descriptor, selectors.EVENT_READ)
                return [(key.fd, events) for key, events in selector.select(timeout_s)]
