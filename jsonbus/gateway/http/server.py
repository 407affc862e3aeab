"""Serves the application with uvicorn, inside an event loop that is already running.

Signals, log files and the end of the process stay with the gateway. `close` is bounded: running
requests get some seconds, then their connections are aborted.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Callable, Iterator

import uvicorn
from starlette.types import ASGIApp

from jsonbus.errors import TransportError

from .connection import HEAD_S_MAX, GuardedConnection

logger = logging.getLogger("jsonbus.gateway.http")

#: Longer than the minute for which proxies keep connections: so the client closes them, and no
#: request meets a connection that is just being closed.
KEEP_ALIVE_S = 75

#: A connection ends if sent data is not acknowledged within this time: its client is gone.
UNACKNOWLEDGED_MS_MAX = 60_000

#: The longest message of a browser: text pasted into a field of the dashboard.
WEBSOCKET_BYTES_MAX = 1 << 20

CLOSE_S = 3.0


class HttpServer:
    """An application on a TCP port. Call everything from the event loop of `start`."""

    def __init__(
        self,
        app: ASGIApp,
        host: str = "127.0.0.1",
        port: int = 0,
        *,
        on_close: Callable[[], None] | None = None,
        has_websockets: bool = False,
        head_s_max: float = HEAD_S_MAX,
        close_s: float = CLOSE_S,
    ) -> None:
        """`on_close` must end endless answers, that is, event streams."""
        self._app = app
        self._host = host
        self._port = port
        self._on_close = on_close
        self._has_websockets = has_websockets
        self._head_s_max = head_s_max
        self._close_s = close_s
        self._server: _Server | None = None
        self._task: asyncio.Task[None] | None = None
        #: Where it listens, once started: host and port.
        self.address: tuple[str, int] = (host, port)

    async def start(self) -> None:
        """Listen; raises TransportError if that is not possible at this address."""
        listener = await _bind(self._host, self._port)
        self.address = listener.getsockname()[:2]
        config = uvicorn.Config(
            self._app,
            http=GuardedConnection,
            ws="auto" if self._has_websockets else "none",
            ws_max_size=WEBSOCKET_BYTES_MAX,
            lifespan="off",
            log_config=None,
            # The client, not the log, is told of a malformed request.
            log_level=logging.ERROR,
            access_log=False,
            server_header=False,
            # Nothing here depends on who the client is, so no proxy is trusted to say it.
            proxy_headers=False,
            timeout_keep_alive=KEEP_ALIVE_S,
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
    """uvicorn's server without its signal handlers, its polling and its unbounded end.

    No option of uvicorn does that: its `serve` always takes over the signals of the main thread,
    looks ten times a second whether it should end, and then waits for clients that do not read.
    """

    def __init__(self, config: uvicorn.Config, head_s_max: float, close_s: float) -> None:
        super().__init__(config)
        self.is_listening = asyncio.Event()
        self.is_closing = asyncio.Event()
        self._close_s = close_s
        # Connections find it here: uvicorn makes them.
        self.server_state.head_s_max = head_s_max  # type: ignore[attr-defined]

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def main_loop(self) -> None:
        self.is_listening.set()
        while not self.is_closing.is_set():
            await self.on_tick(0)  # updates the Date header
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
        # A client that does not read keeps its connection and its answer from ending.
        for connection in list(connections):
            connection.transport.abort()
        for _ in range(10):  # they notice it in the next round of the loop
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
        # Prefer IPv4 for a name with both, such as localhost: most programs try it.
        found.sort(key=lambda each: each[0] != socket.AF_INET)
        family, kind, protocol, _, address = found[0]
        listener = socket.socket(family, kind, protocol)
    except OSError as error:
        raise _bind_error(host, port, error) from error
    try:
        listener.setblocking(False)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # Accepted connections inherit these.
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
