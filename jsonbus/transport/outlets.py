"""The sending half of a multicast transport: one socket per interface.

None is connected: a connected UDP socket keeps the source address it was born with and fails for
ever once the interface loses it.

`send` may run in one thread while another adds and removes outlets. The tuple of outlets is
replaced, never changed, so `send` walks over a whole one; and a socket that was taken out, which it
may still be using, is closed one removal later. Closed at once, its number could already mean
somebody else's descriptor.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import selectors
import socket
import time
from collections.abc import Callable, Iterable
from typing import NamedTuple

from ..errors import TransportError
from . import platforms, refusals
from .base import Interface

_log = logging.getLogger("jsonbus.transport")

_NO_ROOM = frozenset({errno.EAGAIN, errno.EWOULDBLOCK, errno.ENOBUFS})
# How long to wait when a device's queue is full: the socket itself stays "writable" then, so there
# is no event to wait for.
_DEVICE_QUEUE_WAIT_S = 0.001

_WAIT_SELECTOR: type[selectors.BaseSelector] = getattr(
    selectors, "PollSelector", selectors.SelectSelector
)


class Outlet(NamedTuple):
    interface: Interface
    sock: socket.socket


class Failure(NamedTuple):
    interface: Interface
    error: OSError


class Outlets:
    """Sends datagrams to one group by every interface it was given.

    `send` calls `on_failure` when an interface refused, or when there is none.
    """

    def __init__(self, group: str, port: int, ttl: int, on_failure: Callable[[], None]) -> None:
        #: How many times an interface refused a datagram.
        self.failures = 0
        #: How many times one took a datagram, or is about to: each of them comes back once.
        self.looped = 0
        self._on_failure = on_failure
        self._address = (group, port)
        self._ttl = ttl
        self._outlets: tuple[Outlet, ...] = ()
        #: Where datagrams of these outlets come from, as far as can be predicted: an interface may
        #: get another address. Datagrams from other addresses are recognized by their node's id.
        self.addresses: frozenset[tuple[str, int]] = frozenset()
        self._retired: list[socket.socket] = []
        # The datagram that some interface had no room for, and the outlets that still lack it.
        self._unsent: tuple[bytes, tuple[Outlet, ...]] | None = None
        self._is_device_queue_full = False
        self._warned: set[tuple[str, int | None]] = set()

    @property
    def ports(self) -> frozenset[int]:
        """Ports from which datagrams of these outlets come, whatever address their interface
        has.
        """
        return frozenset(port for _, port in self.addresses)

    @property
    def interfaces(self) -> tuple[Interface, ...]:
        return tuple(outlet.interface for outlet in self._outlets)

    def add(self, interface: Interface) -> None:
        """Send by this interface, too. Raises OSError."""
        sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        try:
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_LOOP, 1)
            sock.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, self._ttl)
            platforms.send_through(sock, interface)
            sock.bind(("", 0))  # so that its port is known before the first send
        except OSError:
            sock.close()
            raise
        self._set((*self._outlets, Outlet(interface, sock)))

    def remove(self, interfaces: Iterable[Interface]) -> None:
        """Stop sending by these interfaces."""
        for sock in self._retired:
            sock.close()
        gone = set(interfaces)
        self._retired = [outlet.sock for outlet in self._outlets if outlet.interface in gone]
        self._set(tuple(each for each in self._outlets if each.interface not in gone))
        self._unsent = None  # it may name them

    def update(self, before: Interface, now: Interface) -> None:
        """Note that an interface has another address or state."""
        outlets = []
        for outlet in self._outlets:
            if outlet.interface == before:
                with contextlib.suppress(OSError):  # a send will show
                    platforms.send_through(outlet.sock, now)
                outlet = Outlet(now, outlet.sock)
            outlets.append(outlet)
        self._set(tuple(outlets))

    def send(self, datagram: bytes) -> bool:
        """See `Transport.send`. Raises TransportError if every interface refused or is gone."""
        everything = outlets = self._outlets
        unsent = self._unsent
        if unsent is not None:
            if unsent[0] is datagram:
                outlets = unsent[1]
            self._unsent = None
        jammed: list[Outlet] = []
        failed: list[Failure] = []
        for outlet in outlets:
            self.looped += 1
            try:
                outlet.sock.sendto(datagram, self._address)
            except OSError as error:
                self.looped -= 1
                if error.errno in _NO_ROOM:
                    self._is_device_queue_full = error.errno == errno.ENOBUFS
                    jammed.append(outlet)
                else:
                    failed.append(Failure(outlet.interface, error))
        if failed or not everything:
            self.failures += len(failed)
            self._on_failure()
            if not failed:
                raise TransportError("no chosen interface is there now: bring one up again")
            if len(failed) == len(everything):
                raise self._explain(failed[0], datagram) from failed[0].error
            self._warn(failed, datagram)
        if jammed:
            self._unsent = (datagram, tuple(jammed))
            return False
        return True

    def wait_writable(self, timeout_s: float) -> bool:
        """See `Transport.wait_writable`."""
        unsent = self._unsent
        if unsent is None:
            return True
        if self._is_device_queue_full:
            time.sleep(min(timeout_s, _DEVICE_QUEUE_WAIT_S))
            return True
        with _WAIT_SELECTOR() as selector:
            for outlet in unsent[1]:
                selector.register(outlet.sock, selectors.EVENT_WRITE)
            return bool(selector.select(timeout_s))

    def close(self) -> None:
        outlets, self._outlets = self._outlets, ()
        self._unsent = None
        for sock in (*self._retired, *(outlet.sock for outlet in outlets)):
            sock.close()

    def _set(self, outlets: tuple[Outlet, ...]) -> None:
        self._outlets = outlets
        self.addresses = frozenset(
            (outlet.interface.address, outlet.sock.getsockname()[1]) for outlet in outlets
        )

    def _warn(self, failed: list[Failure], datagram: bytes) -> None:
        for failure in failed:
            cause = (failure.interface.name, failure.error.errno)
            level = logging.DEBUG if cause in self._warned else logging.WARNING
            self._warned.add(cause)  # bounded: interfaces times error numbers
            _log.log(level, "%s", self._explain(failure, datagram))

    def _explain(self, failure: Failure, datagram: bytes) -> TransportError:
        where = f"{self._address[0]}:{self._address[1]}"
        interface, error = failure
        return TransportError(refusals.explain_send(where, interface, len(datagram), error))
