"""Datagrams in and out: the network under a front end.

`open_multicast` joins a real group; `MemoryNetwork` is the same without a network, for tests, and
imported at its first use.
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
