"""The bridge's TCP server: sockets, their time limits, and who may come in; requests.py answers.

One event loop in a thread of its own serves all connections, hundreds of idle ones included. What
waits for a disk or decodes blocks runs in a few worker threads. A client is given time to introduce
itself, to finish a request that it began, and to take what it asked for; between requests it may be
silent for as long as its connection lives.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import socket
import threading
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import Any

from . import wire
from .errors import AccessError, BridgeError, ProtocolError
from .requests import Requests

logger = logging.getLogger("jsonbus.bridge")

CONNECTIONS_MAX = 2_000
#: Threads that read the log, and those that stage and publish, which may take long.
READERS = 4
PUBLISHERS = 4

#: A client introduces itself within this time, sends the rest of a request that it began, and takes
#: some of what is sent to it.
HELLO_S = 10.0
REQUEST_S = 60.0
STALL_S = 120.0

#: What waits to be sent before the server waits for the client. Whole blocks; sendfile needs none.
SEND_BUFFER_BYTES = 4 << 20


class Server:
    """Serves from `start` until `stop`. `stats` and `appended` may be called from any thread."""

    def __init__(
        self, make_requests: Callable[[Executor, Executor], Requests], *, token: str | None
    ) -> None:
        self._readers = ThreadPoolExecutor(READERS, "jsonbus-bridge-reader")
        self._publishers = ThreadPoolExecutor(PUBLISHERS, "jsonbus-bridge-publisher")
        self._requests = make_requests(self._readers, self._publishers)
        self._token = token
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="jsonbus-bridge-server")
        self._connections: set[asyncio.Task[None]] = set()
        self._counters = dict.fromkeys(
            ("connections_accepted", "connections_refused", "connections_hostile", "requests"), 0
        )
        self._server: asyncio.Server | None = None

    def start(self, host: str, port: int) -> tuple[str, int]:
        """Listen; returns the address, with the port that was given out if `port` is 0.

        Raises OSError if the address cannot be had.
        """
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listening = socket.create_server((host, port), family=family, backlog=512)
        try:
            self._server = self._loop.run_until_complete(
                asyncio.start_server(self._serve, sock=listening)
            )
        except BaseException:
            listening.close()
            raise
        self._thread.start()
        address: tuple[str, int] = listening.getsockname()[:2]
        return address

    def stop(self) -> None:
        """Close all connections, and end."""
        if self._thread.is_alive():
            asyncio.run_coroutine_threadsafe(self._close(), self._loop).result()
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
        self._readers.shutdown()
        self._publishers.shutdown()
        self._loop.close()

    def appended(self) -> None:
        """The log has grown: whoever waits for that is told."""
        self._loop.call_soon_threadsafe(self._requests.wake)

    def stats(self) -> dict[str, int]:
        return {**self._counters, "connections": len(self._connections)}

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()

    async def _close(self) -> None:
        assert self._server is not None
        self._server.close()
        connections = list(self._connections)
        for each in connections:
            each.cancel()
        await asyncio.gather(*connections, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        if len(self._connections) >= CONNECTIONS_MAX:
            self._counters["connections_refused"] += 1
            writer.write(wire.encode(wire.refusal("busy", "too many connections")))
            writer.close()
            return
        self._connections.add(task)
        self._counters["connections_accepted"] += 1
        try:
            _set_up(writer)
            await self._converse(reader, writer)
        except (ProtocolError, AccessError) as error:
            self._counters["connections_hostile"] += 1
            peer = writer.get_extra_info("peername")
            logger.debug("! connection of %s closed: %s", peer, error)
        except (TimeoutError, OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # it has gone, is too slow, or the server stops
        except Exception:
            logger.exception("a connection failed: this is a bug")
        finally:
            self._connections.discard(task)
            writer.transport.abort() if writer.is_closing() else writer.close()

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        hello = await _read_hello(reader)
        try:
            self._admit(hello)
        except AccessError as error:
            await _send(writer, wire.encode(wire.refusal("bad_token", str(error))))
            raise
        await _send(writer, wire.encode(self._requests.welcome()))
        while True:
            length = await reader.readexactly(wire.LENGTH.size)
            async with asyncio.timeout(REQUEST_S):
                request = await _read(reader, wire.REQUEST_BYTES_MAX, length)
                attached = await self._read_attached(request, reader)
            self._counters["requests"] += 1
            await self._answer(request, attached, writer)

    def _admit(self, hello: dict[str, Any]) -> None:
        if hello.get("op") != "hello" or hello.get("version") != wire.VERSION:
            raise ProtocolError("it does not introduce itself, or in another version")
        if self._token is None:
            return
        shown = hello.get("token")
        if not isinstance(shown, str) or not hmac.compare_digest(
            shown.encode(errors="surrogatepass"), self._token.encode()
        ):
            raise AccessError("the token is missing or wrong: set the option token")

    async def _read_attached(self, request: dict[str, Any], reader: asyncio.StreamReader) -> bytes:
        """The bytes that stand behind some requests."""
        size = request.get("bytes", 0) if request.get("op") == "stage" else 0
        if type(size) is not int or not 0 <= size <= wire.STAGE_BYTES_MAX:
            raise ProtocolError(f"{size!r:.50} bytes cannot be staged at once")
        return await reader.readexactly(size)

    async def _answer(
        self, request: dict[str, Any], attached: bytes, writer: asyncio.StreamWriter
    ) -> None:
        try:
            if request.get("op") == "read":
                await self._requests.read(request, _Sending(writer))
            else:
                reply = await self._requests.answer(request, attached)
                await _send(writer, wire.encode({"ok": True, **reply}))
        except BridgeError as error:
            await _send(writer, wire.encode(self._requests.refuse(error)))


class _Sending:
    """What `Requests.read` writes to."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._writer = writer

    def write(self, data: bytes) -> None:
        """Send it with what follows."""
        self._writer.write(data)

    async def flush(self) -> None:
        """Wait until there is room for more; TimeoutError if the client takes nothing."""
        async with asyncio.timeout(STALL_S):
            await self._writer.drain()

    async def send_file(self, file: Any, position: int, length: int) -> None:
        """Send a part of a file, past this process if the system can."""
        loop = asyncio.get_running_loop()
        while length:
            part = min(length, SEND_BUFFER_BYTES)
            async with asyncio.timeout(STALL_S):
                await loop.sendfile(self._writer.transport, file, position, part)
            position += part
            length -= part


