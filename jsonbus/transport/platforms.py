"""Everything about sockets that differs between operating systems.

Linux is what the tests run on. The macOS and Windows branches follow the systems' manuals:

                Linux                   macOS                   Windows
bind to         the group               the group               any address: it refuses a group,
                                                                and hears only joined ones anyway
share the port  SO_REUSEADDR            SO_REUSEADDR: for a     SO_REUSEADDR
                                        group the same as
                                        SO_REUSEPORT
groups other    heard, unless           not heard               not heard
sockets joined  IP_MULTICAST_ALL is 0
join by         ip_mreqn, index         ip_mreqn, index         ip_mreq, address: netifaces' names
                                                                are not if_nametoindex's there
send by         IP_MULTICAST_IF,        IP_MULTICAST_IFINDEX    IP_MULTICAST_IF, address
                index
receive buffer  SO_RCVBUFFORCE, else    SO_RCVBUF fails beyond  SO_RCVBUF
                SO_RCVBUF up to         the limit: ask for
                rmem_max                less
own datagrams   SO_ATTACH_FILTER        read, and dropped by    read, and dropped by
                keeps them out          who reads               who reads
drops           SO_MEMINFO              not told                not told
queues          /proc/net/udp           not told                not told
flags           SIOCGIFFLAGS            SIOCGIFFLAGS, another   not told
                                        number
sent to         IP_PKTINFO              not asked               not asked
unanswered TCP  TCP_INFO                not told                not told

SO_REUSEPORT must not be set on Linux: it would give each datagram to one of the sockets instead
of to all of them.
"""

from __future__ import annotations

import socket
import struct
import sys
from array import array
from collections.abc import Collection
from typing import NamedTuple

from .base import Interface

IS_LINUX = sys.platform.startswith("linux")
IS_MACOS = sys.platform == "darwin"
IS_WINDOWS = sys.platform == "win32"

# Numbers that the socket module does not name. Linux: asm-generic/socket.h and linux/in.h.
_LINUX_SO_ATTACH_FILTER = 26
_LINUX_SO_RCVBUFFORCE = 33
_LINUX_SO_MEMINFO = 55
_LINUX_MEMINFO_WORDS = 9  # sk_drops is the last of them (linux/sock_diag.h)
_LINUX_IP_MULTICAST_ALL = 49
_LINUX_IP_PKTINFO = 8
_LINUX_TCP_INFO_BYTES = 60
_LINUX_TCP_INFO = struct.Struct("24xI28xI")  # unacked, last_ack_recv (linux/tcp.h)
_LINUX_PKTINFO_BYTES = 12  # interface, local address, address that it was sent to
_LINUX_SIOCGIFFLAGS = 0x8913
# Classic BPF (linux/filter.h): load a half or a word, jump if equal, return; what to load about a
# packet besides its bytes, whose first are its UDP header's; and linux/if_packet.h.
_BPF_LOAD_HALF = 0x28
_BPF_LOAD_WORD = 0x20
_BPF_JUMP_EQUAL = 0x15
_BPF_RETURN = 0x06
_BPF_PACKET_TYPE = 0xFFFFF000 + 4
_BPF_INTERFACE = 0xFFFFF000 + 8
_BPF_ALL_BYTES = 0xFFFFFFFF
_BPF_PORTS_MAX = 120  # a jump spans 255 instructions, two per port
_PACKET_LOOPBACK = 5
_LOOPBACK_INDEX = 1  # of every network namespace
# macOS: netinet/in.h and sys/sockio.h.
_MACOS_IP_MULTICAST_IFINDEX = 66
_MACOS_SIOCGIFFLAGS = 0xC0206911

_IFF_UP = 0x1
_IFF_RUNNING = 0x40
_IFF_MULTICAST = 0x8000 if IS_MACOS else 0x1000
_INTERFACE_NAME_BYTES_MAX = 15


class InterfaceFlags(NamedTuple):
    """What the system reports of an interface beyond its addresses."""

    is_up: bool
    has_carrier: bool
    is_multicast: bool


