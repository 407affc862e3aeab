"""The clients of bench_gateway.py, each a process of its own: who publishes, receives and listens.

Raw sockets and as little Python as possible: what they take of the machine, the gateway lacks.
"""

from __future__ import annotations

import asyncio
import json
import resource
import sys
import time
from urllib.parse import urlsplit

MESSAGE = "21.5"
OK = b"HTTP/1.1 200 "


def publish(url: str, connections: int, seconds: float) -> dict[str, float]:
    """Publish over so many connections, each waiting for its answer; what was answered how."""
    return asyncio.run(_publish(url, connections, seconds))


async def _publish(url: str, connections: int, seconds: float) -> dict[str, float]:
    parts = urlsplit(url)
    request = (
        f"GET {parts.path}?{parts.query} HTTP/1.1\r\nHost: {parts.hostname}:{parts.port}\r\n\r\n"
    ).encode()
    delays_s: list[float] = []
    refused = 0
    ends_at = time.monotonic() + seconds

    async def one() -> None:
        nonlocal refused
        reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
        try:
            now = time.monotonic()
            while now < ends_at:
                sent_at = now
                writer.write(request)
                head = await reader.readuntil(b"\r\n\r\n")
                place = head.lower().index(b"content-length:") + 15
                await reader.readexactly(int(head[place : head.index(b"\r", place)]))
                now = time.monotonic()
                if head.startswith(OK):
                    delays_s.append(now - sent_at)
                else:
                    refused += 1
        finally:
            writer.close()

    began_at = time.monotonic()
    await asyncio.gather(*[one() for _ in range(connections)])
    took_s = time.monotonic() - began_at
    delays_s.sort()
    count = len(delays_s)
    return {
        "acknowledged": count,
        "refused": refused,
        "seconds": took_s,
        "p50_ms": 1e3 * delays_s[count // 2] if count else 0.0,
        "p99_ms": 1e3 * delays_s[count * 99 // 100] if count else 0.0,
    }


class _Receiver(asyncio.Protocol):
    """Answers every POST with 200, and counts."""

    posts = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._data = b""

    def data_received(self, data: bytes) -> None:
        self._data += data
        while (end := self._data.find(b"\r\n\r\n")) >= 0:
            head = self._data[:end].lower()
            place = head.index(b"content-length:") + 15
            length = int(head[place:].split(b"\r", 1)[0])
            if len(self._data) < end + 4 + length:
                return
            self._data = self._data[end + 4 + length :]
            _Receiver.posts += 1
            self._transport.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")


async def receive() -> None:
    """A webhook, until standard input ends; prints its port first, and how many POSTs came last."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(_Receiver, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await loop.run_in_executor(None, sys.stdin.read)
    server.close()
    print(json.dumps({"posts": _Receiver.posts}), flush=True)


class _Listener(asyncio.Protocol):
    """Counts lines, those of all listeners."""

    lines = 0
    awaited = 0
    have_come: asyncio.Event

    def data_received(self, data: bytes) -> None:
        _Listener.lines += data.count(b"\n")
        if _Listener.lines >= _Listener.awaited:
            self.have_come.set()

    @classmethod
    async def wait_for(cls, lines: int) -> None:
        cls.awaited = lines
        if cls.lines < lines:
            cls.have_come.clear()
            await cls.have_come.wait()


async def listen(
    host: str, port: int, clients: int, hello: bytes, line: bytes, messages: int
) -> None:
    """So many text clients, and one that speaks: each line when all have got the one before.

    Prints "ready" when all are connected, speaks when told so by a line, prints "done".
    """
    loop = asyncio.get_running_loop()
    _Listener.have_come = asyncio.Event()
    transports = []
    for _ in range(clients):
        transport, _ = await loop.create_connection(_Listener, host, port)
        transport.write(hello)
        transports.append(transport)
    speaker, _ = await loop.create_connection(asyncio.Protocol, host, port)
    transports.append(speaker)
    greetings = hello.count(b"\n") + 1 if hello else 0  # connection_ack, and one for each command
    await _Listener.wait_for(clients * greetings)
    print("ready", flush=True)
    await loop.run_in_executor(None, sys.stdin.readline)
    for number in range(1, messages + 1):
        speaker.write(line)
        await _Listener.wait_for(clients * (greetings + number))
    print("done", flush=True)
    for transport in transports:
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
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    server.close()


def main() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    what, *arguments = sys.argv[1:]
    if what == "publish":
        url, connections, seconds = arguments
        print(json.dumps(publish(url, int(connections), float(seconds))))
    elif what == "receive":
        asyncio.run(receive())
    elif what == "listen":
        host, port, clients, hello, line, messages = arguments
        await_all = listen(
            host, int(port), int(clients), hello.encode(), line.encode(), int(messages)
        )
        asyncio.run(await_all)
    elif what == "repeat":
        asyncio.run(repeat())


if __name__ == "__main__":
    main()