async def _read_hello(reader: asyncio.StreamReader) -> dict[str, Any]:
    try:
        async with asyncio.timeout(HELLO_S):
            if await reader.readexactly(len(wire.MAGIC)) != wire.MAGIC:
                raise ProtocolError("it does not begin as a bridge's client does")
            return await _read(reader, wire.HELLO_BYTES_MAX)
    except (TimeoutError, asyncio.IncompleteReadError) as error:
        raise ProtocolError("it does not introduce itself") from error


async def _read(
    reader: asyncio.StreamReader, bytes_max: int, length: bytes | None = None
) -> dict[str, Any]:
    if length is None:
        length = await reader.readexactly(wire.LENGTH.size)
    (size,) = wire.LENGTH.unpack(length)
    if size > bytes_max:
        raise ProtocolError(f"a request of {size:,} bytes; at most {bytes_max:,} are taken")
    return wire.decode(await reader.readexactly(size))


async def _send(writer: asyncio.StreamWriter, data: bytes) -> None:
    writer.write(data)
    async with asyncio.timeout(STALL_S):
        await writer.drain()


def _set_up(writer: asyncio.StreamWriter) -> None:
    writer.transport.set_write_buffer_limits(SEND_BUFFER_BYTES)
    sock = writer.get_extra_info("socket")
    # asyncio sets it only on sockets that know their protocol, which those of a listening socket
    # made by socket.create_server do not. Without it, half of the small replies take 40 ms: they
    # wait for a receipt of what was sent before, and the client delays that.
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    # A client whose machine is gone is noticed in the end, and its connection given back.
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