def unanswered_s(sock: socket.socket) -> float:
    """Return for how long a machine has not confirmed anything of what was sent to it by TCP.

    0 if nothing waits to be confirmed, or the system does not report it. A machine also confirms
    what its programs do not read, until its buffers are full; then nothing more is sent to it.
    """
    if not IS_LINUX:
        return 0.0
    info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _LINUX_TCP_INFO_BYTES)
    unconfirmed, since_last_ms = _LINUX_TCP_INFO.unpack(info)
    return since_last_ms / 1000 if unconfirmed else 0.0


def interface_flags(name: str) -> InterfaceFlags | None:
    """Return the flags of the interface, or None if it is gone.

    Windows does not report them: there an interface with an address is considered up and capable.
    """
    if IS_WINDOWS:
        return InterfaceFlags(is_up=True, has_carrier=True, is_multicast=True)
    import fcntl  # not on Windows

    name_bytes = name.encode()
    if len(name_bytes) > _INTERFACE_NAME_BYTES_MAX:
        return None
    request = struct.pack("16sh14x", name_bytes, 0)
    number = _MACOS_SIOCGIFFLAGS if IS_MACOS else _LINUX_SIOCGIFFLAGS
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        try:
            answer = fcntl.ioctl(asking, number, request)
        except OSError:
            return None
    flags = struct.unpack("16sH14x", answer)[1]
    return InterfaceFlags(
        is_up=bool(flags & _IFF_UP),
        has_carrier=bool(flags & _IFF_RUNNING),
        is_multicast=bool(flags & _IFF_MULTICAST),
    )


def interface_index(name: str) -> int:
    """Return the system's number of the interface; 0 if it has none (it is gone, or on
    Windows).
    """
    if IS_WINDOWS:
        return 0
    try:
        return socket.if_nametoindex(name)
    except OSError:
        return 0


