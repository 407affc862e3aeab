"""Serves the application with uvicorn's protocol, inside an event loop that is already running.

Not with uvicorn's server: that always takes over the signals of the main thread, looks ten times a
second whether it should end, and then waits for clients that do not read. `close` is bounded:
running requests get some seconds, then their connections are aborted.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from email.utils import formatdate

import uvicorn
from starlette.types import ASGIApp
from uvicorn.server import ServerState

from jsonbus.errors import TransportError
from jsonbus.tls.certificate import ServerCertificate
from jsonbus.tls.port import TlsPort

from .connection import HEAD_S_MAX, GuardedConnection, raw_answer

logger = logging.getLogger("jsonbus.gateway.http")

#: Longer than the minute for which proxies keep connections: so the client closes them, and no
#: request meets a connection that is just being closed.
KEEP_ALIVE_S = 75

#: A connection ends if sent data is not acknowledged within this time: its client is gone.
UNACKNOWLEDGED_MS_MAX = 60_000

#: The longest message of a browser: text pasted into a field of the dashboard.
WEBSOCKET_BYTES_MAX = 1 << 20

#: Connections that wait in the kernel.
LISTEN_BACKLOG = 2_048

CLOSE_S = 3.0

# Accepted connections inherit these.
_OPTIONS = [
    (socket.SOL_SOCKET, socket.SO_REUSEADDR, 1),
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
    (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, UNACKNOWLEDGED_MS_MAX),
]

_PLAIN_ANSWER = raw_answer(400, "this port speaks TLS: use https://")


class HttpServer:
    """An application on a TCP port. Call everything from the event loop of `start`.

    With a certificate, the port speaks TLS.
    """

    def __init__(
        self,
        app: ASGIApp,
        host: str = "127.0.0.1",
        port: int = 0,
        *,
        certificate: ServerCertificate | None = None,
        has_websockets: bool = False,
        head_s_max: float = HEAD_S_MAX,
        close_s: float = CLOSE_S,
    ) -> None:
        self._config = uvicorn.Config(
            app,
            ws="auto" if has_websockets else "none",
            ws_max_size=WEBSOCKET_BYTES_MAX,
            log_config=None,
            # The client, not the log, is told of a malformed request.
            log_level=logging.ERROR,
            access_log=False,
            # Nothing here depends on who the client is, so no proxy is trusted to say it.
            proxy_headers=False,
            timeout_keep_alive=KEEP_ALIVE_S,
        )
        self._head_s_max = head_s_max
        self._close_s = close_s
        self._state = ServerState()
        self._server: asyncio.Server | None = None
        self._tls = None if certificate is None else TlsPort(certificate, _PLAIN_ANSWER)
        #: Where it listens, once started: host and port.
        self.address: tuple[str, int] = (host, port)

    async def start(self) -> None:
        """Listen; raises TransportError if that is not possible at this address."""
        self._config.load()
        loop = asyncio.get_running_loop()
        host, port = self.address
        with contextlib.ExitStack() as on_failure:
            try:
                found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
                # Prefer IPv4 for a name with both, such as localhost: most programs try it.
                family, kind, protocol, _, address = min(
                    found, key=lambda each: each[0] != socket.AF_INET
                )
                listener = on_failure.enter_context(socket.socket(family, kind, protocol))
                for level, option, value in _OPTIONS:
                    listener.setsockopt(level, option, value)
                listener.bind(address)
                self._server = await loop.create_server(
                    self._make_connection
                    if self._tls is None
                    else self._tls.wrap(self._make_connection),
                    sock=listener,
                    backlog=LISTEN_BACKLOG,
                )
            except OSError as error:
                reason = (error.strerror or str(error)).lower()
                raise TransportError(
                    f"cannot listen for HTTP on {host}:{port}: {reason}; choose another port or "
                    "address"
                ) from error
            on_failure.pop_all()
        self.address = listener.getsockname()[:2]
        self._update_date()

    async def close(self) -> None:
        """Stop listening and end all connections, within `close_s` and a little.

        Endless answers must have been ended before, that is, event streams.
        """
        if self._server is None:
            return
        self._server.close()
        self._server = None
        self._ticker.cancel()
        if self._tls is not None:
            self._tls.close()
        connections, tasks = self._state.connections, self._state.tasks
        for connection in list(connections):
            connection.shutdown()
        if tasks:
            await asyncio.wait(set(tasks), timeout=self._close_s)
        # A client that does not read keeps its connection and its answer from ending.
        for connection in list(connections):
            connection.transport.abort()
        for _ in range(10):  # they notice it in the next round of the loop
            await asyncio.sleep(0)
        if tasks:
            logger.warning("%d requests did not end in time and were given up", len(tasks))
            for task in tasks:
                task.cancel()
            await asyncio.wait(set(tasks), timeout=self._close_s)

    def stats(self) -> dict[str, int]:
        state = self._state
        return {
            "connections_open": len(state.connections),
            "requests": state.total_requests,
            **({} if self._tls is None else self._tls.stats()),
        }

    def _make_connection(self) -> GuardedConnection:
        return GuardedConnection(self._config, self._state, self._head_s_max)

    def _update_date(self) -> None:
        self._state.default_headers = [(b"date", formatdate(usegmt=True).encode())]
        self._ticker = asyncio.get_running_loop().call_later(1.0, self._update_date)
