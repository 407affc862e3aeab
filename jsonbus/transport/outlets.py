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
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import NamedTuple

from ..errors import TransportError
from . import offload, platforms, refusals
from .base import DATAGRAM_BYTES_MAX, Interface

_log = logging.getLogger("jsonbus.transport")

_NO_ROOM = frozenset({errno.EAGAIN, errno.EWOULDBLOCK, errno.ENOBUFS})
# How long to wait when a device's queue is full: the socket itself stays "writable" then, so there
# is no event to wait for.
_DEVICE_QUEUE_WAIT_S = 0.001

_WAIT_SELECTOR: type[selectors.BaseSelector] = getattr(
    selectors, "PollSelector", selectors.SelectSelector
)


class Outlet:
    """An interface and the socket that sends by it."""

    __slots__ = ("interface", "segment_bytes_max", "sock", "taken")

    def __init__(self, interface: Interface, sock: socket.socket) -> None:
        self.interface = interface
        self.sock = sock
        #: Runs of datagrams of up to this size leave in one system call, as far as is known.
        self.segment_bytes_max = DATAGRAM_BYTES_MAX if platforms.IS_LINUX else 0
        #: Datagrams that left one by one, of a run that found no room for the rest.
        self.taken = 0


class Failure(NamedTuple):
    interface: Interface
    error: OSError


class Outlets:
    """Sends datagrams to one group by every interface it was given.

    `send` calls `on_failure` when an interface refused, or when there is none.
    """

    def __init__(
        self, group: str, port: int, ttl: int, *, loops_runs: bool, on_failure: Callable[[], None]
    ) -> None:
        #: How many times an interface refused a datagram.
        self.failures = 0
        #: How many times one took a datagram, or is about to: each of them comes back once.
        self.looped = 0
        #: How many times an interface refused to cut a run.
        self.offload_refusals = 0
        self._loops_runs = loops_runs  # a run comes back as one, not as its datagrams
        self._on_failure = on_failure
        self._address = (group, port)
        self._ttl = ttl
        self._outlets: tuple[Outlet, ...] = ()
        #: Where datagrams of these outlets come from, as far as can be predicted: an interface may
        #: get another address. Datagrams from other addresses are recognized by their node's id.
        self.addresses: frozenset[tuple[str, int]] = frozenset()
        self._retired: list[socket.socket] = []
        # The datagrams that some interfaces had no room for, and those.
        self._unsent: Sequence[bytes] = ()
        self._jammed: tuple[Outlet, ...] = ()
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
        self._forget_unsent()  # it may name them

    def update(self, before: Interface, now: Interface) -> None:
        """Note that an interface has another address or state."""
        for outlet in self._outlets:
            if outlet.interface == before:
                with contextlib.suppress(OSError):  # a send will show
                    platforms.send_through(outlet.sock, now)
                outlet.interface = now
        self._set(self._outlets)

    def send(self, run: Sequence[bytes]) -> bool:
        """See `Transport.send`. Raises TransportError if every interface refused or is gone."""
        everything = outlets = self._outlets
        if self._jammed:
            if self._unsent is run:
                outlets, self._jammed = self._jammed, ()
            else:
                self._forget_unsent()
        jammed: list[Outlet] = []
        failed: list[Failure] = []
        for outlet in outlets:
            try:
                if len(run) == 1:
                    self.looped += 1
                    outlet.sock.sendto(run[0], self._address)
                elif len(run[0]) > outlet.segment_bytes_max or outlet.taken:
                    self._send_singly(outlet, run)
                else:
                    self._send_at_once(outlet, run)
            except OSError as error:
                self.looped -= 1
                if error.errno in _NO_ROOM:
                    self._is_device_queue_full = error.errno == errno.ENOBUFS
                    jammed.append(outlet)
                else:
                    self.failures += len(run) - outlet.taken
                    outlet.taken = 0
                    failed.append(Failure(outlet.interface, error))
        if failed or not everything:
            self._on_failure()
            if not failed:
                raise TransportError("no chosen interface is there now: bring one up again")
            if len(failed) == len(everything):
                raise self._explain(failed[0], run) from failed[0].error
            self._warn(failed, run)
        if jammed:
            self._unsent, self._jammed = run, tuple(jammed)
            return False
        return True

    # Both raise OSError; then they have counted one more as looped than was sent.

    def _send_at_once(self, outlet: Outlet, run: Sequence[bytes]) -> None:
        looped = 1 if self._loops_runs else len(run)
        size = len(run[0])
        self.looped += looped
        try:
            offload.send_run(outlet.sock, run, size, self._address)
            return
        except OSError as error:
            self.looped -= looped
            if error.errno not in offload.REFUSALS:
                self.looped += 1
                raise
        self._send_singly(outlet, run)
        # That worked, so it was the run that was refused, and others will be.
        self.offload_refusals += 1
        is_large = size > offload.SEGMENT_BYTES_USUAL
        outlet.segment_bytes_max = offload.SEGMENT_BYTES_USUAL if is_large else 0

    def _send_singly(self, outlet: Outlet, run: Sequence[bytes]) -> None:
        for datagram in islice(run, outlet.taken, None):
            self.looped += 1
            outlet.sock.sendto(datagram, self._address)
            outlet.taken += 1
        outlet.taken = 0

    def wait_writable(self, timeout_s: float) -> bool:
        """See `Transport.wait_writable`."""
        if not self._jammed:
            return True
        if self._is_device_queue_full:
            time.sleep(min(timeout_s, _DEVICE_QUEUE_WAIT_S))
            return True
        with _WAIT_SELECTOR() as selector:
            for outlet in self._jammed:
                selector.register(outlet.sock, selectors.EVENT_WRITE)
            return bool(selector.select(timeout_s))

    def close(self) -> None:
        outlets, self._outlets = self._outlets, ()
        self._forget_unsent()
        for sock in (*self._retired, *(outlet.sock for outlet in outlets)):
            sock.close()

    def _forget_unsent(self) -> None:
        jammed, self._unsent, self._jammed = self._jammed, (), ()
        for outlet in jammed:
            outlet.taken = 0

    def _set(self, outlets: tuple[Outlet, ...]) -> None:
        self._outlets = outlets
        self.addresses = frozenset(
            (outlet.interface.address, outlet.sock.getsockname()[1]) for outlet in outlets
        )

    def _warn(self, failed: list[Failure], run: Sequence[bytes]) -> None:
        for failure in failed:
            cause = (failure.interface.name, failure.error.errno)
            level = logging.DEBUG if cause in self._warned else logging.WARNING
            self._warned.add(cause)  # bounded: interfaces times error numbers
            _log.log(level, "%s", self._explain(failure, run))

    def _explain(self, failure: Failure, run: Sequence[bytes]) -> TransportError:
        where = f"{self._address[0]}:{self._address[1]}"
        interface, error = failure
        return TransportError(refusals.explain_send(where, interface, len(run[0]), error))
