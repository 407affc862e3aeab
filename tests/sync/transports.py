"""Transports that remember what was sent, let a test stand in the way, or lose datagrams."""

from __future__ import annotations

import random
import socket
import threading
from collections.abc import Callable, Sequence
from typing import Any

from jsonbus.core.values.fragments import Fragments
from jsonbus.core.wire.codec import loads
from jsonbus.core.wire.decode import decode
from jsonbus.core.wire.frames import FragmentFrame, MessagesFrame
from jsonbus.transport import MemoryNetwork, Sender, TransportInfo
from jsonbus.transport.base import Received


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
        self.runs: list[Sequence[bytes]] = []  # what left together

    @property
    def own_addresses(self) -> frozenset[Sender]:
        return self.inner.own_addresses

    @property
    def send_failures(self) -> int:
        return self.inner.send_failures

    @property
    def offload_refusals(self) -> int:
        return self.inner.offload_refusals

    def sockets(self) -> list[socket.socket]:
        return self.inner.sockets()

    def receive(self, sock: socket.socket) -> Received | None:
        return self.inner.receive(sock)

    def send(self, run: Sequence[bytes]) -> bool:
        self.entered += 1
        assert self.gate.wait(60)
        if not self.inner.send(run):
            return False
        self.sent.extend(run)
        self.runs.append(run)
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

    def sequences(self, topic: str) -> list[int | None]:
        """Of the topic's messages, in the order of sending; None: not sent reliably."""
        return [
            item[2] if len(item) > 2 else None
            for datagram in tuple(self.sent)
            if isinstance(frame := decode(datagram), MessagesFrame)
            for item in frame.items
            if item[0] == topic
        ]


class LosingTransport(RecordingTransport):
    """Loses what it sends where `loses` says so: nobody gets it, and nobody is told.

    It counts as sent, since a network that loses tells nothing either.
    """

    def __init__(self, network: MemoryNetwork, loses: Callable[[bytes], bool]) -> None:
        super().__init__(network)
        self.loses = loses
        self.lost = 0

    def send(self, run: Sequence[bytes]) -> bool:
        kept = []
        for datagram in run:
            if self.loses(datagram):
                self.lost += 1
                self.sent.append(datagram)
            else:
                kept.append(datagram)
        return not kept or super().send(kept)


def a_share(share: float, seed: int) -> Callable[[bytes], bool]:
    """Loses that share of all datagrams, the same ones for the same seed."""
    rng = random.Random(seed)
    return lambda datagram: rng.random() < share


def first_tries(share: float, seed: int) -> Callable[[bytes], bool]:
    """Loses that share of messages, but nothing that is sent again."""
    rng = random.Random(seed)
    return lambda datagram: type(decode(datagram)) is MessagesFrame and rng.random() < share


def all_with(*texts: str) -> Callable[[bytes], bool]:
    """Loses what has one of the texts in it, however often it is sent."""
    return lambda datagram: any(text.encode() in datagram for text in texts)
