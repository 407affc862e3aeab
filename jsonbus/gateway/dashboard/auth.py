"""Auth: decides which requests reach NiceGUI, and what browsers may do with its pages.

`OriginsMiddleware` comes first and refuses requests of other sites and foreign hosts, websockets
included. Only three parts of NiceGUI are reachable: its page at `/`, its files below `/_nicegui/`
(read-only), and its websocket. With tokens, all of them need a session, which `/login` begins. The
cookie gives access to nothing else of the gateway, so a forged request that carries it does
nothing. A websocket serves only pages of its session.

A page may load from and connect to this gateway only, and run only the scripts that it contained
when it was sent (the policy lists their hashes). No page may frame it. NiceGUI needs `eval`.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Callable
from urllib.parse import parse_qs, urlencode

from starlette.requests import HTTPConnection
from starlette.responses import HTMLResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..http.access import RIGHTS, Access
from ..http.answers import NO_STORE, Refusal
from ..http.endpoint import Guard
from ..http.origins import with_headers
from ..http.request import BodyRoom, HttpRequest
from .engine import malformed
from .login_page import HEADERS as LOGIN_HEADERS
from .login_page import render_login
from .sessions import Session, Sessions

#: Room for a token and its field name, even if every character is escaped.
LOGIN_BYTES_MAX = 4_096

#: The key of the session in a request's scope.
SESSION = "jsonbus.session"

_NO_RIGHT = (
    "This token does not carry the right to subscribe, without which there is nothing to see."
)
_NO_SNIFF = (b"x-content-type-options", b"nosniff")
_FILES = "/_nicegui/"
#: The parameters that a page of NiceGUI sends when it opens its websocket.
_ASKED_FOR = ("client_id", "document_id", "tab_id", "next_message_id")
_SOCKET = "/_nicegui_ws/socket.io/"
_find_scripts = re.compile(rb"<script(?![^>]*\ssrc=)[^>]*>(.*?)</script>", re.DOTALL).findall
#: Keys that our router adds to a request's scope; NiceGUI's application must set them itself.
_ROUTED = frozenset({"app", "endpoint", "path_params", "route", "router"})


class Auth:
    """An ASGI application for the routes of the dashboard."""

    def __init__(
        self,
        inside: ASGIApp,
        *,
        access: Access,
        sessions: Sessions,
        room: BodyRoom,
        node: str,
        has_room: Callable[[], bool],
        session_of: Callable[[str], Session | None],
    ) -> None:
        """`has_room` returns whether one more page may be open. `session_of` returns the
        session of the page of a NiceGUI client, or None if there is no such page.
        """
        self._inside = inside
        self._access = access
        self._sessions = sessions
        self._node = node
        self._has_room = has_room
        self._session_of = session_of
        # The session of all browsers if there are no tokens, because there is nothing to log in
        # with.
        self._open = Session(RIGHTS, is_lasting=True) if access.is_open else None
        self.login = Guard("POST", room, self._log_in)
        self.logout = Guard("POST", room, self._log_out)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        session = self._open or self._sessions.find(_key_of(scope))
        inner = {name: value for name, value in scope.items() if name not in _ROUTED}
        # NiceGUI copies this header into the page.
        inner["headers"] = [each for each in scope["headers"] if each[0] != b"x-forwarded-prefix"]
        inner[SESSION] = session
        if scope["type"] == "websocket":
            if scope["path"] == _SOCKET and session is not None and self._is_own(scope, session):
                await self._talk(inner, receive, send)
            else:
                await send({"type": "websocket.close", "code": 1008, "reason": "log in first"})
        elif scope["method"] not in ("GET", "HEAD"):
            refusal = Refusal(405, "this is a page: use GET, HEAD", {"allow": "GET, HEAD"})
            await refusal.answer(scope, receive, send)
        elif scope["path"] == "/":
            await self._serve_page(inner, receive, send, session)
        elif scope["path"].startswith(_FILES) and session is not None:
            await self._inside(inner, receive, with_headers(send, [_NO_SNIFF]))
        elif session is None:
            await Refusal(401, "log in first, at /").answer(scope, receive, send)
        else:
            refusal = Refusal(404, "there is nothing here: see /docs")
            await refusal.answer(scope, receive, send)

    async def _talk(self, inner: Scope, receive: Receive, send: Send) -> None:
        try:
            await self._inside(inner, receive, send)
        except Exception as error:  # engine.io raises it for a malformed packet
            malformed.note(error)
            await send({"type": "websocket.close", "code": 1003})

    async def _serve_page(
        self, inner: Scope, receive: Receive, send: Send, session: Session | None
    ) -> None:
        if session is None:
            page = render_login(self._node, _place_of(inner))
            await HTMLResponse(page, headers=LOGIN_HEADERS)(inner, receive, send)
        elif inner["method"] == "HEAD":  # do not build a page that nobody will see
            await HTMLResponse(headers=NO_STORE)(inner, receive, send)
        elif not self._has_room():
            refusal = Refusal(503, "too many pages are open: close one", {"retry-after": "60"})
            await refusal.answer(inner, receive, send)
        else:
            await self._inside(inner, receive, _with_policy(send))

    async def _log_in(self, request: HttpRequest) -> Response:
        body = await request.read_body(LOGIN_BYTES_MAX)
        try:
            fields = parse_qs(body.decode("ascii"), max_num_fields=4)
        except ValueError:
            fields = {}
        rights = self._access.rights_of(fields.get("token", [""])[-1].strip())
        if "subscribe" not in rights:
            reason = _NO_RIGHT if rights else "This token is wrong."
            page = render_login(self._node, _place_of(request.scope), reason)
            return HTMLResponse(page, 403, LOGIN_HEADERS)
        return self._to_page(self._sessions.begin(rights), request)

    async def _log_out(self, request: HttpRequest) -> Response:
        self._sessions.end(_key_of(request.scope))
        return self._to_page("", request)

    def _to_page(self, key: str, request: HttpRequest) -> Response:
        cookie = f"{_cookie_name(request.scope)}={key}; Path=/; HttpOnly; SameSite=Strict"
        if not key:
            cookie += "; Max-Age=0"
        # If a proxy in front of the gateway speaks TLS, the browser reports it in Origin.
        origin = request.headers.get(b"origin", b"")
        if request.scope["scheme"] == "https" or origin.startswith(b"https://"):
            cookie += "; Secure"
        place = _place_of(request.scope) if key else ""
        location = f"/?{place}" if place else "/"
        headers = {**NO_STORE, "location": location, "set-cookie": cookie}
        return Response(None, 303, headers, "application/json")

    def _is_own(self, scope: Scope, session: Session) -> bool:
        """Return whether a websocket may be opened.

        It needs all parameters of NiceGUI, and must be for a page of its session, or for one that
        is gone: NiceGUI makes the browser reload such a page.
        """
        query = parse_qs(scope["query_string"].decode("latin-1"))
        if not all(len(query.get(name, ())) == 1 for name in _ASKED_FOR):
            return False
        number = query["next_message_id"][0]
        if not (number.isascii() and number.isdecimal() and len(number) < 16):
            return False
        return self._session_of(query["client_id"][0]) in (None, session)


def _place_of(scope: Scope) -> str:
    """Return the tab and topic of a request, so that a login leads back to them."""
    query = parse_qs(scope["query_string"].decode("latin-1"))
    return urlencode({name: query[name][-1] for name in ("tab", "topic") if name in query})


def _key_of(scope: Scope) -> str | None:
    """Return the session key in the browser's cookie, or None."""
    return HTTPConnection(scope).cookies.get(_cookie_name(scope))


