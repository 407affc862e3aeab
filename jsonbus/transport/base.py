"""The interface of a network for a front end, whichever network it is."""

from __future__ import annotations

import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeAlias

Sender: TypeAlias = tuple[str, int]
"""Address and port a datagram came from."""

Received: TypeAlias = tuple[Sequence[bytes], Sender]
"""Datagrams that came together, and where they came from."""

DATAGRAM_BYTES_MAX = 65_507
"""The largest UDP payload IPv4 can carry: 65,535 less 20 bytes of IP and 8 of UDP header."""


@dataclass(frozen=True, slots=True)
class Interface:
    """A network interface as it is now."""

    name: str
    address: str
    index: int
    is_up: bool = True
    """Administratively up and, where the system tells, with a carrier."""
    is_pinned: bool = False
    """Datagrams leave from exactly `address`, rather than from whatever address the interface
    has at the time."""


class Seal(NamedTuple):
    """How the datagrams of a transport are sealed."""

    #: The name of the bus, of its key file.
    bus: str
    #: The id of the key that seals now.
    key: str
    #: What sealing adds to each datagram.
    added_bytes: int
    #: Datagrams that were not let in, by cause: entries of stats().
    refused: Mapping[str, int]


class TransportInfo(NamedTuple):
    """The facts of an open transport."""

    group: str
    port: int
    interfaces: tuple[Interface, ...]
    ttl: int
    receive_buffer_asked_bytes: int
    receive_buffer_obtained_bytes: int
    #: How far the queue of this transport's own socket may grow, counted like `queued_bytes`; None
    #: where the system does not report it.
    queue_bytes_max: int | None = None
    #: None where datagrams travel open.
    seal: Seal | None = None


class Transport(Protocol):
    """Datagrams to and from one group.

    `receive`, `send` (with its `wait_writable`) and `rejoin` may run in three threads at once, each
    in one at a time. `close` releases what they use: the caller must make sure that none of them
    runs.
    """

    @property
    def send_failures(self) -> int:
        """How many times an interface refused a datagram, including one that fails beside
        others.
        """

    @property
    def offload_refusals(self) -> int:
        """How many times an interface refused to cut a run; from then on it gets single
        datagrams.
        """

    @property
    def own_addresses(self) -> frozenset[Sender]:
        """Addresses from which this transport's own datagrams come back, as multicast returns them.

        The set may be incomplete: the decoder recognizes the rest, only later.
        """

    def sockets(self) -> list[socket.socket]:
        """The sockets to watch for reading. They stay the same until `close`."""

    def receive(self, sock: socket.socket) -> Received | None:
        """Return what waits, or None if nothing does: usually one datagram. Never blocks.

        Raises TransportError if the socket is unusable.
        """

    def send(self, run: Sequence[bytes]) -> bool:
        """Send these datagrams to the group on every interface. Never blocks.

        Several make a run as `offload.first_run` returns it. Returns False if the kernel has no
        room now: call `wait_writable`, then pass the same object again (interfaces that already
        took it do not get it twice). Raises TransportError if every interface refused.
        """

    def wait_writable(self, timeout_s: float) -> bool:
        """After `send` returned False: wait until trying again is worth it, or the time is
        over.
        """

    def rejoin(self) -> bool:
        """Check the interfaces and follow them; return True if anything about them changed.

        Also True if a failing `send` has found the change since the last call. Takes some 0.1 ms;
        meant to be called every few seconds.
        """

    def describe(self) -> TransportInfo:
        """Return the facts as they are now."""

    def kernel_drops(self) -> int:
        """Count datagrams that arrived but were dropped because the receive buffer was full.

        Datagrams that came together count as one. Up to date at the time of the call; 0 where the
        system does not report it. Costs the receive path nothing.
        """

    def queued_bytes(self) -> int | None:
        """Return what waits in the fullest receive queue of this host, of all sockets of the group.

        This transport's own socket counts like the others: where the system cannot keep own
        datagrams out of it, it loses what others send when this one sends more than it reads. Bytes
        as the kernel counts them, some 40 µs per call; None where the system does not report it.
        Belongs to the sending thread.
        """

    def close(self) -> None:
        """Leave the group and release the sockets. Idempotent."""
