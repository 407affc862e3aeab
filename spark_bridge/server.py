"""The bridge's TCP server: sockets, time limits, and access control; requests.py answers.

One event loop in a separate thread serves all connections, hundreds of idle ones included. What
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
from typing import Any

from jsonbus.tls.certificate import ServerCertificate
from jsonbus.tls.port import TlsPort

from . import wire
from .errors import AccessError, ProtocolError
from .requests import Requests, StreamBrokenError
from .streams import ClientStream

logger = logging.getLogger("jsonbus.bridge")

#: Fewer if the process may not open that many files: half of its limit is left to the log.
CONNECTIONS_MAX = 2_000

#: Rows of all clients in memory that wait to be staged; further ones wait.
ATTACHED_BYTES_MAX = 1 << 30

_PLAIN_ANSWER = wire.encode(
    wire.refusal("bad_request", "it speaks TLS: set the option tls to true, and tlsCa")
)

_COUNTERS = (
    "connections_accepted",
    "connections_refused",  # too many
    "connections_hostile",  # bytes that are not a request, no token, silence within a request
    "connections_stalled",  # did not accept what was sent
    "requests",
)


class _LeaveError(Exception):
    """The connection ends after a last reply that the client should still receive."""


class Server:
    """Serves from `start` until `stop`, over TLS with a certificate.

    `stats` and `appended` may be called from any thread.
    """

    def __init__(
        self,
        requests: Requests,
        *,
        token: str | None,
        certificate: ServerCertificate | None = None,
    ) -> None:
        self._requests = requests
        self._tls = None if certificate is None else TlsPort(certificate, _PLAIN_ANSWER)
        self._token = None if token is None else _to_bytes(token)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="jsonbus-bridge-server")
        self._tasks: set[asyncio.Task[None]] = set()  # one for each connection
        self._connections_max = min(CONNECTIONS_MAX, files_max() // 2)
        self._attached_bytes = 0
        self._has_room = asyncio.Condition()  # for more of those
        self._counters = dict.fromkeys(_COUNTERS, 0)
        self._server: asyncio.Server | None = None

    def start(self, host: str, port: int) -> tuple[str, int]:
        """Listen, and return the address, with the port that was chosen if `port` is 0.

        Raises OSError if the address cannot be used.
        """
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listening = socket.create_server((host, port), family=family, backlog=512)
        try:
            self._server = self._loop.run_until_complete(
                self._loop.create_server(
                    self._make_protocol
                    if self._tls is None
                    else self._tls.wrap(self._make_protocol),
                    sock=listening,
                )
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
        self._requests.close()
        self._loop.close()

    def appended(self) -> None:
        """Wake clients that wait for new rows: the log has grown."""
        self._loop.call_soon_threadsafe(self._requests.wake)

    def stats(self) -> dict[str, int]:
        """Return the counters, and what is open or attached to requests now."""
        now = {"connections": len(self._tasks), "attached_bytes": self._attached_bytes}
        return {**self._counters, **now, **({} if self._tls is None else self._tls.stats())}

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()

    async def _close(self) -> None:
        assert self._server is not None
        self._server.close()
        if self._tls is not None:
            self._tls.close()
        tasks = list(self._tasks)
        for each in tasks:
            each.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _make_protocol(self) -> asyncio.StreamReaderProtocol:
        reader = asyncio.StreamReader(loop=self._loop)
        return asyncio.StreamReaderProtocol(reader, self._serve, loop=self._loop)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            client = ClientStream(reader, writer)
            try:
                await self._converse_or_count(client)
            except (_LeaveError, StreamBrokenError):
                await client.say_farewell()
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # the client is gone, or the server stops
        except OSError as error:
            logger.error("a connection failed: %s", error)
        except Exception:
            logger.exception("a connection failed: this is a bug")
        finally:
            self._tasks.discard(task)
            # Not close(): that waits until the client has taken everything, possibly for ever.
            writer.transport.abort()

    async def _converse_or_count(self, client: ClientStream) -> None:
        """Hold a conversation, and count why it ended."""
        if len(self._tasks) > self._connections_max:
            self._counters["connections_refused"] += 1
            client.write(wire.encode(wire.refusal("busy", "too many connections: come later")))
            raise _LeaveError
        self._counters["connections_accepted"] += 1
        try:
            await self._converse(client)
        except (ProtocolError, AccessError) as error:
            self._counters["connections_hostile"] += 1
            logger.debug("! connection of %s closed: %s", client.peer, error)
            raise _LeaveError from error
        except TimeoutError as error:
            self._counters["connections_stalled"] += 1
            raise ConnectionAbortedError from error

    async def _converse(self, client: ClientStream) -> None:
        hello = await client.read_hello()
        try:
            self._admit(hello)
        except (AccessError, ProtocolError) as error:
            code = "bad_token" if isinstance(error, AccessError) else "bad_request"
            client.write(wire.encode(wire.refusal(code, str(error))))
            raise
        await client.send(wire.encode(self._requests.welcome()))
        while True:
            await self._serve_request(client)

    def _admit(self, hello: dict[str, Any]) -> None:
        if hello.get("op") != "hello":
            raise ProtocolError("the first request has to be hello")
        if hello.get("version") != wire.VERSION:
            raise ProtocolError(
                f"this bridge speaks version {wire.VERSION}, not {hello.get('version')!r:.50}: "
                f"use the same jsonbus on both sides"
            )
        if self._token is None:
            return
        shown = hello.get("token")
        if not isinstance(shown, str) or not hmac.compare_digest(_to_bytes(shown), self._token):
            raise AccessError("the token is missing or wrong: set the option token")

    async def _serve_request(self, client: ClientStream) -> None:
        """Read one request and answer it; nothing of it is kept while the client is silent."""
        request = await client.read_request()
        size = _count_attached(request)
        if not size:
            await self._answer(request, b"", client)
            return
        async with self._has_room:
            await self._has_room.wait_for(
                lambda: (
                    not self._attached_bytes or self._attached_bytes + size <= ATTACHED_BYTES_MAX
                )
            )
            self._attached_bytes += size
        try:
            await self._answer(request, await client.read_attached(size), client)
        finally:
            self._attached_bytes -= size
            async with self._has_room:
                self._has_room.notify_all()

    async def _answer(self, request: dict[str, Any], attached: bytes, client: ClientStream) -> None:
        self._counters["requests"] += 1
        pieces = None
        try:
            if request.get("op") == "read":
                pieces = await self._requests.begin_read(request)
                reply = {"ok": True}
            else:
                reply = {"ok": True, **await self._requests.answer(request, attached)}
        except Exception as error:
            reply = self._requests.refuse(error)
        await client.send(wire.encode(reply))
        if pieces is not None:
            await self._requests.send(pieces, client)


def _count_attached(request: dict[str, Any]) -> int:
    """Return how many bytes follow the request."""
    size = request.get("bytes", 0) if request.get("op") == "stage" else 0
    if type(size) is not int or not 0 <= size <= wire.STAGE_BYTES_MAX:
        raise ProtocolError(f"{size!r:.50} bytes cannot be staged at once")
    return size


def _to_bytes(token: str) -> bytes:
    return token.encode(errors="surrogatepass")


def files_max() -> int:
    """Return how many files and sockets this process may have open."""
    try:
        import resource
    except ImportError:  # not on Windows, whose limit is high
        return 2 * CONNECTIONS_MAX
    allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 2 * CONNECTIONS_MAX if allowed == resource.RLIM_INFINITY else allowed
