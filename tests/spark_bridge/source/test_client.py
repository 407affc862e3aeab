"""The client against a real server, and against one that plays a script."""

from __future__ import annotations

import json
import os
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pyarrow as pa
import pytest

from spark_bridge import wire
from spark_bridge.log.block import encode_block
from spark_bridge.source import client
from spark_bridge.source.client import Connection, Endpoint
from spark_bridge.source.errors import (
    CorruptBlockError,
    ProtocolError,
    RefusedError,
    UnreachableError,
)
from tests.spark_bridge.log.log_rows import make_batch, make_row
from tests.spark_bridge.served_log import ServedLog

WELCOME = {"ok": True, "version": 1, "bridge": "b", "log": "L", "partitions": 1, "software": "0"}


def make_block(first: int, count: int) -> bytes:
    rows = make_batch(make_row(f'"{offset}"') for offset in range(first, first + count))
    numbered = rows.add_column(8, "offset", pa.array(range(first, first + count), pa.int64()))
    return encode_block(numbered, first, first + count, ["t"])


@contextmanager
def scripted(*replies: bytes) -> Iterator[str]:
    """A server that takes one connection, and whatever it is sent, and says these bytes."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(30)

        def play() -> None:
            connection, _ = listening.accept()
            with connection, suppress(ConnectionError):  # the client may have heard enough
                connection.settimeout(30)
                connection.recv(65536)
                for reply in replies:
                    connection.sendall(reply)
                with suppress(OSError):  # the client has hung up, and it is no ConnectionError
                    connection.shutdown(socket.SHUT_WR)
                while connection.recv(65536):
                    pass

        thread = threading.Thread(target=play)
        thread.start()
        yield f"127.0.0.1:{listening.getsockname()[1]}"
        thread.join()


def chunk(kind: bytes, data: bytes) -> bytes:
    return wire.encode_chunk(kind, len(data)) + data


def test_neither_side_holds_back_a_small_packet(served: ServedLog) -> None:
    """It would wait for a receipt of the one before, which the other side may delay by 40 ms."""
    connection = Connection(served.address, None, 30.0)
    try:
        ends = list(_sockets_between(connection.fileno()))
        assert len(ends) == 2
        for each in ends:
            assert each.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
            each.close()
    finally:
        connection.close()


def _sockets_between(descriptor: int) -> Iterator[socket.socket]:
    """Copies of both ends of a connection: the server runs in this process."""
    sockets = [path for path in Path("/proc/self/fd").iterdir() if path.is_socket()]
    client_end = socket.socket(fileno=os.dup(descriptor))
    yield client_end
    for path in sockets:  # without the copies
        other = socket.socket(fileno=os.dup(int(path.name)))
        try:
            is_it = other.getpeername() == client_end.getsockname()
        except OSError:  # not connected
            is_it = False
        if is_it:
            yield other
        else:
            other.close()


def end(rows: int) -> bytes:
    return chunk(wire.END, json.dumps({"rows": rows}).encode())


def read_scripted(*chunks: bytes) -> tuple[list[int], bool]:
    """The offsets that a reply to `read` gives, and whether the connection is idle behind it."""
    with scripted(wire.encode(WELCOME), wire.encode({"ok": True}), *chunks) as address:
        connection = Connection(address, None, 10)
        try:
            batches = connection.read(0, 0, 100, ("**",), False)
            offsets = [n for _, rows in batches for n in rows.column("offset").to_pylist()]
            return offsets, connection.idle
        finally:
            connection.close()


def test_a_connection_knows_the_log(served: ServedLog) -> None:
    with Endpoint(served.address, None, 10).borrow() as connection:
        assert connection.log_id == served.log.id
        assert connection.partitions == 2
        assert connection.request({"op": "poll", "known": None, "wait_ms": 0})["end"] == [0, 0]


def test_an_idle_connection_is_used_again(served: ServedLog) -> None:
    for _ in range(3):
        with Endpoint(served.address, None, 10).borrow() as connection:
            connection.request({"op": "poll", "known": None, "wait_ms": 0})
    assert served.stats()["connections_accepted"] == 1


def test_a_connection_whose_stream_was_not_drained_is_thrown_away(served: ServedLog) -> None:
    served.publish(range(100))
    with Endpoint(served.address, None, 10).borrow() as connection:
        assert next(connection.read(0, 0, 100, ("**",), False))
    with Endpoint(served.address, None, 10).borrow() as other:
        assert other is not connection
        assert sum(rows.num_rows for _, rows in other.read(0, 0, 100, ("**",), False)) == 100


def test_a_pooled_connection_that_died_is_not_used(served: ServedLog) -> None:
    with Endpoint(served.address, None, 10).borrow() as first:
        pass
    served.stop()
    served.start()
    with Endpoint(served.address, None, 10).borrow() as second:
        assert second is not first
        assert second.request({"op": "poll", "known": None, "wait_ms": 0})["ok"]


def test_the_token_is_shown(open_log: Callable[..., ServedLog]) -> None:
    guarded = open_log(token="secret")
    with Endpoint(guarded.address, "secret", 10).borrow() as connection:
        assert connection.log_id == guarded.log.id
    for wrong in (None, "Secret"):
        with pytest.raises(RefusedError, match="option `token`"):
            Endpoint(guarded.address, wrong, 10).ask({"op": "stats"}, guarded.log.id)


def test_a_refusal_leaves_the_connection_usable(served: ServedLog) -> None:
    served.publish(range(3))
    with Endpoint(served.address, None, 10).borrow() as connection:
        with pytest.raises(RefusedError) as refused:
            list(connection.read(0, 0, 9, ("**",), False))
        assert refused.value.code == "out_of_range"
        assert (refused.value.facts["first"], refused.value.facts["end"]) == (0, 3)
        assert sum(rows.num_rows for _, rows in connection.read(0, 0, 3, ("**",), False)) == 3


def test_no_bridge_is_one_sentence_with_the_address_and_what_to_do() -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        address = f"127.0.0.1:{closed.getsockname()[1]}"
    with pytest.raises(UnreachableError, match=f"no bridge at {address} for 0.2 s .*start it with"):
        Endpoint(address, None, 0.2).ask({"op": "stats"}, "L")


def test_what_is_no_bridge_is_told_so() -> None:
    with scripted(b"HTTP/1.1 400 Bad Request\r\n\r\n") as address:
        with pytest.raises(ProtocolError, match="no jsonbus bridge"):
            Connection(address, None, 10)


def test_a_bridge_that_comes_up_late_is_waited_for(served: ServedLog) -> None:
    served.stop()
    timer = threading.Timer(0.3, served.start)
    timer.start()
    poll = {"op": "poll", "known": None, "wait_ms": 0}
    reply = Endpoint(served.address, None, 30).ask(poll, served.log.id)
    timer.join()
    assert reply["end"] == [0, 0]


def test_blocks_come_out_whatever_the_chunks_and_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = [make_block(0, 3), make_block(3, 500), make_block(503, 1)]
    for window_bytes in (1, 64, 700, 1 << 20):
        monkeypatch.setattr(client, "WINDOW_BYTES", window_bytes)
        one = chunk(wire.BLOCKS, b"".join(blocks))
        several = [chunk(wire.BLOCKS, each) for each in blocks]
        assert read_scripted(one, end(504)) == (list(range(504)), True)
        assert read_scripted(*several, end(504)) == (list(range(504)), True)
    assert read_scripted(end(0)) == ([], True)


def test_bytes_that_differ_from_the_checksum_are_not_believed() -> None:
    block = bytearray(make_block(0, 3))
    block[-9] ^= 1
    with pytest.raises(CorruptBlockError, match="wrong checksum"):
        read_scripted(chunk(wire.BLOCKS, bytes(block)), end(3))
    with pytest.raises(CorruptBlockError, match="no block"):
        read_scripted(chunk(wire.BLOCKS, b"x" * 200), end(3))


@pytest.mark.parametrize(
    "chunks",
    [
        [chunk(wire.BLOCKS, make_block(0, 3)), end(4)],
        [chunk(wire.BLOCKS, make_block(0, 3)[:-8]), end(3)],
        [chunk(wire.BLOCKS, make_block(0, 3)[:40]), end(3)],
        [chunk(b"?", b"")],
        [chunk(wire.END, b"[]")],
    ],
)
def test_a_stream_that_makes_no_sense_is_an_error(chunks: list[bytes]) -> None:
    with pytest.raises(ProtocolError):
        read_scripted(*chunks)


def test_a_stream_that_breaks_is_an_error() -> None:
    whole = chunk(wire.BLOCKS, make_block(0, 3))
    for cut in (3, 9, 60, len(whole) - 1, len(whole)):
        with pytest.raises(ConnectionError):
            read_scripted(whole[:cut])


def test_a_refusal_in_the_middle_is_raised() -> None:
    refusal = wire.refusal("failed", "the disk broke")
    with pytest.raises(RefusedError, match="the disk broke"):
        read_scripted(
            chunk(wire.BLOCKS, make_block(0, 3)), chunk(wire.BROKEN, json.dumps(refusal).encode())
        )


def test_a_reply_of_absurd_length_is_not_waited_for() -> None:
    with scripted(struct.pack(">I", 1 << 31)) as address:
        with pytest.raises(ProtocolError):
            Connection(address, None, 10)
