"""A transport without a network, to measure what is above it."""

from __future__ import annotations

import contextlib
import socket
from collections import deque

from jsonbus.transport.base import TransportInfo

ADDRESS = ("127.0.0.1", 2416)


class ScriptedTransport:
    """A transport that brings what it is told to and drops what is sent."""

    send_failures = 0
    own_addresses: frozenset[tuple[str, int]] = frozenset()

    def __init__(self) -> None:
        self._datagrams: deque[bytes] = deque()
        self._inside, self._outside = socket.socketpair()
        self._inside.setblocking(False)

    def bring(self, datagrams: list[bytes]) -> None:
        self._datagrams.extend(datagrams)
        self._outside.send(b".")  # after the datagrams: whoever takes the byte finds them

    def sockets(self) -> list[socket.socket]:
        return [self._inside]

    def receive(self, sock: socket.socket) -> tuple[bytes, tuple[str, int]] | None:
        try:
            return self._datagrams.popleft(), ADDRESS
        except IndexError:
            with contextlib.suppress(BlockingIOError):
                sock.recv(1)
            return None

    def send(self, datagram: bytes) -> bool:
        return True

    def wait_writable(self, timeout_s: float) -> bool:
        return True

    def rejoin(self) -> bool:
        return False

    def describe(self) -> TransportInfo:
        return TransportInfo("239.255.24.16", 2416, (), 1, 0, 0)

    def kernel_drops(self) -> int:
        return 0

    def queued_bytes(self) -> int | None:
        return None

    def close(self) -> None:
        self._inside.close()
        self._outside.close()
