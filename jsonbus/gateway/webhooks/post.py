"""One POST to a webhook: pinned to a checked address, bounded, over a connection that is kept.

This uses httpcore's connection, on which httpx is built. The client of httpx would add redirects,
cookies and environment proxies (all unwanted), and log the whole url of every request at INFO. The
pool in between does nothing for a single connection but cost: a small POST takes 0.75 ms of
processor time with httpx's transport, 0.38 ms with the connection.

A connection belongs to one subscriber: two names on one machine must not use the same connection,
since the TLS handshake named only one of them.
"""

from __future__ import annotations

import asyncio
import os
import ssl
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import httpcore
import httpx

from .backoff import parse_retry_after
from .targets import Address, IpAddress

#: An answer's body is read up to here, so that the connection can be used again; a longer one
#: closes it.
ANSWER_BYTES_MAX = 65_536
#: We close connections that were idle for longer. It exceeds the pauses of a topic with some
#: messages a minute.
KEEP_ALIVE_S = 60.0

Header = tuple[bytes, bytes]

#: What a connection raises: the network is down, or the answer is not HTTP.
_FAILURES = (httpcore.NetworkError, httpcore.ProtocolError, httpcore.TimeoutException)

#: For connections without TLS: trusts nobody, and need not read the authorities.
NO_TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


class Failure(NamedTuple):
    """A failed attempt. `reason` may be shown and logged: it has no part of the url or a body."""

    reason: str
    retry_after_s: float | None = None
    #: The receiver closed an idle connection, as it may at any time: not a failure.
    is_stale: bool = False


class NotDeliveredError(Exception):
    """An attempt failed."""

    def __init__(
        self, reason: str, retry_after_s: float | None = None, is_stale: bool = False
    ) -> None:
        super().__init__(reason)
        self.failure = Failure(reason, retry_after_s, is_stale)


class PostConnection:
    """Posts to one host and port, one request at a time; opens the connection when needed."""

    def __init__(
        self, address: Address, tls: ssl.SSLContext, on_open: Callable[[], None] = lambda: None
    ) -> None:
        """`on_open` is called whenever a connection was opened."""
        self._peer = _peer(address)
        self._tls = tls
        self._on_open = on_open
        self._opened = 0
        self._connection: httpcore.AsyncHTTPConnection | None = None
        self._good: IpAddress | None = None
        self._url: tuple[Address, IpAddress, httpcore.URL] | None = None

    def is_for(self, address: Address) -> bool:
        """Return whether it may be used for this address: not for another name on this machine."""
        return _peer(address) == self._peer

    async def post(
        self, address: Address, headers: Sequence[Header], body: bytes, timeout_s: float
    ) -> None:
        """Post, and return if the answer is 200 and complete, or longer than ANSWER_BYTES_MAX.

        Raises NotDeliveredError otherwise. The caller bounds the time; `timeout_s` is divided
        between the addresses of a name, so that one that swallows everything leaves time for the
        next. After an error or a cancellation, call `close`.
        """
        ips = sorted(address.ips, key=lambda ip: ip != self._good)  # the one with a connection
        for position, ip in enumerate(ips):
            left = len(ips) - position
            connect_s = timeout_s / len(ips) if left > 1 else None
            opened_before = self._opened
            try:
                await self._post_to(ip, address, headers, body, connect_s)
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
                if left == 1:
                    raise NotDeliveredError(_describe(error)) from error
            except _FAILURES as error:
                is_stale = self._opened == opened_before and self._opened > 0
                raise NotDeliveredError(_describe(error), None, is_stale) from error
            else:
                self._good = ip
                return

    async def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.aclose()

    async def _post_to(
        self,
        ip: IpAddress,
        address: Address,
        headers: Sequence[Header],
        body: bytes,
        connect_s: float | None,
    ) -> None:
        url = self._make_url(ip, address)
        connection = self._connection
        extensions: dict[str, Any] = {}
        if connection is None or not _is_usable(connection, url):
            await self.close()
            connection = self._connection = httpcore.AsyncHTTPConnection(
                url.origin, ssl_context=self._tls, keepalive_expiry=KEEP_ALIVE_S
            )
            extensions["trace"] = self._trace
            if address.host != str(ip):
                extensions["sni_hostname"] = address.host  # and what the certificate must name
            if connect_s is not None:
                extensions["timeout"] = {"connect": connect_s}
        host = (b"Host", address.authority.encode("ascii"))
        all_headers = [host, (b"Content-Length", b"%d" % len(body)), *headers]
        response = await connection.handle_async_request(
            httpcore.Request("POST", url, headers=all_headers, content=body, extensions=extensions)
        )
        try:
            await _read(response)
        except _FAILURES as error:
            raise NotDeliveredError(_describe(error)) from error
        finally:
            await response.aclose()
        if response.status != 200:
            reason = f"the answer was {response.status}, not 200"
            if any(name.lower() == b"jsonbus-gateway" for name, _ in response.headers):
                reason += ": a gateway is there, and gateways take no webhooks"
            raise NotDeliveredError(reason, _retry_after_s(response))

    def _make_url(self, ip: IpAddress, address: Address) -> httpcore.URL:
        """Return the url with the address in place of the name; cached while both stay the same."""
        known = self._url
        if known is not None and known[0] is address and known[1] is ip:
            return known[2]
        scheme, target = address.scheme, address.request_target
        url = httpcore.URL(scheme=scheme, host=str(ip), port=address.port, target=target)
        self._url = address, ip, url
        return url

    async def _trace(self, event: str, _: object) -> None:
        if event == "connection.connect_tcp.complete":
            self._opened += 1
            self._on_open()


