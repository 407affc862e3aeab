"""Sorts what comes in: own, from nodes, plain, echoes, and what nobody understands; all
bounded.
"""

from __future__ import annotations

from collections import Counter

from ..core.wire.decode import decode
from ..core.wire.frames import EchoedFrame, EchoFrame, Frame
from ..errors import DatagramError
from ..transport import platforms
from .facts import Rejects

Address = tuple[str, int]

#: Distinct senders, and distinct addresses sent to, that are remembered.
ADDRESSES_MAX = 256
#: How much of an unreadable datagram is shown.
SHOWN_BYTES = 24
#: Datagrams taken from a socket before looking at the clock.
PER_LOOK_MAX = 256


class Traffic:
    """Counts the datagrams of the group."""

    def __init__(self, own_node: str) -> None:
        self.own_heard = 0
        self.of_nodes = 0
        self.plain = 0
        self.echoes = 0
        self.rejected: dict[str, Rejects] = {}
        self.senders: set[str] = set()
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
            self.own_heard += 1
            return None
        if node is not None and node == self.own_bus:
            return None
        self._note_sender(sender)
        if node is None:
            self.plain += 1
        elif isinstance(frame, (EchoFrame, EchoedFrame)):
            self.echoes += 1
        else:
            self.of_nodes += 1
        return frame

    def _reject(self, cause: str, data: bytes, sender: Address) -> None:
        self._note_sender(sender)
        before = self.rejected.get(cause)
        self.rejected[cause] = (
            Rejects(count=1, sender=f"{sender[0]}:{sender[1]}", start=repr(data[:SHOWN_BYTES])[1:])
            if before is None
            else Rejects(count=before.count + 1, sender=before.sender, start=before.start)
        )

    def _note_sender(self, sender: Address) -> None:
        if len(self.senders) < ADDRESSES_MAX:
            self.senders.add(sender[0])


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
