"""The text port over TLS: the same lines, and the same ends."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from jsonbus.gateway.text.server import TextLimits, TextServer
from jsonbus.tls.certificate import ServerCertificate
from tests.certificates import Authority
from tests.gateway.text.clients import HandHub, LineClient, Tokens, message, until


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@asynccontextmanager
async def serving(authority: Authority, **limits: Any) -> AsyncIterator[tuple[TextServer, HandHub]]:
    hub: Any = HandHub()
    access: Any = Tokens()
    certificate = ServerCertificate(*authority.issue())
    server = TextServer(hub, access, TextLimits(**limits), certificate)
    hub.add_sink(server.take)
    await server.start("127.0.0.1", 0)
    try:
        yield server, hub
    finally:
        await server.close()


async def connect(server: TextServer, authority: Authority, **options: Any) -> LineClient:
    reader, writer = await asyncio.open_connection(
        *(() if "sock" in options else server.address),
        ssl=authority.client(),
        server_hostname="localhost",
        limit=1 << 20,
        **options,
    )
    client = LineClient(reader, writer)
    assert (await client.line()).startswith("connection_ack ")
    return client


def test_lines_go_both_ways(authority: Authority) -> None:
    async def scenario() -> None:
        async with serving(authority) as (server, hub):
            client = await connect(server, authority)
            assert await client.ask("subscribe a/*") == "subscribe_ack a/*"
            client.send("publish a/b 21.5", 'publish a/c {"by": "anna"}')
            assert await client.lines(2) == ["a/b 21.5", 'a/c {"by":"anna"}']
            client.send("quit")
            assert await client.rest() == []
            client.close()
            await until(lambda: not server._clients)
            assert hub.wanted == {}

    asyncio.run(scenario())


@pytest.mark.parametrize("piece_bytes", [1, 5, 40])
def test_lines_may_be_cut_anywhere(authority: Authority, piece_bytes: int) -> None:
    async def scenario() -> None:
        async with serving(authority) as (server, hub):
            client = await connect(server, authority)
            text = "".join(f"publish a {number}\n" for number in range(30)).encode()
            for start in range(0, len(text), piece_bytes):  # each is a record
                client.writer.write(text[start : start + piece_bytes])
                await client.writer.drain()
            await until(lambda: len(hub.published) == 30)
            assert [value for _, value in hub.published] == list(range(30))
            client.close()

    asyncio.run(scenario())


def test_who_stops_reading_is_cut_off_while_others_go_on(authority: Authority) -> None:
    async def scenario() -> None:
        async with serving(authority, backlog_bytes=100_000) as (server, _):
            sock = socket.socket()
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            sock.connect(server.address)
            deaf, good = (
                await connect(server, authority, sock=sock),
                await connect(server, authority),
            )
            for client in (deaf, good):
                assert await client.ask("subscribe a") == "subscribe_ack a"
            deaf.writer.transport.pause_reading()
            text = "x" * 1_000
            number = 0
            while not server.stats()["clients_dropped"]:
                server.take([message("a", f"{number} {text}")])
                assert await good.line() == f"a {number} {text}"
                number += 1
                assert number < 100_000
            assert server.stats()["clients"] == 1
            deaf.writer.transport.abort()
            good.close()
            await until(lambda: server.stats()["backlog_bytes"] == 0)

    asyncio.run(scenario())


def test_the_last_error_is_not_lost_to_a_client_that_goes_on_sending(
    authority: Authority,
) -> None:
    async def scenario() -> None:
        async with serving(authority) as (server, hub):
            client = await connect(server, authority)
            client.send("GET / HTTP/1.1", *["publish a 1"] * 20_000)  # what a browser sends
            last = await client.rest()
            assert len(last) == 1 and last[0].startswith("error ")
            assert hub.published == []
            client.close()
            await until(lambda: not server._clients)

    asyncio.run(scenario())


def test_who_sends_and_closes_without_a_word_has_published(authority: Authority) -> None:
    async def scenario() -> None:
        async with serving(authority) as (server, hub):
            await asyncio.to_thread(send_and_close, server.address, authority.client())
            await until(lambda: len(hub.published) == 2)
            await until(lambda: not server._clients)
            assert hub.published == [("a", 1), ("b", 2)]  # and not the half line

    asyncio.run(scenario())


def send_and_close(address: tuple[str, int], trusted: ssl.SSLContext) -> None:
    """As a simple program does, which says no end of TLS."""
    with (
        socket.create_connection(address) as plain,
        trusted.wrap_socket(plain, server_hostname="localhost") as sock,
    ):
        assert sock.recv(100).startswith(b"connection_ack ")
        sock.sendall(b"publish a 1\npublish b 2\npublish c 12")


def test_a_client_without_tls_is_told_so_and_the_others_are_served(authority: Authority) -> None:
    async def scenario() -> None:
        async with serving(authority) as (server, _):
            reader, writer = await asyncio.open_connection(*server.address)
            writer.write(b"subscribe a\n")
            assert await reader.read() == b"error this port speaks TLS: connect with TLS\n"
            writer.close()
            stats = server.stats()
            assert (stats["tls_plain_clients"], stats["clients_accepted"]) == (1, 0)
            client = await connect(server, authority)
            assert await client.ask("subscribe a") == "subscribe_ack a"
            client.close()

    asyncio.run(scenario())
