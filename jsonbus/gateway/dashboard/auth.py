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
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..http.access import RIGHTS, Access
from ..http.answers import NO_SNIFF, Answer, refuse, send_answer
from ..http.endpoint import Endpoint
from ..http.request import BodyRoom, HttpRequest, Refusal
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
_HTML = b"text/html; charset=utf-8"
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
        self.login = Endpoint(self._log_in, methods=("POST",), access=access, room=room)
        self.logout = Endpoint(self._log_out, methods=("POST",), access=access, room=room)

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
            await refuse(send, refusal)
        elif scope["path"] == "/":
            await self._serve_page(inner, receive, send, session)
        elif scope["path"].startswith(_FILES) and session is not None:
            await self._inside(inner, receive, _with_nosniff(send))
        elif session is None:
            await refuse(send, Refusal(401, "log in first, at /"))
        else:
            await refuse(send, Refusal(404, "there is nothing here: see /docs"))

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
            body = render_login(self._node, _place_of(inner))
            await send_answer(send, Answer(body, content_type=_HTML, headers=LOGIN_HEADERS))
        elif inner["method"] == "HEAD":  # do not build a page that nobody will see
            await send_answer(send, Answer(b"", content_type=_HTML))
        elif not self._has_room():
            refusal = Refusal(503, "too many pages are open: close one", {"retry-after": "60"})
            await refuse(send, refusal)
        else:
            await self._inside(inner, receive, _Sealed(send).send)

    async def _log_in(self, request: HttpRequest) -> Answer:
        body = await request.read_body(LOGIN_BYTES_MAX)
        try:
            fields = parse_qs(body.decode("ascii"), max_num_fields=4)
        except ValueError:
            fields = {}
        rights = self._access.rights_of(fields.get("token", [""])[-1].strip())
        if "subscribe" not in rights:
            reason = _NO_RIGHT if rights else "This token is wrong."
            page = render_login(self._node, _place_of(request.scope), reason)
            return Answer(page, 403, content_type=_HTML, headers=LOGIN_HEADERS)
        return self._to_page(self._sessions.begin(rights), request)

    async def _log_out(self, request: HttpRequest) -> Answer:
        self._sessions.end(_key_of(request.scope))
        return self._to_page("", request)

    def _to_page(self, key: str, request: HttpRequest) -> Answer:
        cookie = f"{_cookie_name(request.scope)}={key}; Path=/; HttpOnly; SameSite=Strict"
        if not key:
            cookie += "; Max-Age=0"
        # The gateway does not speak TLS. If a proxy in front does, the browser reports it here.
        if request.headers.get(b"origin", b"").startswith(b"https://"):
            cookie += "; Secure"
        place = _place_of(request.scope) if key else ""
        location = (f"/?{place}" if place else "/").encode()
        headers = ((b"location", location), (b"set-cookie", cookie.encode()))
        return Answer(b"", 303, headers=headers)

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


class _Sealed:
    """Sends a page, once it is complete, with the policy that allows its scripts."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._start: Message = {}
        self._body = b""

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._start = message
            return
        self._body += message.get("body", b"")
        if message.get("more_body", False):
            return
        self._start["headers"] = [*self._start["headers"], *_page_headers(self._body)]
        await self._send(self._start)
        await self._send({"type": "http.response.body", "body": self._body})


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
        NO_SNIFF,
    ]


def _with_nosniff(send: Send) -> Send:
    async def send_with_nosniff(message: Message) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = [*message.get("headers", ()), NO_SNIFF]
        await send(message)

    return send_with_nosniff
