"""Opening transports on loopback and waiting for what they hear."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from jsonbus.transport import MulticastTransport, Transport, open_multicast
from tests.helpers import wait_until

GROUP = "239.255.24.16"


@contextlib.contextmanager
def opened(
    port: int,
    *interfaces: str,
    group: str = GROUP,
    receive_buffer_bytes: int = 1 << 20,
    hears_itself: bool = True,
) -> Iterator[MulticastTransport]:
    """A transport on the interfaces, loopback if none is named; closed at the end.

    Unlike that of a bus it hears itself, which tells that it is joined.
    """
    chosen = interfaces or ("lo",)
    transport = open_multicast(
        group, port, chosen, 1, receive_buffer_bytes, hears_itself=hears_itself
    )
    with contextlib.closing(transport):
        yield transport


def hear(transport: Transport, count: int) -> list[tuple[bytes, str]]:
    """The next datagrams with their senders' addresses; some `count`, and not for ever."""
    (sock,) = transport.sockets()
    heard: list[tuple[bytes, str]] = []

    def has_heard_enough() -> bool:
        while len(heard) < count:
            received = transport.receive(sock)
            if received is None:
                return False
            datagrams, (address, _) = received
            heard.extend((datagram, address) for datagram in datagrams)
        return True

    wait_until(has_heard_enough)
    return heard


def reaches(sender: Transport, listener: Transport) -> bool:
    """Whether a datagram of one transport arrives at the other, sooner or later.

    It is sent again and again: for a moment after a link has come up the kernel still throws
    away what is sent by it.
    """
    (source,) = sender.describe().interfaces
    text = f"from {source.address}".encode()
    (sock,) = listener.sockets()

    def is_heard() -> bool:
        sender.send((text,))
        while (received := listener.receive(sock)) is not None:
            datagrams, (address, _) = received
            if text in datagrams and address == source.address:
                return True
        return False

    return wait_until(is_heard)
