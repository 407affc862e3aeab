"""Clients of a gateway, each a process: publishers, a webhook, readers.

Raw sockets and as little Python as possible: what they take of the machine, the gateway lacks.

    publish HOST:PORT KIND CONNECTIONS SECONDS
    receive TOPIC                                   a webhook
    read HOST:PORT text|events TOPIC CLIENTS        that many text clients, or event streams
    talk HOST:PORT TOPIC|"" CLIENTS MESSAGES        text clients, and one that speaks to them
    repeat                                          the floor of `talk`

All but the first say when they are ready, and then, for each question, how much they have got so
far (worker.py); they end with their standard input.
"""

from __future__ import annotations

import asyncio
import json
import resource
import sys
import time
from collections.abc import Callable

from tools.bench.worker import read_commands, write_answer

MESSAGE = "21.5"
TOPIC = "bench"
OK = b"HTTP/1.1 200 "
_HEAD_END = b"\r\n\r\n"


def make_requests(address: str) -> dict[str, bytes]:
    """A publish of each kind, for a gateway at that address."""

    def post(path: str, kind: str, body: str) -> str:
        return (
            f"POST {path} HTTP/1.1\r\nHost: {address}\r\nContent-Type: {kind}\r\n"
            f"Content-Length: {len(body)}\r\n\r\n{body}"
        )

    form = f"topic={TOPIC}&message={MESSAGE}"
    requests = {
        "query": f"GET /publish?{form} HTTP/1.1\r\nHost: {address}\r\n\r\n",
        "form": post("/publish", "application/x-www-form-urlencoded", form),
        "json": post(
            "/publish", "application/json", f'{{"topic":"{TOPIC}","message":{{"temp":{MESSAGE}}}}}'
        ),
        "value": post(f"/v1/topics/{TOPIC}", "application/json", f'{{"temp":{MESSAGE}}}'),
    }
    return {kind: request.encode() for kind, request in requests.items()}


class _Publisher(asyncio.Protocol):
    """Sends a request whenever the answer to the last one is complete."""

    delays_s: list[float] = []
    refused = 0
    ends_at = 0.0

    def __init__(self, request: bytes, is_over: asyncio.Future[None]) -> None:
        self._request = request
        self._is_over = is_over
        self._answer = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._sent_at = time.monotonic()
        transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        self._answer += data
        end = _end_of_message(self._answer)
        if not end:
            return
        now = time.monotonic()
        if self._answer.startswith(OK):
            self.delays_s.append(now - self._sent_at)
        else:
            _Publisher.refused += 1
        self._answer = self._answer[end:]
        if now < self.ends_at:
            self._sent_at = now
            self._transport.write(self._request)
        else:
            self._transport.close()

    def connection_lost(self, error: Exception | None) -> None:
        self._is_over.set_result(None)


