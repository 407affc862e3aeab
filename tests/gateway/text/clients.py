"""Text clients over real sockets, and a hub that a test holds in its hands."""

from __future__ import annotations

import asyncio
import socket
import struct
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any

import jsonbus
from jsonbus.core.message import Origin, make_message
from jsonbus.gateway.text.server import TextLimits, TextServer

TIMEOUT_S = 60.0  # for machines that are slow or busy: a test that passes never waits for it


async def until(condition: Callable[[], object]) -> None:
    """Wait until the condition holds; fails in the end if it never does."""
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline, "it never happened"
        await asyncio.sleep(0.002)


def message(topic: str, value: Any) -> jsonbus.Message:
    return make_message(topic, value, None, Origin("node", "name", 0, 0.0, 0.0))


class HandHub:
    """Gives what is published to its sinks, in this process; the neighbour of the text server.

    While `gate` is closed, whoever publishes or wants something waits.
    """

    def __init__(self) -> None:
        self.wanted: Counter[str] = Counter()
        self.published: list[tuple[str, Any]] = []
        self.retained: list[jsonbus.Message] = []
        self.error: Exception | None = None
        self.gate = asyncio.Event()
        self.gate.set()
        self.waiting = 0
        self.waiting_most = 0
        self._sinks: list[Callable[[list[jsonbus.Message]], None]] = []

    def add_sink(self, take: Callable[[list[jsonbus.Message]], None]) -> None:
        self._sinks.append(take)

    async def publish(self, topic: str, value: Any) -> None:
        await self._pass_gate()
        jsonbus.check_topic(topic)
        self.published.append((topic, value))
        for take in self._sinks:
            take([message(topic, value)])

    async def want(self, pattern: str) -> list[jsonbus.Message]:
        await self._pass_gate()
        self.wanted[pattern] += 1
        return self.retained

    def unwant(self, pattern: str) -> None:
        assert self.wanted[pattern] > 0
        self.wanted[pattern] -= 1
        if not self.wanted[pattern]:
            del self.wanted[pattern]

    async def _pass_gate(self) -> None:
        self.waiting += 1
        self.waiting_most = max(self.waiting_most, self.waiting)
        try:
            await self.gate.wait()
        finally:
            self.waiting -= 1
        if self.error is not None:
            raise self.error


class Tokens:
    """Secrets with their rights; none at all: everybody may do everything."""

    def __init__(self, rights: dict[str, frozenset[str]] | None = None) -> None:
        self._rights = rights or {}

    @property
    def is_open(self) -> bool:
        return not self._rights

    def rights_of(self, secret: str | None) -> frozenset[str]:
        if self.is_open:
            return frozenset(("publish", "subscribe", "admin"))
        return self._rights.get(secret or "", frozenset())


@asynccontextmanager
async def serving(
    hub: Any = None, access: Any = None, **options: Any
) -> AsyncIterator[tuple[TextServer, Any]]:
    hub = HandHub() if hub is None else hub
    server = TextServer(hub, Tokens() if access is None else access, TextLimits(**options))
    hub.add_sink(server.take)
    await server.start("127.0.0.1", 0)
    try:
        yield server, hub
    finally:
        await server.close()


class LineClient:
    """One connection, greeted already."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.greeting = ""

    def send(self, *lines: str) -> None:
        self.writer.write("".join(f"{line}\n" for line in lines).encode())

    async def line(self) -> str:
        """The next line; "" at the end."""
        async with asyncio.timeout(TIMEOUT_S):
            return (await self.reader.readline()).decode().removesuffix("\n")

    async def lines(self, count: int) -> list[str]:
        return [await self.line() for _ in range(count)]

    async def ask(self, line: str) -> str:
        self.send(line)
        return await self.line()

    async def rest(self) -> list[str]:
        """All lines up to the end, which must come."""
        async with asyncio.timeout(TIMEOUT_S):
            return (await self.reader.read()).decode().splitlines()

    async def is_cut_off(self) -> bool:
        """Whether the connection ends, in whatever way; what comes before is thrown away."""
        async with asyncio.timeout(TIMEOUT_S):
            try:
                while await self.reader.read(65_536):
                    pass
            except ConnectionError:
                pass
        return True

    def reset(self) -> None:
        """End without the orderly end that would let the server finish commands and flush."""
        sock = self.writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()

    def close(self) -> None:
        self.writer.close()


@asynccontextmanager
async def connected(server: TextServer) -> AsyncIterator[LineClient]:
    client = await connect(server)
    try:
        yield client
    finally:
        client.close()


async def connect(server: TextServer) -> LineClient:
    async with asyncio.timeout(TIMEOUT_S):
        reader, writer = await asyncio.open_connection(*server.address, limit=1 << 20)
    client = LineClient(reader, writer)
    client.greeting = await client.line()
    return client


async def subscribed(server: TextServer, patterns: Iterable[str]) -> LineClient:
    client = await connect(server)
    for pattern in patterns:
        assert await client.ask(f"subscribe {pattern}") == f"subscribe_ack {pattern}"
    return client