def _cookie_name(scope: Scope) -> str:
    """Return a cookie name with the port.

    Browsers send a cookie to all ports of a host, so two gateways on one machine would otherwise
    log each other's users out.
    """
    host = next((value for name, value in scope["headers"] if name == b"host"), b"")
    port = host.rpartition(b":")[2]
    return f"jsonbus-{port.decode()}" if port.isdigit() else "jsonbus"


def _with_policy(send: Send) -> Send:
    """Return a function that sends a page, once it is complete, with a policy for its scripts."""
    start: Message = {}
    body = bytearray()

    async def send_page(message: Message) -> None:
        if message["type"] == "http.response.start":
            start.update(message)
            return
        body.extend(message.get("body", b""))
        if not message.get("more_body", False):
            await send({**start, "headers": [*start["headers"], *_page_headers(bytes(body))]})
            await send({"type": "http.response.body", "body": bytes(body)})

    return send_page


def _page_headers(page: bytes) -> list[tuple[bytes, bytes]]:
    scripts = b" ".join(
        b"'sha256-" + base64.b64encode(hashlib.sha256(each).digest()) + b"'"
        for each in _find_scripts(page)
    )
    policy = (
        b"default-src 'none'; script-src 'self' 'unsafe-eval' " + scripts + b"; "
        # NiceGUI places elements by inline styles.
        b"style-src 'self' 'unsafe-inline'; img-src 'self' data:; font-src 'self'; "
        b"connect-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'"
    )
    return [
        (b"content-security-policy", policy),
        # Not no-referrer: a form sent under that policy has the origin "null".
        (b"referrer-policy", b"same-origin"),
        (b"cross-origin-opener-policy", b"same-origin"),
        _NO_SNIFF,
    ]
