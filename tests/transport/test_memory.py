from __future__ import annotations

import contextlib
import select
import socket
import threading
from collections.abc import Iterator

import pytest

from jsonbus.errors import TransportError
from jsonbus.transport import DATAGRAM_BYTES_MAX, MemoryNetwork, MemoryTransport, Transport


@pytest.fixture
def pair() -> Iterator[tuple[MemoryTransport, MemoryTransport]]:
    network = MemoryNetwork()
    with contextlib.closing(network.open()) as one, contextlib.closing(network.open()) as two:
        yield one, two


def read_all(transport: Transport) -> list[bytes]:
    (sock,) = transport.sockets()
    found = []
    while (received := transport.receive(sock)) is not None:
        found.extend(received[0])
    return found


def is_readable(sock: socket.socket) -> bool:
    return bool(select.select([sock], [], [], 0)[0])


def test_every_member_hears_a_datagram_its_sender_included(
    pair: tuple[MemoryTransport, MemoryTransport],
) -> None:
    one, two = pair
    assert one.send((b"first",))
    assert two.send((b"second",))
    assert read_all(one) == read_all(two) == [b"first", b"second"]


def test_the_senders_address_is_its_own(pair: tuple[MemoryTransport, MemoryTransport]) -> None:
    one, two = pair
    one.send((b"x",))
    received = two.receive(two.sockets()[0])
    assert received is not None
    assert received[1] == (one.describe().interfaces[0].address, one.describe().port)
    assert one.describe().interfaces != two.describe().interfaces


def test_the_socket_is_readable_exactly_while_datagrams_wait(
    pair: tuple[MemoryTransport, MemoryTransport],
) -> None:
    one, two = pair
    (sock,) = two.sockets()
    assert not is_readable(sock)
    one.send((b"1",))
    one.send((b"2",))
    assert is_readable(sock)
    two.receive(sock)
    assert is_readable(sock)
    two.receive(sock)
    assert not is_readable(sock)
    assert two.receive(sock) is None


def test_a_full_buffer_drops_and_counts() -> None:
    network = MemoryNetwork()
    with contextlib.closing(network.open(buffer_datagrams=3)) as transport:
        for number in range(5):
            assert transport.send((b"%d" % number,))
        assert transport.kernel_drops() == 2
        assert read_all(transport) == [b"0", b"1", b"2"]


def test_networks_do_not_hear_each_other() -> None:
    with (
        contextlib.closing(MemoryNetwork().open()) as here,
        contextlib.closing(MemoryNetwork().open()) as there,
    ):
        here.send((b"x",))
        assert read_all(there) == []


def test_an_unplugged_transport_fails_to_send_and_hears_nothing(
    pair: tuple[MemoryTransport, MemoryTransport],
) -> None:
    one, two = pair
    assert not one.rejoin()
    one.is_plugged = False
    with pytest.raises(TransportError, match="plug it in"):
        one.send((b"lost",))
    assert one.send_failures == 1
    two.send((b"not for one",))
    assert read_all(one) == []
    assert one.rejoin()
    one.is_plugged = True
    assert one.rejoin()
    assert not one.rejoin()
    assert one.send((b"back",))
    assert read_all(one) == [b"back"]


def test_a_jammed_transport_has_no_room_until_it_is_freed(
    pair: tuple[MemoryTransport, MemoryTransport],
) -> None:
    one, two = pair
    one.is_jammed = True
    assert not one.send((b"x",))
    assert not one.wait_writable(0.001)

    def free() -> None:
        one.is_jammed = False

    freeing = threading.Thread(target=free)
    freeing.start()
    assert one.wait_writable(30)
    freeing.join()
    assert one.send((b"x",))
    assert read_all(two) == [b"x"]


def test_a_datagram_larger_than_udp_allows_is_refused(
    pair: tuple[MemoryTransport, MemoryTransport],
) -> None:
    one, two = pair
    assert one.send((bytes(DATAGRAM_BYTES_MAX),))
    with pytest.raises(TransportError, match="too large"):
        one.send((bytes(DATAGRAM_BYTES_MAX + 1),))
    assert len(read_all(two)) == 1


def test_closing_leaves_the_network_and_may_be_repeated(
    pair: tuple[MemoryTransport, MemoryTransport],
) -> None:
    one, two = pair
    (sock,) = one.sockets()
    one.close()
    one.close()
    assert two.send((b"still works",))
    with pytest.raises(TransportError, match="closed"):
        one.send((b"x",))
    with pytest.raises(TransportError, match="closed"):
        one.receive(sock)


def test_many_threads_lose_nothing_that_fits() -> None:
    network = MemoryNetwork()
    with contextlib.closing(network.open()) as listener:
        senders = [network.open() for _ in range(4)]

        def send_ten(sender: MemoryTransport) -> None:
            for number in range(10):
                sender.send((b"%d" % number,))

        threads = [threading.Thread(target=send_ten, args=(sender,)) for sender in senders]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for sender in senders:
            sender.close()
        assert len(read_all(listener)) == 40
        assert listener.kernel_drops() == 0


@pytest.mark.parametrize("size", [0, 65])
def test_a_buffer_of_an_impossible_size_is_refused(size: int) -> None:
    with pytest.raises(ValueError, match="1 to 64"):
        MemoryNetwork().open(buffer_datagrams=size)


def test_another_one_joins_the_same_group(pair: tuple[MemoryTransport, MemoryTransport]) -> None:
    one, two = pair
    with contextlib.closing(one.open_another()) as another:
        assert two.send((b"x",))
        assert read_all(another) == read_all(one) == [b"x"]
        assert another.describe().interfaces != one.describe().interfaces
