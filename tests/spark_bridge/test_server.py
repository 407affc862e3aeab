"""The server among many clients: good ones, slow ones, and those that mean no good."""

from __future__ import annotations

import asyncio
import json
import os
import random
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from spark_bridge import server, streams, wire
from spark_bridge.fields import WAIT_MS_MAX
from tests.helpers import wait_until
from tests.spark_bridge.raw_client import HELLO, RawClient, encode, open_client
from tests.spark_bridge.served_log import ServedLog

Serve = Callable[..., ServedLog]

HELLO_BYTES = wire.MAGIC + encode(HELLO)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Silence is noticed at once."""
    monkeypatch.setattr(streams, "HELLO_S", 0.2)
    monkeypatch.setattr(streams, "REQUEST_S", 0.2)


@pytest.fixture
def served(serve: Serve) -> ServedLog:
    opened = serve(partitions=1)
    opened.publish(range(10))
    return opened


def is_well(served: ServedLog) -> bool:
    with open_client(served.address) as client:
        return [row["offset"] for row in client.read(0, 0, 10)] == list(range(10))


def nested(levels: int) -> bytes:
    text = b'{"op":' + b"[" * levels + b"]" * levels + b"}"
    return wire.LENGTH.pack(len(text)) + text


HOSTILE = {
    "another protocol": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "random bytes": random.Random(1).randbytes(5_000),
    "nearly the magic": wire.MAGIC[:-1] + b"!" + encode(HELLO),
    "half of the magic, then silence": wire.MAGIC[:5],
    "the magic, then silence": wire.MAGIC,
    "half of hello, then silence": HELLO_BYTES[:-3],
    "a huge hello": wire.MAGIC + struct.pack(">I", 0xFFFF_FFFF),
    "hello is too long": wire.MAGIC + encode({**HELLO, "client": "x" * wire.HELLO_BYTES_MAX}),
    "hello is no JSON": wire.MAGIC + struct.pack(">I", 4) + b"{\xff}}",
    "hello is no object": wire.MAGIC + encode([HELLO]),
    "hello is another request": wire.MAGIC + encode({"op": "stats"}),
    "another version": wire.MAGIC + encode({**HELLO, "version": 2}),
    "no version": wire.MAGIC + encode({"op": "hello"}),
    "a huge request": HELLO_BYTES + struct.pack(">I", wire.REQUEST_BYTES_MAX + 1),
    "a length, then silence": HELLO_BYTES + struct.pack(">I", 100),
    "half a request, then silence": HELLO_BYTES + encode({"op": "poll"})[:-2],
    "a request of nothing": HELLO_BYTES + struct.pack(">I", 0),
    "no JSON": HELLO_BYTES + struct.pack(">I", 5) + b"{,,,}",
    "no UTF-8": HELLO_BYTES + struct.pack(">I", 4) + b'"\xff"]',
    "no object": HELLO_BYTES + encode(["poll"]),
    "a number": HELLO_BYTES + encode(7),
    "a number of many digits": HELLO_BYTES + struct.pack(">I", 6_000) + b"9" * 6_000,
    "deeply nested": HELLO_BYTES + nested(100_000),
    "too many bytes to stage": HELLO_BYTES
    + encode({"op": "stage", "bytes": wire.STAGE_BYTES_MAX + 1}),
    "less than no bytes to stage": HELLO_BYTES + encode({"op": "stage", "bytes": -1}),
    "rows to stage, then silence": HELLO_BYTES + encode({"op": "stage", "bytes": 10}) + b"x" * 9,
}


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("data", HOSTILE.values(), ids=HOSTILE)
def test_bytes_that_are_no_request_close_the_connection_and_are_counted(
    served: ServedLog, data: bytes
) -> None:
    with RawClient(served.address) as client:
        client.socket.sendall(data)
        client.receive_end()
        assert wait_until(lambda: served.stats()["connections_hostile"] == 1)
    assert wait_until(lambda: served.stats()["connections"] == 0)
    assert is_well(served)


@pytest.mark.usefixtures("quick")
def test_random_bytes_at_any_place_harm_nobody(served: ServedLog) -> None:
    dice = random.Random(2)
    good = HELLO_BYTES + encode({"op": "poll"}) + encode({"op": "stats"})
    for _ in range(100):
        data = bytearray(good)
        for _ in range(dice.randrange(1, 4)):
            data[dice.randrange(len(data))] = dice.randrange(256)
        with RawClient(served.address) as client:
            client.socket.sendall(bytes(data[: dice.randrange(1, len(data) + 1)]))
            client.socket.shutdown(socket.SHUT_WR)
            client.receive_end()
    assert wait_until(lambda: served.stats()["connections"] == 0)
    assert is_well(served)


def test_who_only_looks_whether_the_port_is_open_is_not_hostile(served: ServedLog) -> None:
    RawClient(served.address).close()
    assert wait_until(lambda: served.stats()["connections_accepted"] == 1)
    assert wait_until(lambda: served.stats()["connections"] == 0)
    assert served.stats()["connections_hostile"] == 0


def test_a_client_of_another_version_is_told_so(served: ServedLog) -> None:
    with RawClient(served.address) as client:
        reply = client.hello(version=2)
        assert (reply["ok"], reply["error"]) == (False, "bad_request")
        assert "version 1, not 2" in reply["message"]
        assert client.receive_end() == b""


@pytest.mark.parametrize("shown", [{}, {"token": "wrong"}, {"token": ""}, {"token": 5}])
def test_without_the_token_nothing_is_served(serve: Serve, shown: dict[str, object]) -> None:
    served = serve(token="a secret, ü")
    with RawClient(served.address) as client:
        # What follows at once is not answered, and does not take the refusal away.
        client.socket.sendall(wire.MAGIC + encode({**HELLO, **shown}) + encode({"op": "stats"}))
        reply = client.receive()
        assert (reply["ok"], reply["error"]) == (False, "bad_token")
        assert "secret" not in json.dumps(reply)
        assert client.receive_end() == b""
    assert served.stats()["connections_hostile"] == 1
    assert served.stats()["requests"] == 0


def test_with_the_token_everything_is_served(serve: Serve) -> None:
    served = serve(token="a secret, ü")
    with open_client(served.address, "a secret, ü") as client:
        assert client.ask({"op": "poll"})["ok"]
    assert served.stats()["connections_hostile"] == 0


def test_tokens_are_compared_in_constant_time(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared = []
    compare = server.hmac.compare_digest

    def spy(shown: bytes, token: bytes) -> bool:
        compared.append((shown, token))
        return compare(shown, token)

    monkeypatch.setattr(server.hmac, "compare_digest", spy)
    served = serve(token="right")
    with RawClient(served.address) as client:
        assert client.hello(token="wrong")["error"] == "bad_token"
    assert compared == [(b"wrong", b"right")]


def test_500_idle_connections_do_not_hold_up_a_reader(served: ServedLog) -> None:
    with ExitStack() as opened:
        idle = [opened.enter_context(open_client(served.address)) for _ in range(500)]
        assert served.stats()["connections"] == 500
        assert is_well(served)
        for number, each in enumerate(idle):
            if number % 50 == 0:
                assert each.ask({"op": "poll"})["end"] == [10]
    assert wait_until(lambda: served.stats()["connections"] == 0)
    assert is_well(served)


def test_one_connection_too_many_is_told_to_come_later(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "CONNECTIONS_MAX", 2)
    served = serve()
    with open_client(served.address), open_client(served.address):
        with RawClient(served.address) as third:
            reply = third.hello()
            assert (reply["ok"], reply["error"]) == (False, "busy")
            assert third.receive_end() == b""
        assert served.stats()["connections_refused"] == 1
    assert wait_until(lambda: served.stats()["connections"] == 0)
    with open_client(served.address) as client:
        assert client.ask({"op": "poll"})["ok"]


def test_connections_leave_files_for_the_log(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "files_max", lambda: 4)
    served = serve()
    with open_client(served.address), open_client(served.address):
        with RawClient(served.address) as third:
            assert third.hello()["error"] == "busy"
    assert 0 < server.files_max()


@pytest.fixture
def large(serve: Serve) -> Iterator[ServedLog]:
    """Thirty-two megabytes: more than the kernel holds for a client."""
    opened = serve(partitions=1)
    for _ in range(32):
        opened.publish([os.urandom(250_000).hex() for _ in range(1)], topic="a")
        opened.publish([os.urandom(250_000).hex() for _ in range(1)], topic="b")
    yield opened


@pytest.mark.slow
@pytest.mark.parametrize("topics", [["**"], ["a"]], ids=["from files", "made"])
def test_a_client_that_stops_reading_is_dropped_and_delays_nobody(
    large: ServedLog, topics: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "STALL_S", 0.5)
    request = {"op": "read", "partition": 0, "start": 0, "end": 64, "topics": topics}
    with open_client(large.address) as stalled, open_client(large.address) as other:
        stalled.socket.sendall(encode(request))
        assert stalled.receive() == {"ok": True}
        # The first bytes of the stream, and no more.
        stalled.receive_bytes(10)
        while large.stats()["connections_stalled"] == 0:
            assert other.ask({"op": "poll"})["end"] == [64]
        assert len(other.read(0, 0, 64, topics=topics)) == (64 if topics == ["**"] else 32)
        # Dropped, not only forgotten: what was on its way is all that comes.
        assert wait_until(lambda: large.stats()["connections"] == 1)
        assert len(stalled.receive_end()) < 32_000_000


@pytest.mark.slow
def test_a_slow_client_gets_everything(large: ServedLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "STALL_S", 30.0)
    monkeypatch.setattr(streams, "SEND_BUFFER_BYTES", 1 << 16)
    with open_client(large.address) as client:
        client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 14)
        assert len(client.read(0, 0, 64)) == 64
    assert large.stats()["connections_stalled"] == 0


@pytest.mark.slow
@pytest.mark.parametrize("topics", [["**"], ["a"]], ids=["from files", "made"])
def test_a_client_that_disconnects_in_the_middle_of_a_read_harms_nobody(
    large: ServedLog, topics: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    request = {"op": "read", "partition": 0, "start": 0, "end": 64, "topics": topics}
    for _ in range(5):
        client = open_client(large.address)
        client.socket.sendall(encode(request))
        client.receive_bytes(100_000)
        client.close()
    assert wait_until(lambda: large.stats()["connections"] == 0)
    with open_client(large.address) as client:
        assert len(client.read(0, 0, 64)) == 64
    assert not caplog.text


def test_nothing_of_a_request_is_kept_while_its_client_is_silent(
    served: ServedLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows to stage may be large, and their memory is counted: the next ones wait for it."""
    monkeypatch.setattr(server, "ATTACHED_BYTES_MAX", 1_000)
    stage = {"op": "stage", "query": "q", "batch": 0, "partition": 0, "attempt": 1, "bytes": 600}
    with ExitStack() as opened:
        first, second, third = (opened.enter_context(open_client(served.address)) for _ in range(3))
        first.socket.sendall(encode(stage) + b"x" * 599)
        assert wait_until(lambda: served.attached_bytes == 600)
        second.socket.sendall(encode(stage) + b"x" * 600)
        assert third.ask({**stage, "bytes": 400}, b"x" * 400)["error"] == "bad_request"
        second.socket.settimeout(0.2)
        with pytest.raises(TimeoutError):
            second.receive()
        second.socket.settimeout(60)
        first.socket.sendall(b"x")
        assert first.receive()["error"] == second.receive()["error"] == "bad_request"
        assert wait_until(lambda: served.attached_bytes == 0)
        # More than there may be at all, but alone.
        assert first.ask({**stage, "bytes": 5_000}, b"x" * 5_000)["error"] == "bad_request"


