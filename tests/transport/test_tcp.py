"""TCP connections that never block, and ports that follow a node's addresses."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from jsonbus.errors import TransportError
from jsonbus.transport.tcp import TcpConnection, TcpListener, dial
from tests.channel_peers import count_descriptors
from tests.helpers import wait_until

HERE = "127.0.0.1"


@pytest.fixture
def pair() -> Iterator[tuple[TcpConnection, TcpConnection]]:
    """Both ends of a connection."""
    with ExitStack() as stack:
        listener = TcpListener([HERE])
        stack.callback(listener.close)
        calling = dial(HERE, listener.port)
        stack.callback(calling.close)
        answering = accept(listener)
        stack.callback(answering.close)
        calling.finish_dialing()
        yield calling, answering


def accept(listener: TcpListener) -> TcpConnection:
    accepted: list[TcpConnection | None] = []

    def is_here() -> bool:
        accepted.append(listener.accept(listener.sockets[0]))
        return accepted[-1] is not None

    assert wait_until(is_here)
    assert accepted[-1] is not None
    return accepted[-1]


def read(connection: TcpConnection, size: int) -> bytes:
    """So many bytes, or fewer if no more will come."""
    buffer = memoryview(bytearray(1 << 16))
    data = bytearray()

    def is_done() -> bool:
        count = 1
        while count and len(data) < size:
            count = connection.read_into(buffer)
            data.extend(buffer[: count or 0])
        return count == 0 or len(data) >= size

    assert wait_until(is_done)
    return bytes(data)


def test_pieces_are_written_in_order_and_read_as_they_come(
    pair: tuple[TcpConnection, TcpConnection],
) -> None:
    calling, answering = pair
    assert calling.write([b"one"]) == 3
    assert calling.write([b"two", memoryview(b"-three-")[1:6], b""]) == 8
    assert read(answering, 11) == b"onetwothree"


def test_nothing_to_read_is_none_and_the_end_is_zero(
    pair: tuple[TcpConnection, TcpConnection],
) -> None:
    calling, answering = pair
    buffer = memoryview(bytearray(10))
    assert answering.read_into(buffer) is None
    calling.write([b"last"])
    calling.close()
    assert read(answering, 100) == b"last"
    assert answering.read_into(buffer) == 0


def test_a_full_connection_takes_a_part_or_nothing(
    pair: tuple[TcpConnection, TcpConnection],
) -> None:
    calling, answering = pair
    block = bytes(1 << 20)
    total = 0
    while (count := calling.write([block, block])) > 0:
        total += count
    assert calling.write([block]) == 0
    assert len(read(answering, total)) == total


def test_a_broken_connection_is_an_error_of_the_transport(
    pair: tuple[TcpConnection, TcpConnection],
) -> None:
    calling, answering = pair
    answering.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    answering.close()
    with pytest.raises(TransportError, match="the connection broke: Connection reset by peer"):
        read(calling, 1)
    for pieces in ([b"x"], [b"x", b"y"]):
        with pytest.raises(TransportError, match="the connection broke: Broken pipe"):
            calling.write(pieces)


def test_a_closed_stream_is_an_error_of_the_transport(
    pair: tuple[TcpConnection, TcpConnection],
) -> None:
    calling, _ = pair
    calling.close()
    calling.close()
    with pytest.raises(TransportError):
        calling.read_into(memoryview(bytearray(1)))
    with pytest.raises(TransportError):
        calling.write([b"x"])


def test_a_stream_tells_who_is_at_the_other_end(pair: tuple[TcpConnection, TcpConnection]) -> None:
    calling, answering = pair
    assert answering.peer == "{}:{}".format(*calling.sock.getsockname())
    calling.close()
    assert calling.peer == "an unknown address"


def test_dialing_where_nobody_listens_fails_sooner_or_later() -> None:
    listener = TcpListener([HERE])
    listener.close()
    before = count_descriptors()
    with pytest.raises(TransportError, match="Connection refused"):
        connection = dial(HERE, listener.port)
        try:
            connection.finish_dialing()
        finally:
            connection.close()
    with pytest.raises(TransportError):
        dial("no such address", 1)
    assert count_descriptors() == before


def test_all_addresses_have_the_same_port_and_no_others_are_listened_on() -> None:
    listener = TcpListener(["127.0.0.1", "127.0.0.2"])
    try:
        assert listener.port > 0
        assert {each.getsockname() for each in listener.sockets} == {
            ("127.0.0.1", listener.port),
            ("127.0.0.2", listener.port),
        }
        assert listener.address in ("127.0.0.1", "127.0.0.2")
        with pytest.raises(OSError):
            socket.create_connection(("127.0.0.3", listener.port), timeout=10)
        assert listener.accept(listener.sockets[0]) is None
    finally:
        listener.close()
    assert listener.sockets == ()
    assert listener.address == HERE


def test_an_address_that_is_not_here_cannot_be_listened_on() -> None:
    before = count_descriptors()
    with pytest.raises(TransportError, match="cannot listen on 127.0.0.1, 192.0.2.1: Cannot"):
        TcpListener(["127.0.0.1", "192.0.2.1"])
    assert count_descriptors() == before


def test_a_listener_follows_addresses_and_keeps_its_port() -> None:
    listener = TcpListener(["127.0.0.1"])
    port = listener.port
    try:
        stale, failures = listener.follow(["127.0.0.2", "192.0.2.1"])
        assert [each.getsockname() for each in stale] == [("127.0.0.1", port)]
        assert len(failures) == 1 and failures[0].startswith(f"192.0.2.1:{port}: Cannot assign")
        for sock in stale:
            sock.close()
        assert [each.getsockname() for each in listener.sockets] == [("127.0.0.2", port)]
        # One that comes back is listened on again, though TCP may remember connections to it.
        assert listener.follow(["127.0.0.2", "127.0.0.1"]) == ([], [])
        assert len(listener.sockets) == 2
        with socket.create_connection(("127.0.0.1", port), timeout=10):
            pass
        assert listener.follow(["127.0.0.2", "127.0.0.1"]) == ([], [])
    finally:
        listener.close()
