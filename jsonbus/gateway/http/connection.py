"""One HTTP connection: uvicorn's protocol, with limits that it does not have.

- The head of a request is bounded in size and time. So is everything else that is no content: the
  extensions and trailers of a chunked body, of which the parser would keep gigabytes, and a body
  that nobody reads because its request is already answered.
- Requests that wait behind another one on the same connection are bounded.
- Head and body of an answer leave in one packet. uvicorn writes them one by one, and each write is
  a system call that wakes the client; one write saves a fifth of a /publish (46 µs, not 58).
- An event stream writes its body to the transport itself, see `hand_over`; the connection is
  `scope["state"]["connection"]`.
- Errors before there is a request to route are JSON, like all other errors.
"""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from ..text.outlet import Outlet
from ..values import to_json_line

#: A request's line and headers: twice the limit of common browsers and proxies.
HEAD_BYTES_MAX = 65_536

#: Bytes of framing allowed for each byte of content: a chunk of one byte takes six.
FRAMING_BYTES_MAX = 16

#: Requests that a client may send before the first one is answered. Each takes 2 KB here and costs
#: its client 20 bytes, and an event stream as the first one never ends. Programs send about ten.
PIPELINED_MAX = 100

#: The time for a head to arrive, from its first byte, or from the start of the connection.
HEAD_S_MAX = 10.0

CONNECTIONS_MAX = 10_000


class _OneWrite:
    """A transport that keeps the head of an answer until the first piece of its body comes.

    ASGI demands that anyway: a server must not begin to answer before there is a body.
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

    def hand_over(self, outlet: Outlet, *, is_paused: bool) -> None:
        self.flush()
        outlet.open(self._transport, is_paused=is_paused)

    def close(self) -> None:
        self.flush()
        self._transport.close()


class GuardedConnection(HttpToolsProtocol):
    """One connection: uvicorn's protocol with the limits that are listed above.

    uvicorn has no hooks for what this one adds: it neither measures a head nor lets anybody set a
    time for it, and keeps its transport to itself.
    """

    transport: Any  # uvicorn declares a Transport, which `_OneWrite` is not

    def __init__(
        self, config: uvicorn.Config, server_state: ServerState, head_s_max: float
    ) -> None:
        super().__init__(config, server_state, {})
        self._head_s_max = head_s_max
        self._head_timer: asyncio.TimerHandle | None = None
        self._is_head_too_large = False
        # Bytes of the message under way that are not content: its head and the framing of its
        # body, with whatever came before it in the same piece. httptools itself has no limit.
        self._bytes_given = 0
        self._is_in_head = False
        self._is_in_message = False
        self._outlet: Outlet | None = None  # who writes to the transport

    def connection_made(self, transport: Any) -> None:
        self.app_state = {"connection": self}
        one_write: Any = _OneWrite(transport)
        super().connection_made(one_write)
        self._await_head()
        if len(self.connections) > CONNECTIONS_MAX:  # those already connected are served
            transport.write(raw_answer(503, "try again later: too many connections are open"))
            transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        self.app_state = {}  # a reference to itself
        if self._outlet is not None:
            self._outlet.drop()
        super().connection_lost(exc)

    def abort(self) -> None:
        """Close at once: an answer cannot be completed."""
        self.transport.abort()

    def hand_over(self, outlet: Outlet) -> None:
        """Let an outlet write to the transport, past uvicorn, until `take_back`.

        Call it when an answer has begun. What the outlet writes must be in the framing that the
        answer's head announces. It is dropped when the connection is lost.
        """
        self._outlet = outlet
        if self.transport.is_closing():
            outlet.drop()
        else:
            self.transport.hand_over(outlet, is_paused=self.flow.write_paused)

    def take_back(self) -> None:
        self._outlet = None
        self.transport.set_write_buffer_limits()

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._outlet is not None:
            self._outlet.pause_writing()

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._outlet is not None:
            self._outlet.resume_writing()

    def on_response_complete(self) -> None:
        self.transport.flush()  # an answer without a body
        super().on_response_complete()

    def handle_websocket_upgrade(self, *arguments: Any) -> None:
        self._stop_waiting()
        self.app_state = {}  # another protocol has the transport from now on
        self.transport = self.transport._transport  # the first answer has no body
        super().handle_websocket_upgrade(*arguments)

    def send_400_response(self, msg: str) -> None:
        if self._is_head_too_large:
            status, reason = 431, f"the head takes more than {HEAD_BYTES_MAX:,} bytes: send less"
        else:
            status, reason = 400, "this is not a valid HTTP request"
        cycle = self.cycle
        if cycle is None or cycle.response_complete or not cycle.response_started:
            self.transport.write(raw_answer(status, reason))
            self.transport.close()
        else:  # in the middle of an answer, no error can be sent
            self.transport.abort()

    def _await_head(self) -> None:
        if self._head_timer is None:
            self._head_timer = self.loop.call_later(self._head_s_max, self._give_up_head)

    def _give_up_head(self) -> None:
        self._head_timer = None
        if self.cycle is not None and not self.cycle.response_complete:
            self._await_head()  # the next request waits for our answer to the last one
        else:
            self.transport.close()

    def _stop_waiting(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def data_received(self, data: bytes) -> None:
        self._bytes_given = self._bytes_given + len(data) if self._is_in_message else len(data)
        super().data_received(data)
        if self._is_in_message:
            if self._bytes_given > HEAD_BYTES_MAX and not self.transport.is_closing():
                self._is_head_too_large = True
                self.send_400_response("")
            is_answered = self.cycle is not None and self.cycle.response_complete
            if self._is_in_head or is_answered:  # the rest of a body must come soon, too
                self._await_head()
                return
        if self._head_timer is not None:
            self._stop_waiting()

    def on_message_begin(self) -> None:
        self._is_in_head = self._is_in_message = True
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        # Most heads come in one small piece and need not be measured.
        if self._bytes_given > HEAD_BYTES_MAX and self._measure_head() > HEAD_BYTES_MAX:
            self._is_head_too_large = True
            raise ValueError("head too large")  # the parser stops, and 431 is answered
        self._is_in_head = False
        self._bytes_given = 0
        super().on_headers_complete()
        if self.parser.should_upgrade():
            if self._should_upgrade():
                return
            self.cycle.keep_alive = False  # the parser drops whatever follows such a request
        # Trailers go here, and are ignored: a proxy in front may not have checked them.
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


def raw_answer(status: int, reason: str) -> bytes:
    """Return an error as it is sent when there is no request to answer."""
    body = to_json_line({"error": reason})
    head = (
        f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\ncontent-type: application/json\r\n"
        f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
    )
    return head.encode() + body