def test_stop_ends_at_once_with_open_connections_and_a_long_poll(serve: Serve) -> None:
    served = serve(partitions=1)
    with ExitStack() as opened:
        clients = [opened.enter_context(open_client(served.address)) for _ in range(20)]
        poll = {"op": "poll", "known": [0], "wait_ms": WAIT_MS_MAX}
        for each in clients[:10]:
            each.socket.sendall(encode(poll))
        clients[10].socket.sendall(encode(poll)[:-1])  # in the middle of a request
        half = opened.enter_context(RawClient(served.address))
        half.socket.sendall(wire.MAGIC)
        assert wait_until(lambda: served.stats()["requests"] == 10)
        began_at = time.monotonic()
        served.stop()
        # Not a measurement: WAIT_MS_MAX and the times of streams.py are what it must not wait for.
        assert time.monotonic() - began_at < streams.HELLO_S
        names = [thread.name for thread in threading.enumerate()]
        assert not [name for name in names if name.startswith("jsonbus-bridge")]
        for each in [*clients, half]:
            assert each.receive_end() == b""
        served.start()
        assert is_served(served)


def test_stop_ends_at_once_though_a_client_reads_nothing(large: ServedLog) -> None:
    with open_client(large.address) as client:
        client.socket.sendall(encode({"op": "read", "partition": 0, "start": 0, "end": 64}))
        assert client.receive() == {"ok": True}
        client.receive_bytes(10)
        large.stop()
        large.start()
        assert len(client.receive_end()) < 32_000_000


def is_served(served: ServedLog) -> bool:
    with open_client(served.address) as client:
        return bool(client.ask({"op": "poll"})["ok"])


def test_small_parts_of_a_reply_do_not_wait_for_each_other() -> None:
    """Nagle's algorithm would hold the second part until the client confirms the first."""

    async def look() -> int:
        found: asyncio.Future[int] = asyncio.get_running_loop().create_future()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            streams.ClientStream(reader, writer)
            sock = writer.get_extra_info("socket")
            found.set_result(sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
            writer.close()

        listening = socket.create_server(("127.0.0.1", 0))  # as the server does it
        async with await asyncio.start_server(serve, sock=listening):
            _, writer = await asyncio.open_connection(*listening.getsockname())
            is_set = await found
            writer.close()
            await writer.wait_closed()
        return is_set

    assert asyncio.run(look()) == 1


def test_a_process_without_a_limit_of_files_takes_connections(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    resource = pytest.importorskip("resource")
    endless = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
    monkeypatch.setattr(resource, "getrlimit", lambda which: endless)
    assert server.files_max() >= server.CONNECTIONS_MAX
