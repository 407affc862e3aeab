"""A group joined for real: UDP multicast. OSError becomes TransportError here.

One socket hears the group on every chosen interface; each interface has a socket of its own to
send by. None is connected: a connected UDP socket keeps the source address it was born with and
fails for ever once the interface loses it.

What happens to an open transport when its interface changes, as observed on Linux 6.18 (and kept
by tests/transport/test_interface_changes.py):

    link down, up         the membership stays; sending fails while down, then works again
    address replaced      both stay; datagrams leave from the new address
    address removed       both stay; a pinned interface fails to send until it is back
    interface renamed     both stay; the index is the same
    interface recreated   both are lost for ever: the new one has another index, so `rejoin`
                          has to leave the old and join the new
"""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import logging
import selectors
import socket
import time
from collections.abc import Sequence

from ..errors import TransportError
from . import interfaces as interface_choice
from . import platforms, refusals
from .base import Interface, Sender, TransportInfo

_log = logging.getLogger("jsonbus.transport")

# Python hands out a buffer of this size per call and shrinks it: measured cheaper (1.05 µs) than
# receiving into one of our own and copying (1.4 µs).
_RECEIVE_BYTES = 65_536

_NO_ROOM = frozenset({errno.EAGAIN, errno.EWOULDBLOCK, errno.ENOBUFS})
# How long to wait when a device's queue is full: the socket itself stays "writable" then, so
# there is no event to wait for.
_DEVICE_QUEUE_WAIT_S = 0.001

_WAIT_SELECTOR: type[selectors.BaseSelector] = getattr(
    selectors, "PollSelector", selectors.SelectSelector
)


def open_multicast(
    group: str,
    port: int,
    interfaces: Sequence[str],
    ttl: int,
    receive_buffer_bytes: int,
) -> MulticastTransport:
    """Join the group on the chosen interfaces ("auto", names, addresses).

    Raises TransportError, in one sentence that says what to do, and leaves nothing open then.
    """
    _check_numbers(group, port, ttl)
    chosen = interface_choice.choose_interfaces(interfaces)
    transport = MulticastTransport(group, port, tuple(interfaces), ttl, receive_buffer_bytes)
    try:
        for interface in chosen:
            transport._join(interface)
    except BaseException:
        transport.close()
        raise
    return transport


