"""Datagrams in and out: the network under a front end.

`open_multicast` joins a real group; `MemoryNetwork` is the same without a network, for tests, and
is imported at its first use. Nothing here knows what is in a datagram.

base.py        the interface that front ends use
multicast.py   a group joined for real
interfaces.py  which network interfaces are used; the only import of netifaces
outlets.py     the sending half: one socket per interface
offload.py     many datagrams in one system call, where the kernel can
congestion.py  how much waits in the receive queues of this host
platforms.py   everything about sockets that differs between systems
refusals.py    why the system refused, in one sentence
tcp.py         TCP connections for channels
memory.py      a group without a network

The two `loop` modules of sync and aio drive a transport; the core never meets it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .base import DATAGRAM_BYTES_MAX, Interface, Sender, Transport, TransportInfo
from .multicast import MulticastTransport, open_multicast

if TYPE_CHECKING:
    from .memory import MemoryNetwork, MemoryTransport

__all__ = [
    "DATAGRAM_BYTES_MAX",
    "Interface",
    "MemoryNetwork",
    "MemoryTransport",
    "MulticastTransport",
    "Sender",
    "Transport",
    "TransportInfo",
    "open_multicast",
]


def __getattr__(name: str) -> object:
    if name not in ("MemoryNetwork", "MemoryTransport"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from . import memory

    value: object = getattr(memory, name)
    return value
