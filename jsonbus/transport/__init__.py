"""Datagrams in and out: the network under a front end.

`open_multicast` joins a real group; `MemoryNetwork` is the same without a network, for tests.
"""

from __future__ import annotations

from .base import DATAGRAM_BYTES_MAX, Interface, Sender, Transport, TransportInfo
from .memory import MemoryNetwork, MemoryTransport
from .multicast import MulticastTransport, open_multicast

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
