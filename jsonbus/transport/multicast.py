"""A group joined for real: UDP multicast. OSError becomes TransportError here and in outlets.py.

One socket hears the group on every chosen interface; each interface has a socket of its own to
send by. What happens to both when an interface changes, as observed on Linux 6.18 (and kept by
tests/transport/test_interface_changes.py):

    link down, up         the membership stays; sending fails while down, then works again
    address replaced      both stay; datagrams leave from the new address
    address removed       both stay; datagrams leave from 0.0.0.0, or not at all if the interface
                          is pinned, until an address is back
    interface renamed     both stay; the index is the same
    interface recreated   both are lost for ever: the new one has another index, so `rejoin`
                          has to leave the old and join the new

A send that fails makes the transport look at its interfaces by itself, at most once a second: a
node that says something now and then is heard, and hears, by a recreated interface unasked.
"""

from __future__ import annotations

import contextlib
import logging
import math
import socket
import threading
import time
from collections.abc import Sequence

from ..errors import TransportError
from . import interfaces as interface_choice
from . import offload, platforms, refusals
from .base import Interface, Received, Sender, TransportInfo
from .congestion import ReceiveQueues
from .outlets import Outlets

_log = logging.getLogger("jsonbus.transport")

# Python allocates a buffer of this size per call and shrinks it: measured cheaper (1.05 µs) than
# receiving into a buffer of ours and copying (1.4 µs).
_RECEIVE_BYTES = 65_536

# How often failing sends check the interfaces; it takes some 0.1 ms, which a publisher would
# notice.
_LOOK_AGAIN_S = 1.0


