"""A group without a network, for tests: every transport of one MemoryNetwork hears all of them.

Like UDP multicast it keeps a datagram whole, gives the sender its own datagrams back, and throws
away and counts what a full buffer cannot take. Unlike it, nothing is lost on the way.

A transport's datagrams wait in a deque. Beside it goes a socket pair that holds one byte for each
of them, so that a selector or an event loop sees the transport exactly as it sees a UDP socket.
"""

from __future__ import annotations

import itertools
import socket
import threading
import time
from collections import deque
from collections.abc import Sequence

from ..errors import TransportError
from .base import DATAGRAM_BYTES_MAX, Interface, Received, Sender, TransportInfo

# Also far below what a socket pair takes in single bytes before it is full.
BUFFER_DATAGRAMS = 64


class MemoryNetwork:
    """One group on one port. Safe from any thread."""

    def __init__(self, group: str = "239.255.24.16", port: int = 2416) -> None:
        self.group = group
        self.port = port
        self._lock = threading.Lock()
        self._members: tuple[MemoryTransport, ...] = ()
        self._numbers = itertools.count(1)

    def open(self, buffer_datagrams: int = BUFFER_DATAGRAMS) -> MemoryTransport:
        """Return a new member with a unique address."""
        if not 1 <= buffer_datagrams <= BUFFER_DATAGRAMS:
            raise ValueError(f"buffer_datagrams must be 1 to {BUFFER_DATAGRAMS}")
        with self._lock:
            number = next(self._numbers)
            address = f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}"
            member = MemoryTransport(self, address, buffer_datagrams)
            self._members = (*self._members, member)
        return member

    def _spread(self, datagram: bytes, sender: Sender) -> None:
        # Under the lock, so that all members see all datagrams in one order, and none is put into a
        # member that has closed its sockets.
        with self._lock:
            for member in self._members:
                member._put(datagram, sender)

    def _remove(self, member: MemoryTransport) -> None:
        with self._lock:
            self._members = tuple(other for other in self._members if other is not member)


class MemoryTransport:
    """A member of a MemoryNetwork, made by its `open`. See `Transport` for what each method
    promises.

    Tests may set `is_plugged` and `is_jammed`: unplugged, sending fails and nothing is heard, as
    with an interface that is down; jammed, `send` finds no room.
    """

    def __init__(self, network: MemoryNetwork, address: str, buffer_datagrams: int) -> None:
        self.is_plugged = True
        self.is_jammed = False
        self._network = network
        self._sender: Sender = (address, network.port)
        self._buffer_datagrams = buffer_datagrams
        self._waiting: deque[tuple[bytes, Sender]] = deque()
        self._readable, self._bell = socket.socketpair()
        self._readable.setblocking(False)
        self._bell.setblocking(False)
        self._drops = 0
        self._send_failures = 0
        self._known = self._interface()
        self._is_closed = False

    @property
    def offload_refusals(self) -> int:
        return 0

    @property
    def own_addresses(self) -> frozenset[Sender]:
        return frozenset()

    @property
    def send_failures(self) -> int:
        return self._send_failures

    def open_another(self, topics: tuple[str, ...] = ()) -> MemoryTransport:
        return self._network.open(self._buffer_datagrams)

    def sockets(self) -> list[socket.socket]:
        return [self._readable]

    def receive(self, sock: socket.socket) -> Received | None:
        try:
            if not sock.recv(1):
                return None
        except BlockingIOError:
            return None
        except OSError as error:
            raise TransportError("the transport is closed") from error
        datagram, sender = self._waiting.popleft()
        return (datagram,), sender

    def send(self, run: Sequence[bytes]) -> bool:
        if self._is_closed:
            raise TransportError("the transport is closed")
        if not self.is_plugged:
            self._send_failures += 1
            raise TransportError("cannot send in memory (unplugged): plug it in again")
        if len(run[0]) > DATAGRAM_BYTES_MAX:
            self._send_failures += 1
            raise TransportError(f"a datagram of {len(run[0]):,} bytes is too large: send less")
        if self.is_jammed:
            return False
        for datagram in run:
            self._network._spread(datagram, self._sender)
        return True

    def wait_writable(self, timeout_s: float) -> bool:
        deadline = time.monotonic() + timeout_s
        while self.is_jammed:
            if time.monotonic() >= deadline:
                return False
            time.sleep(0.001)
        return True

    def rejoin(self) -> bool:
        before, self._known = self._known, self._interface()
        return before != self._known

    def describe(self) -> TransportInfo:
        return TransportInfo(
            group=self._network.group,
            port=self._network.port,
            interfaces=(self._interface(),),
            ttl=1,
            receive_buffer_asked_bytes=self._buffer_datagrams * DATAGRAM_BYTES_MAX,
            receive_buffer_obtained_bytes=self._buffer_datagrams * DATAGRAM_BYTES_MAX,
        )

    def kernel_drops(self) -> int:
        return self._drops

    def queued_bytes(self) -> int | None:
        return None

    def close(self) -> None:
        self._is_closed = True
        self._network._remove(self)
        self._bell.close()
        self._readable.close()

    def _put(self, datagram: bytes, sender: Sender) -> None:
        if not self.is_plugged:
            return
        if len(self._waiting) >= self._buffer_datagrams:
            self._drops += 1
            return
        self._waiting.append((datagram, sender))
        self._bell.send(b"\0")

    def _interface(self) -> Interface:
        return Interface("memory", self._sender[0], index=1, is_up=self.is_plugged)
