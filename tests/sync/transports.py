"""A transport that remembers what was sent through it, and lets a test stand in the way."""

from __future__ import annotations

import socket
import threading
from typing import Any

from jsonbus.core.codec import loads
from jsonbus.core.fragments import Fragments
from jsonbus.core.frames import FragmentFrame, MessagesFrame
from jsonbus.core.wire import decode
from jsonbus.transport import MemoryNetwork, Sender, TransportInfo


class RecordingTransport:
    """Passes everything on to a transport in memory.

    While `gate` is closed, `send` waits in the middle, as if the system call took long; `entered`
    counts the sends that have come that far.
    """

    def __init__(self, network: MemoryNetwork, buffer_datagrams: int = 64) -> None:
        self.inner = network.open(buffer_datagrams)
        self.gate = threading.Event()
        self.gate.set()
        self.entered = 0
        self.sent: list[bytes] = []

    @property
    def own_addresses(self) -> frozenset[Sender]:
        return self.inner.own_addresses

    @property
    def send_failures(self) -> int:
        return self.inner.send_failures

    def sockets(self) -> list[socket.socket]:
        return self.inner.sockets()

    def receive(self, sock: socket.socket) -> tuple[bytes, Sender] | None:
        return self.inner.receive(sock)

    def send(self, datagram: bytes) -> bool:
        self.entered += 1
        assert self.gate.wait(60)
        if not self.inner.send(datagram):
            return False
        self.sent.append(datagram)
        return True

    def wait_writable(self, timeout_s: float) -> bool:
        return self.inner.wait_writable(timeout_s)

    def rejoin(self) -> bool:
        return self.inner.rejoin()

    def describe(self) -> TransportInfo:
        return self.inner.describe()

    def kernel_drops(self) -> int:
        return self.inner.kernel_drops()

    def queued_bytes(self) -> int | None:
        return self.inner.queued_bytes()

    def close(self) -> None:
        self.inner.close()

    def batches(self) -> list[list[tuple[str, Any]]]:
        """The messages of each datagram that held some, in the order of sending."""
        found = []
        for datagram in list(self.sent):
            frame = decode(datagram)
            if isinstance(frame, MessagesFrame):
                found.append([(item[0], item[1]) for item in frame.items])
        return found

    def messages(self) -> list[tuple[str, Any]]:
        """Topics and values, in the order in which they, or their last slices, were sent."""
        found: list[tuple[str, Any]] = []
        together = Fragments(1 << 26, 1 << 26)
        for datagram in tuple(self.sent):
            frame = decode(datagram)
            if isinstance(frame, MessagesFrame):
                found += [(topic, value) for topic, value in frame.items]
            elif isinstance(frame, FragmentFrame):
                key = (frame.header.node, frame.header.incarnation, frame.number)
                whole = together.add(key, frame.index, frame.count, frame.text, 0.0)
                if whole is not None:
                    topic, value = loads(whole)
                    found.append((topic, value))
        return found