class MulticastTransport:
    """A joined group. See `Transport` for what each method promises."""

    def __init__(
        self,
        group: str,
        port: int,
        interfaces: Sequence[str],
        ttl: int,
        receive_buffer_bytes: int,
        *,
        hears_itself: bool = False,
    ) -> None:
        """Join the group on the chosen interfaces ("auto", names, addresses).

        With `hears_itself`, its own datagrams come back to it, which shows that the group is
        joined. Raises TransportError, in one sentence that says what to do, and then leaves nothing
        open.
        """
        _check_numbers(group, port, ttl)
        chosen = interface_choice.choose_interfaces(interfaces)
        self._group = group
        self._port = port
        self._choices = tuple(interfaces)
        self._ttl = ttl
        self._buffer_asked_bytes = receive_buffer_bytes
        self._receiver, self._buffer_obtained_bytes = _open_receiver(
            group, port, receive_buffer_bytes
        )
        self._receives_runs = offload.ask_for_runs(self._receiver)
        self._outlets = Outlets(
            group, port, ttl, loops_runs=self._receives_runs, on_failure=self._look_again
        )
        # An attribute, like `send`: it is read with every datagram that comes alone.
        self.own_addresses: frozenset[Sender] = frozenset()
        self._queues = ReceiveQueues(group, port)
        # The hottest call of all: bound directly, without a method of ours.
        self.send = self._outlets.send  # type: ignore[method-assign]
        self._hears_itself = hears_itself
        # Own datagrams that came back before the filter was set; None while there is no filter.
        self._heard_looped: int | None = None
        self._rejoining = threading.Lock()  # a failing send and the owner may both want to
        self._has_changed = False  # found by a failing send, not yet reported by `rejoin`
        self._looked_at = -math.inf
        self._is_closed = False
        try:
            for interface in chosen:
                self._join(interface)
        except BaseException:
            self.close()
            raise

    @property
    def send_failures(self) -> int:
        return self._outlets.failures

    @property
    def offload_refusals(self) -> int:
        return self._outlets.offload_refusals

    def open_another(self, topics: tuple[str, ...] = ()) -> MulticastTransport:
        return MulticastTransport(
            self._group,
            self._port,
            self._choices,
            self._ttl,
            self._buffer_asked_bytes,
            hears_itself=self._hears_itself,
        )

    def sockets(self) -> list[socket.socket]:
        return [self._receiver]

    def receive(self, sock: socket.socket) -> Received | None:
        try:
            if not self._receives_runs:
                data, sender = sock.recvfrom(_RECEIVE_BYTES)
                return (data,), sender
            data, ancillary, _, sender = sock.recvmsg(_RECEIVE_BYTES, offload.ANCILLARY_BYTES)
            return (offload.cut_run(data, ancillary) if ancillary else (data,)), sender
        except BlockingIOError:
            return None
        except ConnectionResetError:
            return None  # Windows reports the ICMP answer to an earlier send here; nothing is wrong
        except OSError as error:
            if self._is_closed:
                raise TransportError("the transport is closed") from error
            raise TransportError(
                f"cannot receive from {self._group}:{self._port}: {error}"
            ) from error

    def send(self, run: Sequence[bytes]) -> bool:
        return self._outlets.send(run)

    def wait_writable(self, timeout_s: float) -> bool:
        return self._outlets.wait_writable(timeout_s)

    def rejoin(self) -> bool:
        with self._rejoining:
            if self._is_closed:
                return False
            has_changed = self._follow_interfaces() or self._has_changed
            self._has_changed = False
            return has_changed

    def describe(self) -> TransportInfo:
        return TransportInfo(
            group=self._group,
            port=self._port,
            interfaces=self._outlets.interfaces,
            ttl=self._ttl,
            receive_buffer_asked_bytes=self._buffer_asked_bytes,
            receive_buffer_obtained_bytes=self._buffer_obtained_bytes,
            queue_bytes_max=platforms.queue_bytes_max(self._buffer_obtained_bytes),
        )

    def kernel_drops(self) -> int:
        if self._is_closed:
            return 0
        drops = platforms.count_kernel_drops(self._receiver)
        if self._heard_looped is None:
            return drops
        # Filtered datagrams count as dropped. Read in this order, and counted before it is sent, a
        # datagram in transit can hide a drop for a moment, but never look like one.
        kept_out = self._outlets.looped - self._heard_looped
        return max(0, _as_signed(drops - kept_out))

    def queued_bytes(self) -> int | None:
        return self._queues.largest_bytes()

    def close(self) -> None:
        self._is_closed = True
        self._outlets.close()
        self._queues.close()
        self._receiver.close()  # leaves the group, too

    def _look_again(self) -> None:
        """Find out whether an interface was replaced, because a send failed; but not at each
        failure.
        """
        if self._is_closed:
            raise TransportError("the transport is closed")
        now = time.monotonic()
        if now - self._looked_at >= _LOOK_AGAIN_S:
            self._looked_at = now
            with self._rejoining:
                self._has_changed |= self._follow_interfaces()

    def _follow_interfaces(self) -> bool:
        """Leave and join until what is joined is what exists; return whether anything changed."""
        before = self._outlets.interfaces
        try:
            found = interface_choice.follow_interfaces(self._choices, before)
        except TransportError as error:
            # They cannot be listed, for lack of descriptors: nothing is known to have changed.
            _log.debug("! %s", error)
            return False
        if found == before:
            return False
        known = {(interface.name, interface.index): interface for interface in before}
        stay = {(interface.name, interface.index) for interface in found} & known.keys()
        self._leave([known[identity] for identity in known.keys() - stay])
        for interface in found:
            identity = (interface.name, interface.index)
            if identity in stay:
                # Another address or state: the membership holds.
                self._outlets.update(known[identity], interface)
                self.own_addresses = self._outlets.addresses
                continue
            try:
                self._join(interface)
            except TransportError as error:
                # It vanished again, or is not up far enough: the next check tries again.
                _log.debug("! %s", error)
        return self._outlets.interfaces != before

    def _join(self, interface: Interface) -> None:
        try:
            platforms.join(self._receiver, self._group, interface)
            self._outlets.add(interface)
        except OSError as error:
            with contextlib.suppress(OSError):  # it may not have been joined
                platforms.leave(self._receiver, self._group, interface)
            raise TransportError(refusals.explain_join(self._group, interface, error)) from error
        self._ignore_own()

    def _leave(self, interfaces: Sequence[Interface]) -> None:
        for interface in interfaces:
            with contextlib.suppress(OSError):  # the system may have left it already
                platforms.leave(self._receiver, self._group, interface)
        self._outlets.remove(interfaces)
        self._ignore_own()

    def _ignore_own(self) -> None:
        """Filter out what the outlets send; another set of outlets needs another filter."""
        self.own_addresses = self._outlets.addresses
        if self._hears_itself or not platforms.ignore_own(self._receiver, self._outlets.ports):
            return
        if self._heard_looped is None:
            self._heard_looped = self._outlets.looped


#: The same by what it does: a bus opens a multicast group.
open_multicast = MulticastTransport


def _as_signed(count: int) -> int:
    """Return the difference of two counters, one of which may have wrapped at 2**32."""
    return (count + 2**31) % 2**32 - 2**31


def _check_numbers(group: str, port: int, ttl: int) -> None:
    try:
        is_group = 224 <= socket.inet_pton(socket.AF_INET, group)[0] <= 239
    except (OSError, ValueError):
        is_group = False
    if not is_group:
        raise TransportError(
            f"group {group!r} is not an IPv4 multicast address: use one from 224.0.0.0 to "
            "239.255.255.255"
        )
    if not 1 <= port <= 65_535:
        raise TransportError(f"port {port} is out of range: use one from 1 to 65535")
    if not 0 <= ttl <= 255:
        raise TransportError(f"ttl {ttl} is out of range: use one from 0 to 255")


def _open_receiver(group: str, port: int, buffer_bytes: int) -> tuple[socket.socket, int]:
    receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    try:
        receiver.setblocking(False)
        obtained_bytes = platforms.grow_receive_buffer(receiver, buffer_bytes)
        platforms.bind_to_group(receiver, group, port)
    except OSError as error:
        receiver.close()
        raise TransportError(refusals.explain_bind(group, port, error)) from error
    return receiver, obtained_bytes
