"""How much waits in the receive queues of this host."""

from __future__ import annotations

import contextlib
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from jsonbus.transport import MemoryNetwork, MulticastTransport
from jsonbus.transport.congestion import ReceiveQueues
from tests.helpers import find_free_port, wait_until
from tests.transport.listening import GROUP, opened

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="only Linux tells what waits in queues"
)

HEADER = (
    b"   sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout "
    b"inode ref pointer drops            \n"
)


@pytest.fixture
def port() -> int:
    return find_free_port()


@contextlib.contextmanager
def looking(group: str, port: int, table: str = "/proc/net/udp") -> Iterator[ReceiveQueues]:
    with contextlib.closing(ReceiveQueues(group, port, table)) as queues:
        yield queues


def queued(transport: MulticastTransport) -> int:
    size = transport.queued_bytes()
    assert size is not None
    return size


def read_all(transport: MulticastTransport) -> int:
    count = 0
    while transport.receive(transport.sockets()[0]) is not None:
        count += 1
    return count


def test_a_queue_grows_until_it_is_read(port: int) -> None:
    with opened(port) as sender, opened(port) as listener:
        assert queued(sender) == 0
        sizes = []
        for _ in range(5):
            last = queued(sender)
            sender.send((bytes(1000),))
            assert wait_until(lambda last=last: queued(sender) > last)  # type: ignore[misc]
            sizes.append(queued(sender))
        assert sizes == sorted(set(sizes))
        assert sizes[0] > 1000  # the kernel charges the memory, not just the datagram
        assert queued(listener) == sizes[-1]

        assert read_all(sender) == 5
        assert queued(sender) == sizes[-1]  # the listener's
        assert listener.receive(listener.sockets()[0]) is not None
        assert queued(sender) < sizes[-1]
        assert read_all(listener) == 4
        assert queued(sender) == 0


def test_the_own_socket_counts_as_well(port: int) -> None:
    with opened(port) as alone:
        alone.send((b"x",))
        assert wait_until(lambda: queued(alone) > 0)


def test_a_full_queue_reaches_what_the_transport_said_is_its_limit(port: int) -> None:
    with opened(port, receive_buffer_bytes=65_536) as transport:
        limit = transport.describe().queue_bytes_max
        assert limit == transport.sockets()[0].getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
        while transport.kernel_drops() == 0:
            transport.send((bytes(1000),))
        assert 0.9 * limit < queued(transport) < 1.1 * limit


def test_other_ports_groups_and_remote_addresses_are_not_counted(port: int) -> None:
    other_port = find_free_port()
    with (
        opened(port) as here,
        opened(other_port) as beside,
        opened(port, group="239.255.24.17") as above,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as connected,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as source,
    ):
        beside.send((bytes(1000),))
        above.send((bytes(1000),))
        # Bound elsewhere, and only connected to the group: the group is its remote address.
        connected.bind(("127.0.0.1", 0))
        source.sendto(b"x", connected.getsockname())
        connected.connect((GROUP, port))
        assert queued(beside) > 0
        assert queued(above) > 0
        assert queued(here) == 0


def test_all_sockets_are_found_among_more_than_a_page_of_others(port: int) -> None:
    with contextlib.ExitStack() as stack:
        for _ in range(100):  # a page has 31 lines
            sock = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
            sock.bind(("127.0.0.1", 0))
        sender = stack.enter_context(opened(port))
        assert queued(sender) == 0
        sender.send((bytes(1000),))
        assert queued(sender) > 1000
        with looking(GROUP, port) as queues:
            assert queues.largest_bytes() == queued(sender)


def test_the_fullest_of_several_queues_is_told(tmp_path: Path) -> None:
    def line(number: int, local: bytes, rx: int) -> bytes:
        text = b"%5d: %b 00000000:0000 07 00000009:%08X 00:00000000 00000000     0" % (
            number,
            local,
            rx,
        )
        return text.ljust(127) + b"\n"

    local = b"1018FFEF:0970" if sys.byteorder == "little" else b"EFFF1810:0970"
    other = b"0100007F:0970"
    table = tmp_path / "udp"
    rows = [line(1, local, 17), line(2, other, 9000), line(3, local, 0xABC), line(4, local, 0)]
    table.write_bytes(HEADER + b"".join(rows))
    with looking("239.255.24.16", 0x970, str(table)) as queues:
        assert queues.largest_bytes() == 0xABC


@pytest.mark.parametrize("content", [b"", HEADER, b": 1018FFEF:0970 ", b": 1018FFEF:0970 " * 9])
def test_a_table_that_is_not_what_it_should_be_raises_nothing(
    tmp_path: Path, content: bytes
) -> None:
    table = tmp_path / "udp"
    table.write_bytes(content)
    with looking("239.255.24.16", 0x970, str(table)) as queues:
        assert queues.largest_bytes() in (0, None)


def test_where_the_system_does_not_tell_it_is_none(tmp_path: Path, port: int) -> None:
    with looking(GROUP, port, str(tmp_path / "missing")) as queues:
        assert queues.largest_bytes() is None
    with looking(GROUP, port, str(tmp_path)) as queues:  # cannot be read
        assert queues.largest_bytes() is None
    with contextlib.closing(MemoryNetwork().open()) as transport:
        assert transport.queued_bytes() is None
        assert transport.describe().queue_bytes_max is None


def test_closed_it_tells_nothing_and_closing_twice_is_fine(port: int) -> None:
    with opened(port) as transport:
        assert transport.queued_bytes() == 0
    assert transport.queued_bytes() is None
    transport.close()