def bind_to_group(sock: socket.socket, group: str, port: int) -> None:
    """Bind so that several programs can use the port and other groups on it are not heard."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if IS_LINUX:
        # Otherwise a datagram to our group that entered by an interface which only another socket
        # of the machine has joined would reach this one, too.
        sock.setsockopt(socket.IPPROTO_IP, _LINUX_IP_MULTICAST_ALL, 0)
    sock.bind(("" if IS_WINDOWS else group, port))


def join(sock: socket.socket, group: str, interface: Interface) -> None:
    """Join the group on the interface."""
    sock.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, _membership(group, interface))


def leave(sock: socket.socket, group: str, interface: Interface) -> None:
    """Undo `join`; the system accepts it for an interface that is gone."""
    sock.setsockopt(socket.IPPROTO_IP, socket.IP_DROP_MEMBERSHIP, _membership(group, interface))


def send_through(sock: socket.socket, interface: Interface) -> None:
    """Let multicast datagrams of the socket leave by the interface.

    Linux chooses the source address at each send, from the addresses that the interface then has,
    so the socket survives a change of address. Only a pinned interface fixes it: loopback must be,
    because its address is of host scope and the kernel would take another interface's instead.
    """
    if IS_LINUX:
        source = interface.address if interface.is_pinned else "0.0.0.0"
        option = struct.pack("=4s4si", b"\0\0\0\0", socket.inet_aton(source), interface.index)
        sock.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, option)
    elif IS_MACOS:
        sock.setsockopt(socket.IPPROTO_IP, _MACOS_IP_MULTICAST_IFINDEX, interface.index)
    else:
        source_bytes = socket.inet_aton(interface.address)
        sock.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, source_bytes)


def grow_receive_buffer(sock: socket.socket, asked_bytes: int) -> int:
    """Request a receive buffer of that size, and return the size obtained.

    A burst is held here until the receive loop gets the processor: at 1,400 bytes and 100,000
    datagrams/s, 4 MiB last about 30 ms.
    """
    if IS_LINUX:
        try:
            # Above net.core.rmem_max; needs CAP_NET_ADMIN.
            sock.setsockopt(socket.SOL_SOCKET, _LINUX_SO_RCVBUFFORCE, asked_bytes)
        except PermissionError:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, asked_bytes)
        # Linux doubles the request, for its own bookkeeping, and reports the double.
        return sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) // 2
    wanted_bytes = asked_bytes
    while wanted_bytes > sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF):
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, wanted_bytes)
            break
        except OSError:
            wanted_bytes //= 2
    return sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)


def ignore_own(sock: socket.socket, ports: Collection[int]) -> bool:
    """Filter out datagrams that this host sent from these ports; return whether the system can.

    Multicast returns what a node sends. Being woken for it, and reading it, costs a publisher half
    as much again as sending it, and delays others on its processors. Ports belong to the host: a
    datagram is its own if the kernel looped it back, or if it came by loopback. The kernel counts
    filtered datagrams as dropped.
    """
    if not IS_LINUX or not 0 < len(ports) <= _BPF_PORTS_MAX:
        return False
    checks = 2 * len(ports)
    program = [
        (_BPF_LOAD_WORD, 0, 0, _BPF_PACKET_TYPE),
        (_BPF_JUMP_EQUAL, 2, 0, _PACKET_LOOPBACK),
        (_BPF_LOAD_WORD, 0, 0, _BPF_INTERFACE),
        (_BPF_JUMP_EQUAL, 0, checks + 1, _LOOPBACK_INDEX),
        (_BPF_LOAD_HALF, 0, 0, 0),
    ]
    for port in ports:
        program.append((_BPF_JUMP_EQUAL, 0, 1, port))
        program.append((_BPF_RETURN, 0, 0, 0))
    program.append((_BPF_RETURN, 0, 0, _BPF_ALL_BYTES))
    packed = b"".join(struct.pack("=HBBI", *instruction) for instruction in program)
    instructions = array("B", packed)  # which has the address
    head = struct.pack("@HP", len(program), instructions.buffer_info()[0])
    try:
        sock.setsockopt(socket.SOL_SOCKET, _LINUX_SO_ATTACH_FILTER, head)
    except OSError:  # a kernel without filters, or a sandbox that allows none
        return False
    return True


def queue_bytes_max(obtained_bytes: int) -> int | None:
    """Return how far the kernel fills a buffer of that size, in its own count; None if unknown.

    Linux also counts what its bookkeeping takes, and allows the double that it reports.
    """
    return 2 * obtained_bytes if IS_LINUX else None


def count_kernel_drops(sock: socket.socket) -> int:
    """Count datagrams dropped at this socket since it was made, modulo 2**32; 0 if unknown.

    SO_RXQ_OVFL would report the same, but as ancillary data of the next datagram: it makes every
    receive more expensive and is silent about drops after the last one.
    """
    if not IS_LINUX:
        return 0
    try:
        words = sock.getsockopt(socket.SOL_SOCKET, _LINUX_SO_MEMINFO, 4 * _LINUX_MEMINFO_WORDS)
    except OSError:  # before Linux 4.12
        return 0
    if len(words) < 4 * _LINUX_MEMINFO_WORDS:
        return 0
    drops: int = struct.unpack_from("=I", words, 4 * (_LINUX_MEMINFO_WORDS - 1))[0]
    return drops


def open_bystander(port: int) -> socket.socket | None:
    """Open a socket that hears everything that comes to the port, with its destination.

    Bound to no address, it gets the datagrams of every group that any program of this machine has
    joined, and those to the machine itself: a program that uses the port and reads the latter
    misses them meanwhile. Returns None where the system cannot report destinations, or a program
    has the port exclusively.
    """
    if not IS_LINUX:
        return None
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    try:
        sock.setblocking(False)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.setsockopt(socket.IPPROTO_IP, _LINUX_IP_PKTINFO, 1)
        sock.bind(("", port))
    except OSError:
        sock.close()
        return None
    return sock


def receive_destination(sock: socket.socket) -> str | None:
    """Take one datagram from a bystander and return its destination; None if there is none.

    The bytes themselves are left unread. Never blocks.
    """
    try:
        _, ancillary, _, _ = sock.recvmsg(0, socket.CMSG_SPACE(_LINUX_PKTINFO_BYTES))
    except OSError:
        return None
    for level, kind, info in ancillary:
        if (level, kind) == (socket.IPPROTO_IP, _LINUX_IP_PKTINFO):
            return socket.inet_ntoa(info[8:_LINUX_PKTINFO_BYTES])
    return None


def _membership(group: str, interface: Interface) -> bytes:
    group_bytes = socket.inet_aton(group)
    address_bytes = socket.inet_aton(interface.address)
    if IS_WINDOWS:
        return struct.pack("=4s4s", group_bytes, address_bytes)
    return struct.pack("=4s4si", group_bytes, address_bytes, interface.index)
