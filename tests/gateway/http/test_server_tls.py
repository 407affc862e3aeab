"""HTTPS: the same server, over TLS."""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from jsonbus.core.message import make_message
from jsonbus.gateway.http.server import HttpServer
from jsonbus.tls.certificate import ServerCertificate
from tests.aio.running import asynctest, until
from tests.certificates import Authority
from tests.gateway.http.test_events import origin_of
from tests.gateway.site import Site, end, read_answer, site


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@asynccontextmanager
async def https(
    authority: Authority, **options: Any
) -> AsyncIterator[tuple[Site, httpx.AsyncClient]]:
    served = {"certificate": ServerCertificate(*authority.issue())}
    async with site(server_options=served, **options) as here:
        async with httpx.AsyncClient(
            base_url=f"https://localhost:{here.server.address[1]}",
            verify=authority.client(),
            timeout=30,
            trust_env=False,
        ) as http:
            yield here, http


@asynctest
async def test_what_is_published_over_https_is_subscribed_to_over_https(
    authority: Authority,
) -> None:
    async with https(authority) as (here, http):
        async with http.stream("GET", "/events", params={"pattern": "a/**"}) as events:
            assert await until(lambda: here.streams.stats()["streams"] == 1)
            large = {"text": "x" * 100_000}
            for value in (1, large):
                answer = await http.post("/v1/topics/a/b", json=value)
                assert answer.json() == {"webhooks": 0, "sent": True}
            found = []
            async for line in events.aiter_lines():
                if line.startswith("data: "):
                    found.append(json.loads(line.removeprefix("data: "))["message"])
                if len(found) == 2:
                    break
            assert found == [1, large]
        assert (await http.get("/docs")).status_code == 200
        assert here.server.stats()["tls_handshakes"] >= 1


@asynctest
async def test_a_page_of_the_gateway_itself_is_recognized_over_https(
    authority: Authority,
) -> None:
    async with https(authority) as (_, http):
        statuses = [
            (
                await http.get(
                    "/health", headers={"origin": f"{scheme}://{http.base_url.netloc.decode()}"}
                )
            ).status_code
            for scheme in ("https", "http")
        ]
        assert statuses == [200, 403]


@asynctest
async def test_many_events_reach_who_reads_and_cut_off_who_does_not(
    authority: Authority,
) -> None:
    async with https(authority) as (here, _):

        async def open_events() -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
            sock = socket.socket()
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            sock.connect(here.server.address)
            reader, writer = await asyncio.open_connection(
                sock=sock, ssl=authority.client(), server_hostname="localhost"
            )
            writer.write(b"GET /events?pattern=** HTTP/1.1\r\nHost: localhost\r\n\r\n")
            await reader.readuntil(b"\r\n\r\n")
            return reader, writer

        slow_reader, slow = await open_events()
        slow.transport.pause_reading()
        reader, writer = await open_events()
        found: list[int] = []

        async def read() -> None:
            while len(found) < 5_000:
                line = await reader.readuntil(b"\n")
                if line.startswith(b"data: "):
                    found.append(json.loads(line.removeprefix(b"data: "))["message"][0])

        reading = asyncio.create_task(read())
        text = "x" * 1_000
        for number in range(5_000):
            here.streams.take([make_message("a", [number, text], None, origin_of(here))])
            if number % 100 == 0:
                # The one that reads is given time to; the other's backlog grows.
                assert await until(lambda seen=number: len(found) >= seen - 500)
        async with asyncio.timeout(60):
            await reading
        assert found == list(range(5_000))
        stats = here.streams.stats()
        assert (stats["streams_cut"], stats["streams"]) == (1, 1)
        assert stats["backlog_bytes"] < 3 << 20
        writer.close()
        slow.transport.abort()
        assert await until(lambda: here.streams.stats()["backlog_bytes"] == 0)


@asynctest
async def test_a_request_without_tls_is_told_what_to_do(authority: Authority) -> None:
    async with https(authority) as (here, http):
        reader, writer = await here.connect()
        writer.write(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        answer = await read_answer(reader)
        assert (answer.status, answer.json) == (
            400,
            {"error": "this port speaks TLS: use https://"},
        )
        assert await reader.read() == b""
        await end(writer)
        assert here.server.stats()["tls_plain_clients"] == 1
        assert (await http.get("/health")).status_code == 200


@asynctest
async def test_a_websocket_opens_over_tls(authority: Authority) -> None:
    async def talk(scope: Any, receive: Any, send: Any) -> None:
        assert (scope["type"], scope["scheme"]) == ("websocket", "wss")
        assert (await receive())["type"] == "websocket.connect"
        await send({"type": "websocket.accept"})
        heard = await receive()
        await send({"type": "websocket.send", "text": heard["text"].upper()})
        await send({"type": "websocket.close"})

    server = HttpServer(
        talk, certificate=ServerCertificate(*authority.issue()), has_websockets=True
    )
    await server.start()
    from websockets.asyncio.client import connect

    port = server.address[1]
    async with connect(f"wss://localhost:{port}/", ssl=authority.client(), proxy=None) as client:
        await client.send("loud")
        assert await client.recv() == "LOUD"
    await server.close()


@asynctest
async def test_it_closes_while_handshakes_are_under_way(authority: Authority) -> None:
    server = HttpServer(_never, certificate=ServerCertificate(*authority.issue()))
    await server.start()
    reader, writer = await asyncio.open_connection(*server.address)
    assert await until(lambda: server.stats()["tls_handshakes_waiting"] == 1)
    await server.close()
    async with asyncio.timeout(30):
        try:
            assert await reader.read() == b""
        except ConnectionResetError:
            pass
    writer.close()


@asynctest
async def test_tls_1_1_is_refused(authority: Authority) -> None:
    async with https(authority) as (here, _):
        old = authority.client()
        old.minimum_version = ssl.TLSVersion.TLSv1_2
        _, writer = await asyncio.open_connection(
            *here.server.address, ssl=old, server_hostname="localhost"
        )
        await end(writer)
        hello = bytes.fromhex(  # a ClientHello of TLS 1.1, with one cipher suite
            "16030100 2d 01000029 0302" + "00" * 32 + "00 0002 002f 0100".replace(" ", "")
        )
        reader, writer = await here.connect()
        writer.write(hello)
        alert = await reader.read()
        assert alert[:1] == b"\x15" and len(alert) < 20
        await end(writer)
        assert here.server.stats()["tls_handshakes_failed"] == 1


async def _never(scope: Any, receive: Any, send: Any) -> None:
    raise AssertionError("no request was sent")
