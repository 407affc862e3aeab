"""A node and its transport, made from the settings of a bus."""

from __future__ import annotations

import base64
import os
import random
import socket
import time
from typing import TYPE_CHECKING

from jsonbus.config import BusConfig
from jsonbus.core.node import Node
from jsonbus.core.settings import NodeSettings
from jsonbus.core.wire.frames import About
from jsonbus.transport.base import DATAGRAM_BYTES_MAX, Transport
from jsonbus.transport.multicast import open_multicast
from jsonbus.version import __version__

if TYPE_CHECKING:
    from jsonbus.sealed.keys import KeySource

#: Random bytes in a node's id. 10 make 16 letters and digits; among a million nodes, two have the
#: same id with a probability of one in two million million.
NODE_ID_BYTES = 10


NAME_BYTES_MAX = 255

#: Of the machine's name, as the wire format has it.
HOST_BYTES_MAX = 64

#: A datagram that every network carries in one piece.
DATAGRAM_BYTES_DEFAULT = 1400

#: A datagram that never leaves the machine. Linux keeps each in memory of 2^n bytes, of
#: which this leaves no part unused; larger ones were not measurably cheaper per message. In
#: datagrams of 1,400 bytes a flood takes 1.4 times the CPU (1.56 and 1.10 µs per message), although
#: they leave and arrive in runs: each has a header to write and to parse. Sockets alone would not
#: need it: in runs, their floors differ by 4 %.
LOOPBACK_DATAGRAM_BYTES = 7800

#: What a sealed bus counts, on one that is not: nothing is refused there.
NOT_SEALED = dict.fromkeys(
    (
        "datagrams_open",
        "datagrams_foreign",
        "datagrams_forged",
        "datagrams_replayed",
        "datagrams_stale",
        "datagrams_unproven",
    ),
    0,
)


def make_node(config: BusConfig, receive_buffer_bytes: int | None = None) -> Node:
    """Make a new node: new id, the current time as its incarnation, its own random numbers.

    `receive_buffer_bytes` is its transport's `queue_bytes_max`.
    """
    wall, now = time.time(), time.monotonic()
    host = socket.gethostname()
    settings = NodeSettings(
        node=base64.b32encode(os.urandom(NODE_ID_BYTES)).decode("ascii").lower(),
        incarnation=int(wall * 1000),
        name=config.name or make_name(host, os.getpid()),
        mode=config.mode,
        is_master=config.master,
        share_delay_s=None if config.subs_share_delay is None else config.subs_share_delay / 1000,
        datagram_bytes_max=config.datagram_bytes_max or DATAGRAM_BYTES_DEFAULT,
        value_bytes_max=config.value_bytes_max,
        batching=config.batching,
        nan_as_null=config.nan_as_null,
        receive_buffer_bytes=receive_buffer_bytes,
        about=About(make_host(host), __version__),
    )
    return Node(settings, random.Random(), wall - now)


def make_name(host: str, process: int) -> str:
    """Return the name of a bus that was opened without one."""
    suffix = f"-{process}"
    short = host.partition(".")[0].encode()[: NAME_BYTES_MAX - len(suffix)]
    return (short.decode(errors="ignore") or "node") + suffix


def make_host(host: str) -> str | None:
    """Return the name of this machine; None if other nodes would not accept it."""
    readable = "".join(char for char in host if char.isprintable()).encode(errors="ignore")
    return readable[:HOST_BYTES_MAX].decode(errors="ignore") or None


def datagram_bytes(config: BusConfig, transport: Transport) -> tuple[int, int]:
    """Return how large datagrams may be on this network: with several messages, and with one.

    A single message that fits no frame of the network is cut here rather than by IP, which would
    lose all of it with one lost piece and repair none. Loopback loses nothing by cutting nothing.
    What sealing adds has to fit, too.
    """
    info = transport.describe()
    added_bytes = 0 if info.seal is None else info.seal.added_bytes
    if config.datagram_bytes_max is not None:
        several = single = config.datagram_bytes_max
    elif info.interfaces and all(each.address.startswith("127.") for each in info.interfaces):
        several, single = LOOPBACK_DATAGRAM_BYTES, DATAGRAM_BYTES_MAX
    else:
        several = single = DATAGRAM_BYTES_DEFAULT
    return several - added_bytes, single - added_bytes


def open_transport(config: BusConfig, *, hears_itself: bool = False) -> Transport:
    """Join the group that the settings name; raises TransportError, ConfigError.

    With `hears_itself`, its own datagrams come back to it.
    """
    keys = load_keys(config)  # first: a file that is wrong leaves nothing open
    transport = open_multicast(
        config.group,
        config.port,
        config.interface,
        config.ttl,
        config.receive_buffer_bytes,
        hears_itself=hears_itself,
    )
    return transport if keys is None else seal(transport, keys, hears_itself=hears_itself)


def load_keys(config: BusConfig) -> KeySource | None:
    """Return the keys of the bus, None if it has none. Raises ConfigError."""
    if config.key_file is None:
        return None
    from jsonbus.sealed.keys import KeySource  # with cryptography, which an open bus need not have

    return KeySource(config.key_file)


def seal(transport: Transport, keys: KeySource, *, hears_itself: bool = False) -> Transport:
    """Return a transport that seals what it sends by that one, and opens what it receives."""
    from jsonbus.sealed.transport import SealedTransport

    return SealedTransport(transport, keys, hears_itself=hears_itself)


def transport_figures(transport: Transport) -> dict[str, int]:
    """Return the entries of stats() about the transport."""
    info = transport.describe()
    return {
        **(NOT_SEALED if info.seal is None else info.seal.refused),
        "kernel_drops": transport.kernel_drops(),
        "offload_refusals": transport.offload_refusals,
        "receive_buffer_asked_bytes": info.receive_buffer_asked_bytes,
        "receive_buffer_obtained_bytes": info.receive_buffer_obtained_bytes,
        "send_failures": transport.send_failures,
        "interfaces_up": sum(each.is_up for each in info.interfaces),
    }