async def publish(address: str, kind: str, connections: int, seconds: float) -> dict[str, float]:
    """Publish over so many connections, each waiting for its answer; what was answered how."""
    loop = asyncio.get_running_loop()
    request = make_requests(address)[kind]
    host, port = _split(address)
    began_at = time.monotonic()
    _Publisher.ends_at = began_at + seconds
    ends = [loop.create_future() for _ in range(connections)]
    for end in ends:
        await loop.create_connection(lambda end=end: _Publisher(request, end), host, port)
    await asyncio.gather(*ends)
    took_s = time.monotonic() - began_at
    delays_s = sorted(_Publisher.delays_s)
    count = len(delays_s)
    return {
        "acknowledged": count,
        "refused": _Publisher.refused,
        "seconds": took_s,
        "p50_ms": 1e3 * delays_s[count // 2] if count else 0.0,
        "p99_ms": 1e3 * delays_s[count * 99 // 100] if count else 0.0,
    }


class _Receiver(asyncio.Protocol):
    """Answers every POST with 200, and counts the messages in it."""

    messages = 0
    topic = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._data = b""

    def data_received(self, data: bytes) -> None:
        self._data += data
        while end := _end_of_message(self._data):
            _Receiver.messages += self._data.count(self.topic, 0, end)
            self._data = self._data[end:]
            self._transport.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")


async def receive(topic: str) -> None:
    """A webhook; the first line is its port, those that follow how many messages came."""
    _Receiver.topic = json.dumps(topic).encode()
    server = await asyncio.get_running_loop().create_server(_Receiver, "127.0.0.1", 0)
    await _answer(str(server.sockets[0].getsockname()[1]), lambda: _Receiver.messages)
    server.close()


class _Reader(asyncio.Protocol):
    """Counts what has come, for all readers together."""

    mark = b"\n"
    count = 0
    awaited = 0
    have_come: asyncio.Event

    def data_received(self, data: bytes) -> None:
        # Of a single byte, since pieces end anywhere.
        _Reader.count += data.count(self.mark)
        if _Reader.count >= _Reader.awaited:
            self.have_come.set()

    @classmethod
    async def wait_for(cls, count: int) -> None:
        cls.awaited = count
        if cls.count < count:
            cls.have_come.clear()
            await cls.have_come.wait()


async def _connect(address: str, clients: int, hello: str) -> list[asyncio.Transport]:
    loop = asyncio.get_running_loop()
    _Reader.have_come = asyncio.Event()
    host, port = _split(address)
    transports = []
    for _ in range(clients):
        transport, _ = await loop.create_connection(_Reader, host, port)
        transport.write(hello.encode())
        transports.append(transport)
    return transports


async def read(address: str, kind: str, topic: str, clients: int) -> None:
    """So many readers of a topic; the answers are how many messages they got in all."""
    if kind == "text":
        transports = await _connect(address, clients, f"subscribe {topic}\n")
        await _Reader.wait_for(2 * clients)
    else:
        _Reader.mark = b"retry:"  # each stream begins so, in a packet of its own
        hello = f"GET /events?pattern={topic} HTTP/1.1\r\nHost: {address}\r\n\r\n"
        transports = await _connect(address, clients, hello)
        await _Reader.wait_for(clients)
        _Reader.mark = b"{"  # an event is one JSON object, and the values are numbers
    before = _Reader.count
    await _answer(True, lambda: _Reader.count - before)
    for transport in transports:
        transport.close()


async def talk(address: str, topic: str, clients: int, messages: int) -> None:
    """Text clients, and one that speaks when told to: each line when all have the one before."""
    transports = await _connect(address, clients, f"subscribe {topic}\n" if topic else "")
    speaker, _ = await asyncio.get_running_loop().create_connection(
        asyncio.Protocol, *_split(address)
    )
    line = f"publish {topic} {MESSAGE}\n" if topic else f"{TOPIC} {MESSAGE}\n"
    greetings = 2 * clients if topic else 0  # connection_ack and subscribe_ack
    await _Reader.wait_for(greetings)
    write_answer({"ready": True})
    await _next_command()
    for number in range(1, messages + 1):
        speaker.write(line.encode())
        await _Reader.wait_for(greetings + clients * number)
    write_answer({"count": _Reader.count - greetings})
    for transport in [*transports, speaker]:
        transport.close()


class _Repeater(asyncio.Protocol):
    """The floor of the text server: writes what the one that speaks says to all the others."""

    peers: list[asyncio.Transport] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.peers.append(transport)

    def data_received(self, data: bytes) -> None:
        for peer in self.peers[:-1]:  # who speaks came last
            peer.write(data)


async def repeat() -> None:
    server = await asyncio.get_running_loop().create_server(_Repeater, "127.0.0.1", 0, backlog=1000)
    await _answer(str(server.sockets[0].getsockname()[1]), lambda: len(_Repeater.peers))
    server.close()


async def _answer(greeting: object, look: Callable[[], int]) -> None:
    """Say that it is ready; then answer each question with what there is to see."""
    write_answer({"ready": greeting})
    while True:
        await _next_command()
        write_answer({"count": look()})


async def _next_command() -> None:
    await asyncio.to_thread(next, _commands)


_commands = read_commands()


def _end_of_message(data: bytes) -> int:
    """How long the HTTP message at the beginning is; 0 if it is not complete."""
    end = data.find(_HEAD_END)
    if end < 0:
        return 0
    head = data[:end].lower()
    place = head.index(b"content-length:") + 15
    size_bytes = end + len(_HEAD_END) + int(head[place:].split(b"\r", 1)[0])
    return size_bytes if len(data) >= size_bytes else 0


def _split(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host, int(port)


async def main() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    what, *arguments = sys.argv[1:]
    if what == "publish":
        address, kind, connections, seconds = arguments
        print(json.dumps(await publish(address, kind, int(connections), float(seconds))))
    elif what == "receive":
        await receive(*arguments)
    elif what == "read":
        address, kind, topic, clients = arguments
        await read(address, kind, topic, int(clients))
    elif what == "talk":
        address, topic, clients, messages = arguments
        await talk(address, topic, int(clients), int(messages))
    elif what == "repeat":
        await repeat()


if __name__ == "__main__":
    asyncio.run(main())
