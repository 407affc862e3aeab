"""Sides with tasks: asyncio's streams, and channels of an `AsyncBus`."""

from __future__ import annotations

import asyncio
import struct
from time import perf_counter
from typing import Any

from tools.bench.channel.side import HOLD_PORT, NAME, PORT, Side, make_body
from tools.bench.worker import read_commands, write_answer

READY_S = 30.0
LENGTH = struct.Struct(">I")


class StreamLink:
    """Messages as a plain program would cut them out of a stream: a length, then the body."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def send(self, body: bytes) -> None:
        self._writer.write(LENGTH.pack(len(body)) + body)  # asyncio sets TCP_NODELAY
        await self._writer.drain()

    async def receive(self) -> bytes:
        (size,) = LENGTH.unpack(await self._reader.readexactly(LENGTH.size))
        return await self._reader.readexactly(size)


class JsonLink:
    """The same for values, as JSON by what jsonbus uses for it."""

    def __init__(self, link: StreamLink) -> None:
        from orjson import dumps, loads

        self._link, self._dumps, self._loads = link, dumps, loads

    async def send(self, value: Any) -> None:
        await self._link.send(self._dumps(value))

    async def receive(self) -> Any:
        return self._loads(await self._link.receive())


class StreamPlace:
    """Where streams come from."""

    address = 0

    def __init__(self, side: Side) -> None:
        self._side = side
        self._arrived: asyncio.Queue[StreamLink] = asyncio.Queue()
        self._held: list[StreamLink] = []

    async def open(self) -> None:
        if self._side.role == "listener":
            self._server = await asyncio.start_server(self._answer, "127.0.0.1", 0)
            self.address = self._server.sockets[0].getsockname()[1]

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Who calls says what it wants, as a channel does, and is told that it is welcome."""
        link = StreamLink(reader, writer)
        wish = await link.receive()
        await link.send(b"welcome")
        if wish == PORT.encode():
            self._arrived.put_nowait(link)
        else:
            self._held.append(link)

    async def accept(self) -> StreamLink:
        return await self._arrived.get()

    async def connect(self, address: int, port: str = PORT) -> StreamLink:
        link = StreamLink(*await asyncio.open_connection("127.0.0.1", address))
        await link.send(port.encode())
        await link.receive()
        return link

    async def hold(self, count: int, address: int) -> None:
        self._held += [await self.connect(address, HOLD_PORT) for _ in range(count)]

    def count_held(self) -> int:
        return len(self._held)


class AsyncBusPlace:
    """Where channels come from."""

    address = 0

    def __init__(self, side: Side) -> None:
        self._side = side
        self._held: list[Any] = []

    async def open(self) -> None:
        self._bus = self._make_bus()
        if self._side.role == "listener":
            self._binding = self._bus.bind(PORT)
            self._bus.bind(HOLD_PORT, self._held.append)

    def _make_bus(self) -> Any:
        import jsonbus

        return jsonbus.AsyncBus(**self._side.bus_settings())

    async def accept(self) -> Any:
        return await self._binding.accept(READY_S)

    async def connect(self, address: int) -> Any:
        return await self._bus.connect(NAME, PORT, READY_S)

    async def connect_as_stranger(self) -> float:
        """From a bus that has heard of nobody yet."""
        async with self._make_bus() as bus:
            began_at = perf_counter()
            await bus.connect(NAME, HOLD_PORT, READY_S)
            return perf_counter() - began_at

    async def hold(self, count: int, address: int) -> None:
        for _ in range(count):
            self._held.append(await self._bus.connect(NAME, HOLD_PORT, READY_S))

    def count_held(self) -> int:
        return sum(not channel.is_closed for channel in self._held)


class TaskSide:
    """What a side is asked."""

    def __init__(self, side: Side) -> None:
        self._is_bare = side.system == "stream"
        self._place: Any = StreamPlace(side) if self._is_bare else AsyncBusPlace(side)
        self._link: Any = None

    async def open(self) -> dict[str, Any]:
        await self._place.open()
        return {"address": self._place.address}

    # The listener:

    async def accept(self) -> dict[str, Any]:
        self._link = await self._place.accept()
        return {}

    async def receive(self, count: int, is_json: bool) -> dict[str, Any]:
        """So many messages, and say when the last one is there."""
        receive = self._over(is_json).receive
        for _ in range(count):
            await receive()
        await self._link.send(b".")
        return {"received": count}

    async def echo(self, count: int, is_json: bool) -> dict[str, Any]:
        link = self._over(is_json)
        for _ in range(count):
            await link.send(await link.receive())
        return {}

    async def echo_by_handler(self) -> dict[str, Any]:
        """All that comes, from now on."""
        self._link.on_message(self._link.send)
        return {}

    # The caller:

    async def connect(self, address: int) -> dict[str, Any]:
        began_at = perf_counter()
        self._link = await self._place.connect(address)
        return {"seconds": perf_counter() - began_at}

    async def connect_as_stranger(self) -> dict[str, Any]:
        return {"seconds": await self._place.connect_as_stranger()}

    async def hold(self, count: int, address: int) -> dict[str, Any]:
        began_at = perf_counter()
        await self._place.hold(count, address)
        return {"seconds": perf_counter() - began_at}

    async def count_held(self) -> dict[str, Any]:
        """How many of them are still open."""
        return {"held": self._place.count_held()}

    async def send(self, count: int, size_bytes: int, is_json: bool) -> dict[str, Any]:
        """So many messages; the time until the last one is received."""
        body, send = make_body(size_bytes, is_json), self._over(is_json).send
        began_at = perf_counter()
        for _ in range(count):
            await send(body)
        await self._link.receive()
        return {"seconds": perf_counter() - began_at}

    async def ping(self, count: int, size_bytes: int, is_json: bool) -> dict[str, Any]:
        body, link = make_body(size_bytes, is_json), self._over(is_json)
        delays_us = []
        for _ in range(count):
            began_at = perf_counter()
            await link.send(body)
            await link.receive()
            delays_us.append(1e6 * (perf_counter() - began_at))
        return {"delays_us": delays_us}

    def _over(self, is_json: bool) -> Any:
        return JsonLink(self._link) if is_json and self._is_bare else self._link


def run(side: Side) -> None:
    asyncio.run(_run(TaskSide(side)))


async def _run(worker: TaskSide) -> None:
    write_answer(await worker.open())
    commands = read_commands()
    while (command := await asyncio.to_thread(next, commands, None)) is not None:
        write_answer(await getattr(worker, command.pop("ask"))(**command))
