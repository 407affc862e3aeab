"""The server itself: its port, its bounds, its end."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import socket
from typing import Any

import httpx
import pytest

from jsonbus.errors import TransportError
from jsonbus.gateway.http import request as http_request
from jsonbus.gateway.http.request import BodyRoom
from jsonbus.gateway.http.server import HttpServer
from jsonbus.gateway.text.backlog import Chunk, LineBudget
from jsonbus.gateway.text.outlet import Outlet
from tests.aio.running import asynctest, until
from tests.gateway.site import end, read_answer, site


async def answer_ok(scope: Any, receive: Any, send: Any) -> None:
    headers = [(b"content-length", b"2")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": b"ok"})


@asynctest
async def test_it_listens_on_the_port_that_it_tells() -> None:
    server = HttpServer(answer_ok)
    await server.start()
    host, port = server.address
    assert host == "127.0.0.1"
    async with httpx.AsyncClient(trust_env=False) as http:
        assert (await http.get(f"http://127.0.0.1:{port}/")).text == "ok"
    await server.close()
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection(host, port)
    await server.close()  # once more does no harm


@asynctest
async def test_a_port_in_use_is_one_clear_error() -> None:
    first = HttpServer(answer_ok)
    await first.start()
    port = first.address[1]
    with pytest.raises(TransportError, match=f"cannot listen for HTTP on 127.0.0.1:{port}: addr"):
        await HttpServer(answer_ok, port=port).start()
    await first.close()
    again = HttpServer(answer_ok, port=port)  # at once, though connections may linger
    await again.start()
    await again.close()


@pytest.mark.parametrize("host", ["203.0.113.1", "no such host", "host.invalid"])
@asynctest
async def test_an_address_that_cannot_be_had_is_one_clear_error(host: str) -> None:
    with pytest.raises(TransportError, match=f"cannot listen for HTTP on {host}:0: "):
        await HttpServer(answer_ok, host).start()


@asynctest
async def test_it_listens_on_ipv6_too() -> None:
    server = HttpServer(answer_ok, "::1")
    try:
        await server.start()
    except TransportError:
        pytest.skip("no IPv6 here")
    async with httpx.AsyncClient(trust_env=False) as http:
        assert (await http.get(f"http://[::1]:{server.address[1]}/")).text == "ok"
    await server.close()


@asynctest
async def test_signals_and_loggers_stay_as_they_are() -> None:
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    handlers = list(logging.getLogger().handlers)
    server = HttpServer(answer_ok)
    await server.start()
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before
    assert logging.getLogger().handlers == handlers
    assert logging.getLogger("uvicorn").handlers == []
    await server.close()


@asynctest
async def test_an_answer_leaves_in_one_piece() -> None:
    """Two small packets would cost two system calls here and two wake-ups there."""
    async with site() as here:
        reader, writer = await here.connect()
        for method, path in (("GET", "/health"), ("HEAD", "/health"), ("GET", "/nothing")):
            writer.write(f"{method} {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
            piece = await reader.read(65_536)
            head, _, body = piece.partition(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 ")
            assert (body == b"") == (method == "HEAD")
        await end(writer)


class Lines(Outlet):
    """An outlet with room for three lines."""

    def __init__(self) -> None:
        super().__init__(LineBudget(1 << 30), lines_max=3, bytes_max=1 << 20)
        self.was_cut_off = False

    def cut_off(self) -> None:
        self.was_cut_off = True
        self.drop()

    def keep_budget(self) -> None:
        raise AssertionError("it has room")

    def has_sent_all(self) -> None:
        pass


@asynctest
async def test_what_is_written_to_a_connection_that_is_choked_already_waits_in_bounds() -> None:
    lines = Lines()
    handed_over = asyncio.Event()
    is_over = asyncio.Event()

    async def answer_much(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"x" * 20_000_000, "more_body": True})
        connection = scope["state"]["connection"]
        connection.hand_over(lines)
        handed_over.set()
        await is_over.wait()
        connection.take_back()

    server = HttpServer(answer_much)
    await server.start()
    reader, writer = await asyncio.open_connection(*server.address)
    writer.write(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
    async with asyncio.timeout(30):
        await handed_over.wait()
        assert not lines.is_writable
        for number in range(3):
            lines.keep(Chunk(b"%d\n" % number, 1))
        while not lines.is_writable:
            await reader.read(1 << 20)
    assert (lines.lines_sent, lines.was_cut_off) == (3, False)
    is_over.set()
    await end(writer)
    await server.close()


@asynctest
async def test_accepted_connections_do_not_wait_to_fill_packets() -> None:
    async with site() as here:
        _, writer = await here.connect()
        writer.write(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        state: Any = here.server._state
        assert await until(lambda: state.connections)
        [connection] = state.connections
        accepted = connection.transport.get_extra_info("socket")
        assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        assert accepted.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 60_000
        await end(writer)


@pytest.mark.parametrize(
    "request_head",
    [
        b"GET /health HTTP/1.1\r\nbro ken\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",  # somebody speaks TLS
        b"POST /publish HTTP/1.1\r\nHost: localhost\r\nContent-Length: x\r\n\r\n",
        b"POST /publish HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n",
    ],
)
@asynctest
async def test_what_is_no_request_is_answered_by_400_and_closed(request_head: bytes) -> None:
    async with site() as here:
        reader, writer = await here.connect()
        writer.write(request_head)
        answer = await read_answer(reader)
        assert answer.status == 400
        assert answer.json == {"error": "this is not a valid HTTP request"}
        assert await reader.read() == b""
        await end(writer)
        assert (await here.http.get("/health")).status_code == 200


@pytest.mark.parametrize("is_one_line", [True, False])
@asynctest
async def test_a_head_without_end_is_refused(is_one_line: bool) -> None:
    async with site() as here:
        reader, writer = await here.connect()
        writer.write(b"GET /health HTTP/1.1\r\nHost: localhost\r\n")
        piece = b"x" * 1_000 if is_one_line else b"x: " + b"y" * 1_000 + b"\r\n"
        writer.write(b"x: ")
        sent_bytes = 0
        reading = asyncio.create_task(read_answer(reader))
        while not reading.done():
            writer.write(piece)
            sent_bytes += len(piece)
            assert sent_bytes < 10_000_000
            await asyncio.sleep(0)
        try:
            assert (await reading).status in (400, 431)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # the answer was overtaken by the end of the connection
        await end(writer)


@asynctest
async def test_a_head_up_to_the_limit_is_read() -> None:
    async with site() as here:
        fits = await here.http.get("/health", headers={"x": "y" * 60_000})
        assert fits.status_code == 200
        answer = await here.raw(
            b"GET /health HTTP/1.1\r\nHost: localhost\r\nx: " + b"y" * 65_537 + b"\r\n\r\n"
        )
        assert answer.status == 431
        assert answer.json == {"error": "the head takes more than 65,536 bytes: send less"}


@pytest.mark.parametrize("start", [b"", b"GET /hea", b"GET /health HTTP/1.1\r\nHost: lo"])
@asynctest
async def test_a_head_that_does_not_come_is_given_up(start: bytes) -> None:
    async with site(server_options={"head_s_max": 0.05}) as here:
        reader, writer = await here.connect()
        writer.write(start)
        async with asyncio.timeout(30):
            assert await reader.read() == b""
        await end(writer)


@asynctest
async def test_an_idle_connection_is_kept_for_the_next_request() -> None:
    async with site(server_options={"head_s_max": 0.05}) as here:
        reader, writer = await here.connect()
        for _ in range(3):
            writer.write(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert (await read_answer(reader)).status == 200
            await asyncio.sleep(0.1)  # longer than a head may take
        await end(writer)


@pytest.mark.parametrize("path", ["/publish", "/v1/topics/a"])
@asynctest
async def test_a_body_that_says_it_is_too_long_is_not_read(path: str) -> None:
    async with site() as here:
        reader, writer = await here.connect()
        head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        writer.write(head.encode() + b"Content-Length: 10000000000\r\n\r\n")
        answer = await read_answer(reader)
        assert answer.status == 413
        assert answer.json["error"].startswith("the body takes 10,000,000,000 bytes, at most")
        assert answer.headers["connection"] == "close"
        writer.write_eof()
        assert await reader.read() == b""
        await end(writer)


@asynctest
async def test_a_body_in_chunks_is_refused_as_soon_as_it_is_too_long() -> None:
    async with site() as here:
        reader, writer = await here.connect()
        writer.write(
            b"POST /publish HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n"
        )
        reading = asyncio.create_task(read_answer(reader))
        sent_bytes = 0
        while not reading.done():
            writer.write(b"2000\r\n" + b"x" * 0x2000 + b"\r\n")
            sent_bytes += 0x2000
            assert sent_bytes < 50_000_000
            await asyncio.sleep(0)
        answer = await reading
        assert answer.status == 413
        assert "more than 131,072 bytes" in answer.json["error"]
        await end(writer)


@asynctest
async def test_a_client_that_sends_all_of_a_long_body_can_read_why_it_was_refused() -> None:
    async with site(tokens=["publish=p"]) as here:
        for headers, status in (({}, 401), ({"authorization": "Bearer p"}, 413)):
            answer = await here.http.post("/publish", content=b"x" * 900_000, headers=headers)
            assert answer.status_code == status


@asynctest
async def test_who_waits_for_100_continue_is_told_before_it_sends() -> None:
    async with site() as here:
        reader, writer = await here.connect()
        head = (
            b"POST /publish HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            b"Expect: 100-continue\r\nContent-Length: %d\r\n\r\n"
        )
        body = b'{"topic":"a","message":1}'
        writer.write(head % len(body))
        assert (await read_answer(reader)).status == 100
        writer.write(body)
        assert (await read_answer(reader)).status == 200
        writer.write(head % 1_000_000)
        assert (await read_answer(reader)).status == 413
        assert await reader.read() == b""
        await end(writer)


@asynctest
async def test_a_client_that_goes_before_its_body_is_complete_publishes_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with site() as here:
        _, writer = await here.connect()
        writer.write(
            b"POST /publish HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            b'Content-Length: 100\r\n\r\n{"topic":"a","message":1}'
        )
        assert await until(lambda: here.server.stats()["connections_open"] == 1)
        await end(writer)
        assert await until(lambda: here.server.stats()["connections_open"] == 0)
        assert (await here.http.get("/health")).status_code == 200
        assert here.hub.published == []
        assert [each for each in caplog.records if each.levelno >= logging.WARNING] == []


@asynctest
async def test_closing_waits_for_requests_that_run() -> None:
    async with site() as here:
        is_waiting, may_go_on = asyncio.Event(), asyncio.Event()

        async def hold_up(topic: str, value: Any) -> None:
            is_waiting.set()
            await may_go_on.wait()

        here.hub.before_publish = hold_up
        asked = asyncio.create_task(here.http.get("/publish?topic=a&message=1"))
        await is_waiting.wait()
        closing = asyncio.create_task(here.server.close())
        await asyncio.sleep(0)
        may_go_on.set()
        assert (await asked).status_code == 200
        await closing


@asynctest
async def test_closing_gives_up_requests_and_clients_that_do_not_end(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with site(server_options={"close_s": 0.05}) as here:
        is_waiting = asyncio.Event()

        async def hang(topic: str, value: Any) -> None:
            is_waiting.set()
            await asyncio.Event().wait()

        here.hub.before_publish = hang
        _, asking = await here.connect()
        asking.write(b"GET /publish?topic=a&message=1 HTTP/1.1\r\nHost: localhost\r\n\r\n")
        await is_waiting.wait()
        _, idle = await here.connect()
        _, halfway = await here.connect()
        halfway.write(b"POST /publish HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\nx")
        assert await until(lambda: here.server.stats()["connections_open"] == 3)
        async with asyncio.timeout(30):
            await here.server.close()
        for writer in (asking, idle, halfway):
            await end(writer)
        [record] = [each for each in caplog.records if each.levelno >= logging.WARNING]
        assert record.getMessage() == "1 requests did not end in time and were given up"


@asynctest
async def test_a_body_that_does_not_come_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_request, "BODY_S_MAX", 0.05)
    monkeypatch.setattr(http_request, "DISCARDED_S_MAX", 0.05)
    async with site() as here:
        reader, writer = await here.connect()
        writer.write(
            b"POST /publish HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            b'Content-Length: 100\r\n\r\n{"topic":'
        )
        answer = await read_answer(reader)
        assert answer.status == 408
        assert answer.json == {"error": "the body did not come within 0.05 s: send it at once"}
        assert await reader.read() == b""
        await end(writer)


@asynctest
async def test_a_second_head_behind_a_long_body_is_measured_for_itself() -> None:
    async with site() as here:
        body = b'{"topic":"a","message":1' + b" " * 100_000 + b"}"
        reader, writer = await here.connect()
        head = b"POST /publish HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        request = head + b"Content-Length: %d\r\n\r\n" % len(body) + body
        writer.write(request * 3)
        for _ in range(3):
            assert (await read_answer(reader)).status == 200
        await end(writer)


CHUNKED = (
    b"POST /v1/topics/a HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n"
    b"Content-Type: application/json\r\n\r\n"
)


@asynctest
async def test_trailers_are_no_headers() -> None:
    """A proxy in front has checked or replaced headers, and let trailers pass."""
    async with site(tokens=["publish=p"]) as here:
        trailers = b"Authorization: Bearer p\r\nHost: evil.example\r\n\r\n"
        answer = await here.raw(CHUNKED + b"1\r\n1\r\n0\r\n" + trailers)
        assert answer.status == 401


@pytest.mark.parametrize(
    ("start", "piece"),
    [
        (b"1\r\n1\r\n0\r\nx: ", b"y" * 1_000),
        (b"1\r\n1\r\n0\r\n", b"x: " + b"y" * 997 + b"\r\n"),
        (b"1;x=", b"y" * 1_000),
    ],
    ids=["trailer", "trailers", "extension"],
)
@asynctest
async def test_what_is_no_content_of_a_body_is_bounded(start: bytes, piece: bytes) -> None:
    async with site() as here:
        reader, writer = await here.connect()
        writer.write(CHUNKED + start)
        ended = asyncio.create_task(reader.read())
        sent_bytes = 0
        while not ended.done():
            writer.write(piece)
            sent_bytes += len(piece)
            assert sent_bytes < 20_000_000
            await asyncio.sleep(0)
        try:
            assert (await ended).startswith(b"HTTP/1.1 4")
        except ConnectionError:
            pass  # the answer was overtaken by the end of the connection
        await end(writer)


@asynctest
async def test_a_body_in_tiny_chunks_is_read() -> None:
    async with site() as here:
        body = b'"' + b"x" * 40_000 + b'"'
        chunks = b"".join(b"1\r\n%c\r\n" % byte for byte in body)
        answer = await here.raw(CHUNKED + chunks + b"0\r\n\r\n")
        assert answer.status == 200
        assert here.hub.published == [("a", "x" * 40_000)]


@pytest.mark.parametrize(("path", "host"), [("/nothing", "localhost"), ("/publish", "evil")])
@asynctest
async def test_a_body_behind_its_answer_cannot_hold_the_connection(path: str, host: str) -> None:
    async with site(server_options={"head_s_max": 0.05}) as here:
        reader, writer = await here.connect()
        head = f"POST {path} HTTP/1.1\r\nHost: {host}\r\nContent-Length: 1000000\r\n\r\n"
        writer.write(head.encode())
        assert (await read_answer(reader)).status in (403, 404)
        writer.write(b"x")
        async with asyncio.timeout(30):
            assert await reader.read() == b""
        await end(writer)


@asynctest
async def test_requests_in_line_behind_one_that_does_not_end_are_bounded() -> None:
    async with site() as here:
        reader, writer = await here.connect()
        writer.write(b"GET /events?pattern=a HTTP/1.1\r\nHost: localhost\r\n\r\n")
        await reader.readuntil(b"retry: 1000")
        writer.write(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n" * 102)
        async with asyncio.timeout(30):
            with contextlib.suppress(ConnectionError):
                assert b"HTTP/1.1" not in await reader.read()
        await end(writer)
        assert await until(lambda: here.server.stats()["connections_open"] == 0)


@asynctest
async def test_many_requests_at_once_are_answered_in_order() -> None:
    async with site() as here:
        reader, writer = await here.connect()
        paths = ["/health", "/nothing"] * 50
        writer.write(
            b"".join(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode() for path in paths)
        )
        statuses = [(await read_answer(reader)).status for _ in paths]
        assert statuses == [200, 404] * 50
        await end(writer)


@asynctest
async def test_a_wish_for_another_protocol_is_answered_and_the_connection_closed() -> None:
    """The parser takes what follows for that protocol: a proxy would wait for its answer."""
    async with site() as here:
        reader, writer = await here.connect()
        writer.write(
            b"GET /health HTTP/1.1\r\nHost: localhost\r\n"
            b"Connection: upgrade\r\nUpgrade: h2c\r\n\r\n"
            b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
        )
        answer = await read_answer(reader)
        assert answer.status == 200
        if answer.headers.get("connection") == "close":
            assert await reader.read() == b""
        else:
            # Older uvicorns close without announcing it.
            with contextlib.suppress(asyncio.IncompleteReadError):
                assert (await read_answer(reader)).status == 200
        await end(writer)


@asynctest
async def test_bodies_of_all_requests_are_bounded_together() -> None:
    room = BodyRoom(100_000)
    async with site(room=room) as here:
        body = b'"' + b"x" * 39_998 + b'"'
        head = b"POST /v1/topics/a HTTP/1.1\r\nHost: localhost\r\nContent-Length: 40000\r\n\r\n"
        slow = [await here.connect() for _ in range(2)]
        for _, writer in slow:
            writer.write(head + body[:-1])
        assert await until(lambda: room.bytes == 2 * 39_999)
        answer = await here.raw(head + body)
        assert answer.status == 503
        assert answer.json["error"].startswith("try again later: too many large requests")
        assert answer.headers["retry-after"] == "5"
        small = await here.http.post("/v1/topics/a", content=b"1")
        assert small.status_code == 200
        for reader, writer in slow:
            writer.write(body[-1:])
            assert (await read_answer(reader)).status == 200
            await end(writer)
        assert room.bytes == 0
        assert (await here.raw(head + body)).status == 200


@asynctest
async def test_a_body_takes_its_room_until_it_is_published() -> None:
    room = BodyRoom()
    async with site(room=room) as here:
        held = []

        async def look(topic: str, value: Any) -> None:
            held.append(room.bytes)

        here.hub.before_publish = look
        for size_bytes in (10, 10_000, 200_000):
            answer = await here.http.post("/v1/topics/a", content=b"1" + b" " * (size_bytes - 1))
            assert answer.status_code == 200
        assert held == [0, 10_000, 200_000]
        assert room.bytes == 0


@asynctest
async def test_a_client_that_goes_gives_the_room_of_its_body_back() -> None:
    room = BodyRoom()
    async with site(room=room) as here:
        _, writer = await here.connect()
        writer.write(b"POST /v1/topics/a HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\nx")
        assert await until(lambda: room.bytes == 1)
        await end(writer)
        assert await until(lambda: room.bytes == 0)
