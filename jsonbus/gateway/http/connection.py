"""One HTTP connection: uvicorn's, with what neither of its parsers brings.

- The head of a request is bounded in size and in time; so is what else is no content: a chunked
  body's extensions and trailers, of which the parser would keep gigabytes, and a body that nobody
  reads since its request is answered already.
- Requests that wait behind another one on the same connection are bounded.
- Head and body of an answer leave in one packet: uvicorn writes them one by one, and each write is
  a system call that wakes the client. Together they save a fifth of a /publish (46 µs, not 58).
- A client that does not read can be noticed and cut off: `scope["state"]["connection"]`.
- What is answered before there is a request to route is JSON, like all other errors.
"""

from __future__ import annotations

import asyncio
from functools import lru_cache
from http import HTTPStatus
from typing import Any

from ..values import to_json_line

#: A request's line and headers: twice what browsers and proxies send at most.
HEAD_BYTES_MAX = 65_536

#: A byte of content pays for so many bytes around it: a chunk of one byte takes six.
FRAMING_BYTES_MAX = 16

#: Requests sent before the first one is answered. Each takes 2 KB here for some 20 bytes of its
#: client, and a first one that is an event stream is never done. Programs send ten or so.
PIPELINED_MAX = 100

#: A client has this long to say what it wants, from its first byte, or from its connection.
HEAD_S_MAX = 10.0

CONNECTIONS_MAX = 10_000


@lru_cache
def protocol_class(parser: str) -> type[asyncio.Protocol]:
    """uvicorn's protocol with that parser, "httptools" or "h11", and what is added here."""
    return _make_httptools_class() if parser == "httptools" else _make_h11_class()


class _OneWrite:
    """A transport that keeps the head of an answer until the first of its body comes.

    ASGI asks for that anyway: a server must not begin to answer before there is some body.
    """

    __slots__ = ("_head", "_transport", "is_closing")

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._head = b""
        self.is_closing = transport.is_closing

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        if self._head:
            data, self._head = self._head + data, b""
        elif data.startswith(b"HTTP/1.1 ") and not data.startswith(b"HTTP/1.1 1"):
            self._head = data
            return
        self._transport.write(data)

    def flush(self) -> None:
        if self._head:
            self.write(b"")

    def close(self) -> None:
        self.flush()
        self._transport.close()


class _Guarded:
    """What is added to uvicorn's connection, whichever parser it has."""

    transport: Any
    app_state: dict[str, Any]
    server_state: Any
    connections: set[Any]
    cycle: Any
    loop: asyncio.AbstractEventLoop
    _head_timer: asyncio.TimerHandle | None = None
    _is_head_too_large = False

    def connection_made(self, transport: asyncio.Transport) -> None:
        self.app_state = {**self.app_state, "connection": transport}
        super().connection_made(_OneWrite(transport))  # type: ignore[misc]
        self._await_head()
        if len(self.connections) > CONNECTIONS_MAX:  # those who are here already are served
            transport.write(_raw_answer(503, "try again later: too many connections are open"))
            transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        super().connection_lost(exc)  # type: ignore[misc]

    def on_response_complete(self) -> None:
        self.transport.flush()  # an answer without a body
        super().on_response_complete()  # type: ignore[misc]

    def handle_websocket_upgrade(self, *arguments: Any) -> None:
        self._stop_waiting()
        self.transport = self.transport._transport  # its first answer has no body at all
        super().handle_websocket_upgrade(*arguments)  # type: ignore[misc]

    def send_400_response(self, msg: str) -> None:
        if self._is_head_too_large:
            status, reason = 431, f"the head takes more than {HEAD_BYTES_MAX:,} bytes: send less"
        else:
            status, reason = 400, "this is not a valid HTTP request"
        cycle = self.cycle
        if cycle is None or cycle.response_complete or not cycle.response_started:
            self.transport.write(_raw_answer(status, reason))
            self.transport.close()
        else:  # in the middle of an answer, nothing else can be said
            self.transport.abort()

    def _await_head(self) -> None:
        if self._head_timer is None:
            self._head_timer = self.loop.call_later(
                self.server_state.head_s_max, self._give_up_head
            )

    def _give_up_head(self) -> None:
        self._head_timer = None
        if self.cycle is not None and not self.cycle.response_complete:
            self._await_head()  # its next request waits for our answer to the last one
        else:
            self.transport.close()

    def _stop_waiting(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None


def _make_httptools_class() -> type[asyncio.Protocol]:
    from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

    class GuardedHttpTools(_Guarded, HttpToolsProtocol):  # type: ignore[misc]
        """httptools has no bound for a head: what it is given is counted here."""

        # Of the message under way, if there is one: all of its head, and what of its body is no
        # content; whatever came before it in the same piece included.
        _bytes_given = 0
        _is_in_head = False
        _is_in_message = False

        def data_received(self, data: bytes) -> None:
            self._bytes_given = self._bytes_given + len(data) if self._is_in_message else len(data)
            super().data_received(data)
            if self._is_in_message:
                if self._bytes_given > HEAD_BYTES_MAX and not self.transport.is_closing():
                    self._is_head_too_large = True
                    self.send_400_response("")
                is_answered = self.cycle is not None and self.cycle.response_complete
                if self._is_in_head or is_answered:  # the rest of a body must come soon as well
                    self._await_head()
                    return
            if self._head_timer is not None:
                self._stop_waiting()

        def on_message_begin(self) -> None:
            self._is_in_head = self._is_in_message = True
            super().on_message_begin()

        def on_headers_complete(self) -> None:
            # Most heads come in one small piece, and need not be measured.
            if self._bytes_given > HEAD_BYTES_MAX and self._measure_head() > HEAD_BYTES_MAX:
                self._is_head_too_large = True
                raise ValueError("head too large")  # the parser stops, and an error is answered
            self._is_in_head = False
            self._bytes_given = 0
            super().on_headers_complete()
            if self.parser.should_upgrade():
                if self._should_upgrade():
                    return
                self.cycle.keep_alive = False  # the parser drops what is behind such a request
            # Trailers go here, and to nobody: a proxy in front may not have looked at them.
            self.headers = []
            if len(self.pipeline) > PIPELINED_MAX:
                self.transport.abort()
                raise ValueError("too many requests in line")

        def on_body(self, body: bytes) -> None:
            self._bytes_given = max(0, self._bytes_given - FRAMING_BYTES_MAX * len(body))
            super().on_body(body)

        def on_message_complete(self) -> None:
            self._is_in_message = False
            super().on_message_complete()

        def _measure_head(self) -> int:
            return len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)

    return GuardedHttpTools


def _make_h11_class() -> type[asyncio.Protocol]:
    from uvicorn.protocols.http.h11_impl import H11Protocol

    class GuardedH11(_Guarded, H11Protocol):  # type: ignore[misc]
        """h11 bounds a head by itself, by h11_max_incomplete_event_size."""

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            if self.cycle is None or self.cycle.response_complete:
                self._await_head()
            else:
                self._stop_waiting()

    return GuardedH11


def _raw_answer(status: int, reason: str) -> bytes:
    body = to_json_line({"error": reason})
    head = (
        f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\ncontent-type: application/json\r\n"
        f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
    )
    return head.encode() + body