class MulticastTransport:
    """See `Transport` for what each method promises. Made by `open_multicast`."""

    def __init__(
        self, group: str, port: int, choices: tuple[str, ...], ttl: int, receive_buffer_bytes: int
    ) -> None:
        self._address = (group, port)
        self._choices = choices
        self._ttl = ttl
        self._buffer_asked_bytes = receive_buffer_bytes
        self._receiver, self._buffer_obtained_bytes = _open_receiver(
            group, port, receive_buffer_bytes
        )
        # Replaced, never changed, so that `send` in another thread walks over a whole one. It may
        # still be using a socket that `rejoin` has taken out, hence those are closed one change
        # later: closed at once, their number could already mean somebody else's descriptor.
        self._outlets: tuple[tuple[Interface, socket.socket], ...] = ()
        self._retired: list[socket.socket] = []
        # The datagram some interface had no room for, and the outlets that still lack it.
        self._unsent: tuple[bytes, tuple[tuple[Interface, socket.socket], ...]] | None = None
        self._is_device_queue_full = False
        self._send_failures = 0
        self._warned: set[tuple[str, int]] = set()
        self._is_closed = False

    @property
    def send_failures(self) -> int:
        return self._send_failures

    def sockets(self) -> list[socket.socket]:
        return [self._receiver]

    def receive(self, sock: socket.socket) -> tuple[bytes, Sender] | None:
        try:
            return sock.recvfrom(_RECEIVE_BYTES)
        except BlockingIOError:
            return None
        except ConnectionResetError:
            return None  # Windows reports an earlier send's ICMP answer here; nothing is wrong
        except OSError as error:
            if self._is_closed:
                raise TransportError("the transport is closed") from error
            raise TransportError(f"cannot receive from {self._where()}: {error}") from error

    def send(self, datagram: bytes) -> bool:
        outlets = self._outlets
        unsent = self._unsent
        if unsent is not None:
            if unsent[0] is datagram:
                outlets = unsent[1]
            self._unsent = None
        jammed: list[tuple[Interface, socket.socket]] = []
        failed: list[tuple[Interface, OSError]] = []
        for outlet in outlets:
            try:
                outlet[1].sendto(datagram, self._address)
            except OSError as error:
                if error.errno in _NO_ROOM:
                    self._is_device_queue_full = error.errno == errno.ENOBUFS
                    jammed.append(outlet)
                else:
                    failed.append((outlet[0], error))
        if failed or not outlets:
            self._report_failures(failed, len(outlets), len(datagram))
        if jammed:
            self._unsent = (datagram, tuple(jammed))
            return False
        return True

    def wait_writable(self, timeout_s: float) -> bool:
        unsent = self._unsent
        if unsent is None:
            return True
        if self._is_device_queue_full:
            time.sleep(min(timeout_s, _DEVICE_QUEUE_WAIT_S))
            return True
        with _WAIT_SELECTOR() as selector:
            for _, sender in unsent[1]:
                selector.register(sender, selectors.EVENT_WRITE)
            return bool(selector.select(timeout_s))

    def rejoin(self) -> bool:
        if self._is_closed:
            return False
        before = self._interfaces()
        found = interface_choice.follow_interfaces(self._choices, before)
        if found == before:
            return False
        for sender in self._retired:
            sender.close()
        self._retired.clear()
        identities = {(interface.name, interface.index): interface for interface in before}
        kept = {(interface.name, interface.index) for interface in found} & identities.keys()
        for identity, interface in identities.items():
            if identity not in kept:
                self._leave(interface)
        for interface in found:
            identity = (interface.name, interface.index)
            if identity in kept:
                self._update(interface, identities[identity])
                continue
            try:
                self._join(interface)
            except TransportError as error:
                # It vanished again, or has not come up far enough: the next call tries anew.
                _log.debug("! %s", error)
        return self._interfaces() != before

    def describe(self) -> TransportInfo:
        group, port = self._address
        return TransportInfo(
            group=group,
            port=port,
            interfaces=self._interfaces(),
            ttl=self._ttl,
            receive_buffer_asked_bytes=self._buffer_asked_bytes,
            receive_buffer_obtained_bytes=self._buffer_obtained_bytes,
        )

    def kernel_drops(self) -> int:
        return 0 if self._is_closed else platforms.count_kernel_drops(self._receiver)

    def close(self) -> None:
        self._is_closed = True
        outlets, self._outlets = self._outlets, ()
        self._unsent = None
        for sender in (*self._retired, *(sender for _, sender in outlets)):
            sender.close()
        self._receiver.close()  # leaves the group too

    def _interfaces(self) -> tuple[Interface, ...]:
        return tuple(interface for interface, _ in self._outlets)

    def _join(self, interface: Interface) -> None:
        sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        try:
            sender.setblocking(False)
            sender.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_LOOP, 1)
            sender.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, self._ttl)
            platforms.send_through(sender, interface)
            platforms.join(self._receiver, self._address[0], interface)
        except OSError as error:
            sender.close()
            raise TransportError(
                refusals.explain_join(self._address[0], interface, error)
            ) from error
        self._outlets = (*self._outlets, (interface, sender))

    def _leave(self, interface: Interface) -> None:
        with contextlib.suppress(OSError):  # the system may have left it already
            platforms.leave(self._receiver, self._address[0], interface)
        self._retired.extend(sender for known, sender in self._outlets if known == interface)
        self._outlets = tuple(outlet for outlet in self._outlets if outlet[0] != interface)
        self._unsent = None

    def _update(self, interface: Interface, before: Interface) -> None:
        """The same interface with another address, name or state: the membership holds."""
        outlets = []
        for known, sender in self._outlets:
            if known == before:
                with contextlib.suppress(OSError):
                    platforms.send_through(sender, interface)
                known = interface
            outlets.append((known, sender))
        self._outlets = tuple(outlets)

    def _report_failures(
        self, failed: list[tuple[Interface, OSError]], tried: int, size_bytes: int
    ) -> None:
        self._send_failures += len(failed)
        if self._is_closed:
            raise TransportError("the transport is closed")
        if not failed:
            choices = ", ".join(self._choices)
            raise TransportError(f"no interface of {choices!r} is there now: bring it up again")
        if len(failed) == tried == len(self._outlets):
            interface, error = failed[0]
            raise TransportError(
                refusals.explain_send(self._where(), interface, size_bytes, error)
            ) from error
        for interface, error in failed:
            cause = (interface.name, error.errno or 0)
            level = logging.DEBUG if cause in self._warned else logging.WARNING
            self._warned.add(cause)  # bounded: interfaces times error numbers
            _log.log(
                level, "%s", refusals.explain_send(self._where(), interface, size_bytes, error)
            )

    def _where(self) -> str:
        return f"{self._address[0]}:{self._address[1]}"


def _check_numbers(group: str, port: int, ttl: int) -> None:
    try:
        is_group = ipaddress.IPv4Address(group).is_multicast
    except ValueError:
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
