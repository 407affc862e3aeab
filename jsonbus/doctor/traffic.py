"""Sorts what comes in: own, from nodes, plain, echoes, and what nobody understands; all
bounded.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from ..core.wire.decode import decode
from ..core.wire.frames import EchoedFrame, EchoFrame, Frame
from ..errors import DatagramError
from ..transport import platforms
from ..transport.base import Transport
from .facts import Rejects, TrafficFacts

Address = tuple[str, int]

#: Distinct senders, and distinct addresses sent to, that are remembered.
ADDRESSES_MAX = 256
#: How much of an unreadable datagram is shown.
SHOWN_BYTES = 24
#: Datagrams taken from a socket before looking at the clock.
PER_LOOK_MAX = 256


def receive_from(transport: Transport) -> Iterator[tuple[bytes, Address]]:
    """Yield what has come, within bounds. Never blocks."""
    for sock in transport.sockets():
        for _ in range(PER_LOOK_MAX):
            received = transport.receive(sock)
            if received is None:
                break
            datagrams, sender = received
            yield from ((datagram, sender) for datagram in datagrams)


class Traffic:
    """Counts the datagrams of the group."""

    def __init__(self, own_node: str) -> None:
        self.facts = TrafficFacts()
        self._own_node = own_node
        #: The id of the bus that looks for nodes meanwhile: its datagrams do not count.
        self.own_bus: str | None = None

    def sort(self, data: bytes, sender: Address) -> Frame | None:
        """Count the datagram, and return the frame if it is from somebody else."""
        try:
            frame = decode(data)
        except DatagramError as error:
            self._reject(error.cause, data, sender)
            return None
        node = None if frame.header is None else frame.header.node
        if node is not None and node == self._own_node:
            self.facts.own_heard += 1
            return None
        if node is not None and node == self.own_bus:
            return None
        self._note_sender(sender)
        if node is None:
            self.facts.plain += 1
        elif isinstance(frame, (EchoFrame, EchoedFrame)):
            self.facts.echoes += 1
        else:
            self.facts.of_nodes += 1
        return frame

    def _reject(self, cause: str, data: bytes, sender: Address) -> None:
        self._note_sender(sender)
        rejects = self.facts.rejected.get(cause)
        if rejects is None:
            start = repr(data[:SHOWN_BYTES])[1:]
            rejects = Rejects(count=0, sender=f"{sender[0]}:{sender[1]}", start=start)
        self.facts.rejected[cause] = replace(rejects, count=rejects.count + 1)

    def _note_sender(self, sender: Address) -> None:
        senders = self.facts.senders
        if len(senders) < ADDRESSES_MAX and sender[0] not in senders:
            self.facts.senders = tuple(sorted((*senders, sender[0])))


class Bystander:
    """Counts what comes to the port at other addresses than the group's.

    This finds nodes that use another group, and senders that do not send to the group at all.
    """

    def __init__(self, group: str, port: int) -> None:
        self.counts: Counter[str] = Counter()
        #: To watch for reading; None where such a socket is not available.
        self.socket = platforms.open_bystander(port)
        self._group = group

    def look(self) -> None:
        """Count what has come. Never blocks."""
        for _ in range(PER_LOOK_MAX if self.socket is not None else 0):
            assert self.socket is not None
            address = platforms.receive_destination(self.socket)
            if address is None:
                return
            if address != self._group and (
                address in self.counts or len(self.counts) < ADDRESSES_MAX
            ):
                self.counts[address] += 1

    def close(self) -> None:
        if self.socket is not None:
            self.socket.close()
