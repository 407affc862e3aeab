"""A real receiver of webhooks, whose answers are scripted; for tests with or without asyncio.

    with Receiver() as receiver:
        receiver.script(Answer(500), Answer(hangs=True))    # then 200 to everything
        ... subscribe receiver.url ...
        assert wait_until(lambda: len(receiver.requests) == 3)

It runs in a thread of its own. What it got is in `requests`, oldest first; a request is noted when
it is complete, before it is answered. `connections` counts those accepted.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import threading
import time
from collections import deque
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self


@dataclass(frozen=True)
class Answer:
    """What happens to one request. The connection stays open unless something else is said."""

    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b"ok"
    #: Never answers, and keeps the connection until the other side gives up.
    hangs: bool = False
    #: Answers only when `Receiver.release` was called (once for each such request).
    waits: bool = False
    #: Closes without an answer, or after a part of it.
    closes_before: bool = False
    closes_midway: bool = False
    #: A body without end, until the other side closes; `Receiver.bytes_sent` counts.
    endless: bool = False
    #: These bytes in place of an answer; then it closes.
    raw: bytes | None = None
    #: Answers properly, then closes.
    closes_after: bool = False


@dataclass(frozen=True)
class Received:
    """One request, as it came."""

    method: str
    target: str
    headers: dict[str, str]  # names in lower case
    body: bytes
    connection: int  # the first one is 1
    at: float = field(default_factory=time.monotonic, compare=False)

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def topics(self) -> list[str]:
        topics: list[str] = self.json["topic"]
        return topics

    @property
    def messages(self) -> list[Any]:
        messages: list[Any] = self.json["message"]
        return messages


class Receiver:
    """See the head of this file. `url` is known once it is entered."""

    def __init__(
        self, *, host: str = "127.0.0.1", port: int = 0, tls: ssl.SSLContext | None = None
    ) -> None:
        self.host = host
        self.port = port
        self.requests: list[Received] = []
        self.connections = 0
        self.open_connections = 0
        self.bytes_sent = 0
        self.default = Answer()
        self._tls = tls
        self._script: deque[Answer] = deque()
        self._loop: asyncio.AbstractEventLoop
        self._thread = threading.Thread(target=self._run, name="receiver", daemon=True)
        self._is_listening = threading.Event()
        self._released: asyncio.Semaphore
        self._closed: asyncio.Event
        self._connections: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        scheme = "http" if self._tls is None else "https"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{scheme}://{host}:{self.port}/hook"

    @property
    def messages(self) -> list[Any]:
        """The messages of all requests, in order, repeats included."""
        return [message for request in list(self.requests) for message in request.messages]

    @property
    def delivery_ids(self) -> list[str]:
        return [request.headers["jsonbus-delivery"] for request in list(self.requests)]

    def script(self, *answers: Answer) -> None:
        """Answer the next requests so, in this order; then `default` again."""
        self._script.extend(answers)

    def release(self, count: int = 1) -> None:
        """Let so many requests that wait, now or later, be answered."""

        def release() -> None:
            for _ in range(count):
                self._released.release()

        self._loop.call_soon_threadsafe(release)

    def __enter__(self) -> Self:
        self._loop = asyncio.new_event_loop()
        self._thread.start()
        assert self._is_listening.wait(30)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._loop.call_soon_threadsafe(self._closed.set)
        self._thread.join(30)
        assert not self._thread.is_alive()

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        self._released = asyncio.Semaphore(0)
        self._closed = asyncio.Event()
        server = await asyncio.start_server(
            self._accept, self.host, self.port, ssl=self._tls, limit=1 << 24, backlog=1000
        )
        self.port = server.sockets[0].getsockname()[1]
        self._is_listening.set()
        await self._closed.wait()
        server.close()
        for task in self._connections:
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        self.connections += 1
        self.open_connections += 1
        try:
            await self._talk(reader, writer, self.connections)
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # the other side went away, or the test is over
        finally:
            self.open_connections -= 1
            self._connections.discard(task)
            writer.transport.abort()

    async def _talk(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, connection: int
    ) -> None:
        while True:
            request = await _read_request(reader, connection)
            self.requests.append(request)
            answer = self._script.popleft() if self._script else self.default
            if answer.waits:
                await self._released.acquire()
            if answer.hangs:
                await reader.read()
                return
            if answer.closes_before:
                return
            if answer.raw is not None:
                writer.write(answer.raw)
                await writer.drain()
                writer.close()
                return
            writer.write(self._head(answer))
            if answer.endless:
                while True:
                    writer.write(b"x" * 65_536)
                    await writer.drain()
                    self.bytes_sent += 65_536
            writer.write(answer.body[: len(answer.body) // 2 if answer.closes_midway else None])
            await writer.drain()
            if answer.closes_midway or answer.closes_after:
                writer.close()
                return

    def _head(self, answer: Answer) -> bytes:
        headers = dict(answer.headers)
        if not answer.endless and answer.status not in (204, 304):
            headers.setdefault("Content-Length", str(len(answer.body)))
        if answer.closes_after:
            headers.setdefault("Connection", "close")
        lines = [f"HTTP/1.1 {answer.status} Whatever"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        return "\r\n".join([*lines, "", ""]).encode()


async def _read_request(reader: asyncio.StreamReader, connection: int) -> Received:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    first, *lines = head.strip().split("\r\n")
    method, target, _ = first.split(" ")
    headers = {}
    for line in lines:
        name, _, value = line.partition(":")
        headers[name.strip().lower()] = value.strip()
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Received(method, target, headers, body, connection)


async def until(condition: Callable[[], object], timeout_s: float = 30.0) -> None:
    """`wait_until` for coroutines; fails the test if the condition never comes true."""
    deadline = time.monotonic() + timeout_s
    pause_s = 0.001
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        await asyncio.sleep(pause_s)
        pause_s = min(pause_s * 1.5, 0.05)


def run(main: Coroutine[Any, Any, None]) -> None:
    """`asyncio.run`, bounded: a hang fails the test instead of stopping the suite."""

    async def bounded() -> None:
        async with asyncio.timeout(120):
            await main

    asyncio.run(bounded())
