"""Serves the application: uvicorn inside an event loop that runs already.

Of uvicorn this takes the HTTP protocols (see connection.py) and its listener, not its ways of
a process: signals, log files and the end are the gateway's.

`close` is bounded: requests that run get some seconds, then their connections are aborted.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Callable, Iterator
from importlib.util import find_spec

import uvicorn
from starlette.types import ASGIApp

from jsonbus.errors import TransportError

from .connection import HEAD_BYTES_MAX, HEAD_S_MAX, protocol_class

logger = logging.getLogger("jsonbus.gateway.http")

#: Longer than the minute for which proxies keep connections: the client ends them, not we, so
#: that no request meets a connection that is just being closed.
KEEP_ALIVE_S = 75

#: What was sent and not acknowledged within this time ends a connection: its client is gone.
UNACKNOWLEDGED_MS_MAX = 60_000

#: The longest message of a browser: what somebody pastes into a field of the dashboard.
WEBSOCKET_BYTES_MAX = 1 << 20

CLOSE_S = 3.0


class HttpServer:
    """An application on a TCP port. Everything in the event loop of `start`."""

    def __init__(
        self,
        app: ASGIApp,
        host: str = "127.0.0.1",
        port: int = 0,
        *,
        on_close: Callable[[], None] | None = None,
        parser: str | None = None,
        has_websockets: bool = False,
        head_s_max: float = HEAD_S_MAX,
        close_s: float = CLOSE_S,
    ) -> None:
        """`on_close` is to end answers without an end, event streams; `parser` is "httptools" or
        "h11", by default the first that is installed.
        """
        self._app = app
        self._host = host
        self._port = port
        self._on_close = on_close
        self._parser = parser or ("httptools" if find_spec("httptools") else "h11")
        self._has_websockets = has_websockets
        self._head_s_max = head_s_max
        self._close_s = close_s
        self._server: _Server | None = None
        self._task: asyncio.Task[None] | None = None
        #: Where it listens, once started: host and port.
        self.address: tuple[str, int] = (host, port)

    async def start(self) -> None:
        """Listen; raises TransportError if the address cannot be had."""
        listener = await _bind(self._host, self._port)
        self.address = listener.getsockname()[:2]
        config = uvicorn.Config(
            self._app,
            http=protocol_class(self._parser),
            ws="auto" if self._has_websockets else "none",
            ws_max_size=WEBSOCKET_BYTES_MAX,
            lifespan="off",
            log_config=None,
            # What uvicorn has to say of a malformed request is said to the client.
            log_level=logging.ERROR,
            access_log=False,
            server_header=False,
            # Nobody in front is trusted to say who the client is: nothing here depends on it.
            proxy_headers=False,
            timeout_keep_alive=KEEP_ALIVE_S,
            h11_max_incomplete_event_size=HEAD_BYTES_MAX,
        )
        config.load()
        self._server = _Server(config, self._head_s_max, self._close_s)
        self._task = asyncio.create_task(
            self._server.serve(sockets=[listener]), name="jsonbus-gateway-http"
        )
        listening = asyncio.ensure_future(self._server.is_listening.wait())
        await asyncio.wait([listening, self._task], return_when=asyncio.FIRST_COMPLETED)
        if not listening.done():
            listening.cancel()
            listener.close()
            await self._task  # raises what went wrong

    async def close(self) -> None:
        """Stop listening and end all connections, within `close_s` and a little."""
        if self._server is None or self._task is None:
            return
        if self._on_close is not None:
            self._on_close()
        self._server.is_closing.set()
        await self._task
        self._server = None

    def stats(self) -> dict[str, int]:
        state = None if self._server is None else self._server.server_state
        return {
            "connections_open": 0 if state is None else len(state.connections),
            "requests": 0 if state is None else state.total_requests,
        }


class _Server(uvicorn.Server):
    """uvicorn's server without its signal handlers, its polling, and its unbounded end."""

    def __init__(self, config: uvicorn.Config, head_s_max: float, close_s: float) -> None:
        super().__init__(config)
        self.is_listening = asyncio.Event()
        self.is_closing = asyncio.Event()
        self._close_s = close_s
        # Connections find it here: uvicorn makes them, and gives them nothing of ours.
        self.server_state.head_s_max = head_s_max  # type: ignore[attr-defined]

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def main_loop(self) -> None:
        self.is_listening.set()
        while not self.is_closing.is_set():
            await self.on_tick(0)  # brings the Date header up to date
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(1.0):
                    await self.is_closing.wait()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for server in self.servers:
            server.close()
        for listener in sockets or ():
            listener.close()
        connections = self.server_state.connections
        for connection in list(connections):
            connection.shutdown()
        tasks = set(self.server_state.tasks)
        if tasks:
            await asyncio.wait(tasks, timeout=self._close_s)
        # A client that does not read keeps its connection from closing, and its answer from ending.
        for connection in list(connections):
            connection.transport.abort()
        for _ in range(10):  # they learn of it in the loop's next round
            await asyncio.sleep(0)
        tasks = set(self.server_state.tasks)
        if tasks:
            logger.warning("%d requests did not end in time and were given up", len(tasks))
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks, timeout=self._close_s)


async def _bind(host: str, port: int) -> socket.socket:
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        # Of a name with both, such as localhost, the address that most programs try.
        found.sort(key=lambda each: each[0] != socket.AF_INET)
        family, kind, protocol, _, address = found[0]
        listener = socket.socket(family, kind, protocol)
    except OSError as error:
        raise _bind_error(host, port, error) from error
    try:
        listener.setblocking(False)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # What is accepted inherits these.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if hasattr(socket, "TCP_USER_TIMEOUT"):
            listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, UNACKNOWLEDGED_MS_MAX)
        listener.bind(address)
        listener.listen(1024)
    except OSError as error:
        listener.close()
        raise _bind_error(host, port, error) from error
    return listener


def _bind_error(host: str, port: int, error: OSError) -> TransportError:
    reason = (error.strerror or str(error)).lower()
    return TransportError(
        f"cannot listen for HTTP on {host}:{port}: {reason}; choose another port or address"
    )
