"""One HTTP request: its headers, and its body with limits.

FastAPI's `Request` bounds neither the size of a body nor its time. And it is slow for the two fast
routes: with its `Headers` it costs a third of the CPU that such a route takes in all.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

from starlette.types import Receive, Scope

from .answers import Refusal, try_later

#: The time for a body to arrive, so that a client cannot hold a request open for ever.
BODY_S_MAX = 30.0

#: All bodies together, until their requests are answered: about a hundred of the largest. Without
#: this, ten thousand connections could each hold a megabyte for half a minute.
BODIES_BYTES_MAX = 128 << 20

#: Shorter bodies in one piece are not counted: they take no more memory than the request itself.
SMALL_BYTES_MAX = 4_096

#: The part of a refused body that is read and discarded before the connection is closed.
DISCARDED_BYTES_MAX = 1 << 20
DISCARDED_S_MAX = 2.0

#: Under this key the scope of an operation holds its `HttpRequest`.
REQUEST = "jsonbus.request"


class ClientGoneError(Exception):
    """The client closed the connection before its request was complete."""


class BodyRoom:
    """The memory that the bodies of all requests take together, and its limit."""

    __slots__ = ("bytes", "bytes_max")

    def __init__(self, bytes_max: int = BODIES_BYTES_MAX) -> None:
        self.bytes_max = bytes_max
        self.bytes = 0

    def take(self, size_bytes: int) -> None:
        """Count a body; raises Refusal 503 without room. A single body always fits."""
        if self.bytes and self.bytes + size_bytes > self.bytes_max:
            raise try_later("too many large requests are on their way")
        self.bytes += size_bytes


class HttpRequest:
    """A request: its head, and its body, which can be read once. Call `release` at the end."""

    __slots__ = ("_held_bytes", "_room", "has_unread_body", "headers", "receive", "scope")

    def __init__(self, scope: Scope, receive: Receive, room: BodyRoom) -> None:
        self.scope = scope
        self.receive = receive
        self._room = room
        self._held_bytes = 0
        pairs: list[tuple[bytes, bytes]] = scope["headers"]
        #: By name, in lower case.
        self.headers = dict(pairs)
        self.has_unread_body = (
            b"transfer-encoding" in self.headers
            or self.headers.get(b"content-length", b"0").strip(b"0") != b""
        )

    def check_head(self) -> None:
        """Refuse a repeated header that must be unique.

        A proxy in front of us might take the other one of the two.
        """
        pairs = self.scope["headers"]
        if len(self.headers) == len(pairs):
            return
        names = [name for name, _ in pairs if name in _SINGLE]
        for name in names:
            if names.count(name) > 1:
                raise Refusal(400, f"the header {name.decode()} comes twice: send it once")

    async def read_body(self, limit_bytes: int) -> bytes:
        """Return the whole body; b"" if there is none.

        Raises Refusal 413 as soon as the body is known to exceed the limit (before reading if its
        head announces it), 408 if it takes too long, 415 if it is compressed, 503 if the bodies of
        all requests are too large together, and ClientGoneError.
        """
        if not self.has_unread_body:
            return b""
        if b"transfer-encoding" not in self.headers:
            # The server has checked that it is a number.
            declared_bytes = int(self.headers[b"content-length"])
            if declared_bytes > limit_bytes:
                raise _too_large(f"{declared_bytes:,}", limit_bytes)
        encoding = self.headers.get(b"content-encoding", b"identity")
        if encoding.lower() != b"identity":
            raise Refusal(415, "a compressed body is not understood: send it as it is")
        try:
            async with asyncio.timeout(BODY_S_MAX):
                body = await self._read_chunks(limit_bytes)
        except TimeoutError:
            reason = f"the body did not come within {BODY_S_MAX:g} s: send it at once"
            raise Refusal(408, reason) from None
        self.has_unread_body = False
        return body

    def release(self) -> None:
        """Give back the room of the body. Idempotent."""
        if self._held_bytes:
            self._room.bytes -= self._held_bytes
            self._held_bytes = 0

    async def discard_body(self) -> None:
        """Read and discard the rest of the body, within limits of size and time.

        Closing a connection with unread bytes resets it, and the client may lose the answer. The
        server itself would read the body to its end, however long it is.
        """
        if b"expect" in self.headers:  # who waits for "100 Continue" sends nothing more
            return
        limit_bytes = DISCARDED_BYTES_MAX
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(DISCARDED_S_MAX):
                while limit_bytes > 0:
                    message = await self.receive()
                    if message["type"] != "http.request" or not message.get("more_body", False):
                        return
                    limit_bytes -= len(message.get("body", b""))

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
    """Return the GuardedConnection of a request; None if the server is not ours."""
    return scope.get("state", {}).get("connection")


_SINGLE = frozenset(
    b"authorization content-encoding content-length content-type host origin "
    b"transfer-encoding".split()
)


def _too_large(size: str, limit_bytes: int) -> Refusal:
    return Refusal(
        413, f"the body takes {size} bytes, at most {limit_bytes:,} are allowed: send less"
    )
