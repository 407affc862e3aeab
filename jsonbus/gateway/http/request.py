"""One HTTP request as the gateway's routes see it, and the refusals that end one early.

Thinner than Starlette's Request on purpose: /publish is made of little else than this, and a
`Request` with its `Headers` costs a third of what the whole route does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from starlette.types import Receive, Scope

#: A body that takes longer than this is given up: a client cannot hold a request open for ever.
BODY_S_MAX = 30.0


#: All bodies at once, until their requests are answered: as many as a hundred of the largest. Ten
#: thousand connections could otherwise have a megabyte each, and take half a minute to send it.
BODIES_BYTES_MAX = 128 << 20

#: Shorter bodies that come in one piece are not counted: they take no more than the request itself.
SMALL_BYTES_MAX = 4_096


class Refusal(Exception):
    """A request is answered with an error: its status, one sentence, and headers that go along."""

    def __init__(self, status: int, reason: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(status, reason)
        self.status = status
        self.reason = reason
        self.headers = headers or {}


class ClientGoneError(Exception):
    """The client closed the connection before its request was complete: nobody to answer."""


class BodyRoom:
    """How much the bodies of all requests take, and may take."""

    __slots__ = ("bytes", "bytes_max")

    def __init__(self, bytes_max: int = BODIES_BYTES_MAX) -> None:
        self.bytes_max = bytes_max
        self.bytes = 0

    def take(self, size_bytes: int) -> None:
        """Raises Refusal 503 if there is no room; one body always has some."""
        if self.bytes and self.bytes + size_bytes > self.bytes_max:
            raise Refusal(
                503,
                "try again later: too many large requests are on their way",
                {"retry-after": "5"},
            )
        self.bytes += size_bytes


class HttpRequest:
    """A request: its head as the server read it, and its body, to be read at most once.

    `release` must follow, when it is answered.
    """

    __slots__ = ("_held_bytes", "_room", "has_unread_body", "headers", "receive", "scope")

    def __init__(self, scope: Scope, receive: Receive, room: BodyRoom) -> None:
        self.scope = scope
        self.receive = receive
        self._room = room
        self._held_bytes = 0
        pairs: list[tuple[bytes, bytes]] = scope["headers"]
        #: By their names in lower case.
        self.headers = dict(pairs)
        if len(self.headers) != len(pairs):
            _check_repeated(pairs)
        self.has_unread_body = (
            b"transfer-encoding" in self.headers
            or self.headers.get(b"content-length", b"0").strip(b"0") != b""
        )

    @property
    def declared_bytes(self) -> int | None:
        """How long the body is to be by its own account; None if it comes in chunks."""
        text = self.headers.get(b"content-length")
        # The server has seen to it that it is a number.
        return None if text is None or b"transfer-encoding" in self.headers else int(text)

    async def read_body(self, limit_bytes: int) -> bytes:
        """The whole body; b"" if there is none.

        Raises Refusal 413 as soon as it is longer than the limit, from its head if it says so
        there, 408 if it takes too long, 415 if it is compressed, 503 if all requests' bodies
        together are too large, and ClientGoneError.
        """
        if not self.has_unread_body:
            return b""
        declared_bytes = self.declared_bytes
        if declared_bytes is not None and declared_bytes > limit_bytes:
            raise _too_large(f"{declared_bytes:,}", limit_bytes)
        encoding = self.headers.get(b"content-encoding", b"identity")
        if encoding.lower() != b"identity":
            raise Refusal(415, "a compressed body is not understood: send it as it is")
        try:
            async with asyncio.timeout(BODY_S_MAX):
                body = await self._read_chunks(limit_bytes)
        except TimeoutError:
            raise Refusal(
                408, f"the body did not come within {BODY_S_MAX:g} s: send it at once"
            ) from None
        self.has_unread_body = False
        return body

    def release(self) -> None:
        """The body is not needed any more; again is nothing."""
        if self._held_bytes:
            self._room.bytes -= self._held_bytes
            self._held_bytes = 0

    async def discard_body(self, limit_bytes: int, limit_s: float) -> None:
        """Read on without keeping anything, within limits of size and time.

        To close a connection while bytes wait to be read resets it, and the client may lose an
        answer that it has not read yet.
        """
        try:
            async with asyncio.timeout(limit_s):
                while limit_bytes > 0:
                    message = await self.receive()
                    if message["type"] != "http.request" or not message.get("more_body", False):
                        return
                    limit_bytes -= len(message.get("body", b""))
        except TimeoutError:
            pass

    async def _read_chunks(self, limit_bytes: int) -> bytes:
        chunks: list[bytes] = []
        size_bytes = 0
        while True:
            message = await self.receive()
            if message["type"] != "http.request":
                raise ClientGoneError
            chunk: bytes = message.get("body", b"")
            size_bytes += len(chunk)
            if size_bytes > limit_bytes:
                raise _too_large(f"more than {limit_bytes:,}", limit_bytes)
            has_more = message.get("more_body", False)
            if has_more or chunks or size_bytes > SMALL_BYTES_MAX:
                self._room.take(len(chunk))
                self._held_bytes += len(chunk)
            chunks.append(chunk)
            if not has_more:
                return chunk if len(chunks) == 1 else b"".join(chunks)


def connection_of(scope: Scope) -> Any:
    """The transport of a request, to `abort` it whatever waits to be sent, and to see how much
    that is; None if the server offers nothing (ours does)."""
    return scope.get("state", {}).get("connection")


def _check_repeated(pairs: list[tuple[bytes, bytes]]) -> None:
    """Refuse two of a header that means something only once.

    Which of the two counts would be decided differently here and in a proxy in front of us.
    """
    seen = set()
    for name, _ in pairs:
        if name in _SINGLE and name in seen:
            raise Refusal(400, f"the header {name.decode()} comes twice: send it once")
        seen.add(name)


_SINGLE = frozenset(
    {
        b"authorization",
        b"content-encoding",
        b"content-length",
        b"content-type",
        b"host",
        b"origin",
        b"transfer-encoding",
    }
)


def _too_large(size: str, limit_bytes: int) -> Refusal:
    return Refusal(
        413, f"the body takes {size} bytes, at most {limit_bytes:,} are allowed: send less"
    )