def make_tls_context() -> ssl.SSLContext:
    """Trust the authorities that ship with httpx, and those that this machine trusts."""
    tls = httpx.create_ssl_context(trust_env=False)
    tls.load_default_certs()
    return tls


def _peer(address: Address) -> tuple[str, str, int]:
    return address.scheme, address.host, address.port


def _is_usable(connection: httpcore.AsyncHTTPConnection, url: httpcore.URL) -> bool:
    """Return whether it goes to that address, is between two requests, and is still open."""
    return (
        connection.can_handle_request(url.origin)
        and connection.is_idle()
        and not connection.has_expired()
    )


async def _read(response: httpcore.Response) -> None:
    """Read and discard the body, so that the connection is free; stop if it is long."""
    size_bytes = 0
    async for part in response.aiter_stream():
        size_bytes += len(part)
        if size_bytes > ANSWER_BYTES_MAX:
            return


def _retry_after_s(response: httpcore.Response) -> float | None:
    for name, value in response.headers:
        if name.lower() == b"retry-after":
            return parse_retry_after(value.decode("latin-1"), time.time())
    return None


def _describe(error: Exception) -> str:
    """Return what went wrong, without any part of the request or the answer."""
    cause = _deepest_cause(error)
    if isinstance(cause, ssl.SSLCertVerificationError):
        return f"the certificate is not accepted: {cause.verify_message}"
    if isinstance(cause, ssl.SSLError):
        return f"TLS failed: {cause.reason or 'the handshake broke off'}"
    if isinstance(cause, OSError) and cause.errno:
        return os.strerror(cause.errno).lower()
    if isinstance(error, httpcore.ConnectTimeout):
        return "no connection in time"
    if isinstance(error, httpcore.ConnectError):
        return "no connection"
    if isinstance(error, httpcore.RemoteProtocolError):
        return "the answer broke off or is not HTTP"
    return "the connection was lost before the answer was complete"


def _deepest_cause(error: BaseException) -> BaseException:
    """Return the system's error: httpcore wraps anyio's, which wraps it."""
    for _ in range(10):
        below = error.__cause__ or error.__context__
        if isinstance(below, BaseExceptionGroup):
            below = below.exceptions[0]
        if below is None or isinstance(below, asyncio.CancelledError):
            break
        error = below
    return error
