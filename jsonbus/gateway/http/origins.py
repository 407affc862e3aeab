"""Decides which web pages may call the gateway through a user's browser.

A browser sends requests of any page to any address that its machine reaches, including a gateway
on loopback. Pages of strangers must not publish, so:

- `Origin` must be the gateway's own or an allowed one; such an allowed page may read the answers
  (CORS), which others may not.
- `Sec-Fetch-Site`, which newer browsers send with requests without an Origin (for an image, say),
  must not name another site. Following a link to a page that only shows something is harmless.
- `Host` must be a name of this machine while only this machine can connect: an attacker's name
  that suddenly resolves to 127.0.0.1 (DNS rebinding) would make his page our own origin. An address
  cannot be made to point elsewhere, so only whether it is loopback is checked.

Programs send none of these but Host. The rules hold for HTTP and WebSockets.

Deliveries of webhooks are refused, too, of any gateway: a webhook that posts to `/v1/topics/…`
would publish what it delivers, and if it subscribes to that topic, in an endless loop. So two
gateways that point at each other end a message after one hop. The header `Jsonbus-Gateway` of the
answer lets the other gateway say why.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence

from starlette.types import ASGIApp, Message, Receive, Scope, Send

import jsonbus

from .answers import Refusal

#: Pages that only show something: links on other sites may lead here.
HARMLESS_PATHS = frozenset({"/", "/docs", "/health", "/openapi.json"})

_SITE = "a page of another site may not do this: allow it by --allow-origin"
_ORIGIN = "pages of {!r} may not do this: allow them by --allow-origin"
_HOST = (
    "the host {!r} is not a name of this gateway: use its address, or allow the name by "
    "--allow-host"
)

_DELIVERY = "a webhook must not post to a gateway: a loop would never end"

_READABLE = [(b"access-control-expose-headers", b"retry-after, www-authenticate")]
_PREFLIGHT = [
    (b"access-control-allow-methods", b"GET, POST"),
    (b"access-control-allow-headers", b"authorization, content-type, last-event-id"),
    (b"access-control-max-age", b"600"),
]


class Origins:
    """The rules of one gateway. "*" in `allow_origins` allows every page."""

    def __init__(
        self,
        *,
        is_loopback: bool,
        allow_hosts: Sequence[str] = (),
        allow_origins: Sequence[str] = (),
    ) -> None:
        """Raises ValueError for a malformed origin."""
        self._is_loopback = is_loopback
        self._hosts = frozenset(host.lower() for host in allow_hosts)
        self._checks_hosts = is_loopback or bool(self._hosts)
        self._origins = frozenset(_check_origin(origin) for origin in allow_origins)
        self._hosts_passed: set[bytes] = set()

    def check(self, scope: Scope) -> bytes | None:
        """Return the foreign origin that may read the answer, if any; raises Refusal 403."""
        host = origin = site = None
        for name, value in scope["headers"]:
            if name == b"host":
                if host is not None:
                    raise Refusal(400, "the header host comes twice: send it once")
                host = value
            elif name == b"origin":
                origin = value
            elif name == b"sec-fetch-site":
                site = value
            elif name == b"jsonbus-delivery":
                raise Refusal(403, _DELIVERY, {"jsonbus-gateway": jsonbus.__version__})
        if self._checks_hosts and host not in self._hosts_passed:
            self._check_host(host)
        if origin is not None:
            return self._check_origin_of(scope, origin, host or b"")
        if site is not None and site not in (b"same-origin", b"none"):
            if not _is_harmless_visit(scope):
                raise Refusal(403, _SITE)
        return None

    def _check_host(self, host: bytes | None) -> None:
        name = _host_name(host or b"")
        if not (name in self._hosts or name == "localhost" or self._is_fine_address(name)):
            raise Refusal(403, _HOST.format(name[:80]))
        if host is not None and len(self._hosts_passed) < 100:
            self._hosts_passed.add(host)

    def _is_fine_address(self, name: str) -> bool:
        try:
            address = ipaddress.ip_address(name)
        except ValueError:
            return False
        return address.is_loopback or not self._is_loopback

    def _check_origin_of(self, scope: Scope, origin: bytes, host: bytes) -> bytes | None:
        scheme = b"https" if scope["scheme"] in ("https", "wss") else b"http"
        if origin.lower() == scheme + b"://" + host.lower():
            return None
        if "*" in self._origins or origin.decode("latin-1").lower() in self._origins:
            return origin
        raise Refusal(403, _ORIGIN.format(origin[:80].decode("latin-1")))


class OriginsMiddleware:
    """Applies the rules of `Origins` to all of an application, including mounted parts."""

    def __init__(self, app: ASGIApp, origins: Origins) -> None:
        self._app = app
        self._origins = origins

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_websocket = scope["type"] == "websocket"
        try:
            origin = self._origins.check(scope)
        except Refusal as refusal:
            if is_websocket:
                await send({"type": "websocket.close", "code": 1008, "reason": refusal.reason})
            else:
                await refusal.answer(scope, receive, send)
            return
        if origin is None or is_websocket:
            await self._app(scope, receive, send)
            return
        asked = dict(scope["headers"])
        headers = [(b"access-control-allow-origin", origin), (b"vary", b"origin")]
        if scope["method"] == "OPTIONS" and b"access-control-request-method" in asked:
            headers += _PREFLIGHT
            if b"access-control-request-private-network" in asked:
                headers.append((b"access-control-allow-private-network", b"true"))
            await send({"type": "http.response.start", "status": 204, "headers": headers})
            await send({"type": "http.response.body"})
        else:
            await self._app(scope, receive, with_headers(send, headers + _READABLE))


def _is_harmless_visit(scope: Scope) -> bool:
    if scope["type"] != "http" or scope["method"] not in ("GET", "HEAD"):
        return False
    return scope["path"] in HARMLESS_PATHS and (b"sec-fetch-mode", b"navigate") in scope["headers"]


def _host_name(host: bytes) -> str:
    """Return the name or address in a Host header, without its port, in lower case."""
    text = host.decode("latin-1").lower()
    if text.startswith("["):
        return text[1:].partition("]")[0]
    return text.partition(":")[0].removesuffix(".")


def _check_origin(origin: str) -> str:
    text = origin.lower().removesuffix("/")
    scheme, found, rest = text.partition("://")
    if text != "*" and (not found or not scheme or not rest or set(rest) & set("/?# @*")):
        raise ValueError(
            f"{origin!r} is no origin: write it like https://example.org or http://localhost:3000"
        )
    return text


def with_headers(send: Send, headers: list[tuple[bytes, bytes]]) -> Send:
    """Return a function that sends like `send`, with these headers in addition."""

    async def send_with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = [*message.get("headers", ()), *headers]
        await send(message)

    return send_with_headers
