"""Guards every route: methods, tokens, figures, unread bodies, unexpected errors.

FastAPI solves dependencies, checks the answer and keeps two exit stacks for each request: GET
/health took 39 µs of CPU without it and takes 170 as an operation. So the two routes that must be
fast (publish.py) are a `PlainRoute`: FastAPI only documents them. So is the dashboard's login, for
which a guard alone is the application.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from time import perf_counter

from fastapi.routing import APIRoute
from starlette.responses import Response
from starlette.routing import Match
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..metrics.metrics import Tally
from .access import Access
from .answers import Refusal, logger, refusal_of
from .parameters import check_query, text_of_query
from .request import REQUEST, BodyRoom, ClientGoneError, HttpRequest, connection_of

Answer = Callable[[HttpRequest], Awaitable[Response]]


class Guard:
    """The checks of all requests to one path, and their figures; an ASGI application."""

    def __init__(
        self,
        methods: str,
        room: BodyRoom,
        answer: Answer | None = None,
        *,
        access: Access | None = None,
        right: str | None = None,
    ) -> None:
        """`right` is the right that a client's token must carry; None: everybody may call it.

        Without `answer`, a call has to name the application that answers.
        """
        self.tally = Tally()
        #: Whether the token may be in the query: EventSource sends no headers.
        self.reads_token_in_query = False
        #: The parameters of the query; None: whoever answers checks them.
        self.query_names: Sequence[str] | None = None
        self._answer = answer
        self._methods = methods.split()
        self._room = room
        self._access = None if right is None or access is None or access.is_open else access
        self._right = right or ""

    async def __call__(
        self, scope: Scope, receive: Receive, send: Send, app: ASGIApp | None = None
    ) -> None:
        started_at = perf_counter()
        request = HttpRequest(scope, receive, self._room)
        has_answered = False

        async def send_guarded(message: Message) -> None:
            """Count the answer, and end a body that nobody reads."""
            nonlocal has_answered
            if message["type"] == "http.response.start":
                has_answered = True
                self.tally.note(message["status"], perf_counter() - started_at)
                request.release()
                if request.has_unread_body:  # the server closes the connection then
                    message["headers"] = [*message["headers"], (b"connection", b"close")]
            elif request.has_unread_body and not message.get("more_body", False):
                await send({**message, "more_body": True})
                await request.discard_body()
                message = {"type": "http.response.body"}
            await send(message)

        try:
            request.check_head()
            self._check(request)
            if self.query_names is not None and scope["query_string"]:
                check_query(request, self.query_names)
            if self._answer is not None:
                app = await self._answer(request)
            else:  # not above: freeing this cycle of references costs 2 µs
                scope[REQUEST] = request
            assert app is not None
            await app(scope, receive, send_guarded)
        except (ClientGoneError, asyncio.CancelledError):
            # Only the server cancels, after it has given up the connection: nobody to answer.
            return
        except Exception as error:
            if not has_answered:
                await refusal_of(error, scope["path"]).answer(scope, receive, send_guarded)
                return
            logger.error("an answer of %r failed", scope["path"][:200], exc_info=error)
            connection = connection_of(scope)
            if connection is not None:  # the client sees that the answer is not complete
                connection.abort()
        finally:
            request.release()

    def _check(self, request: HttpRequest) -> None:
        method = request.scope["method"]
        if method not in self._methods:
            allowed = ", ".join(self._methods)
            reason = f"the method {method[:20]} is not allowed here: use {allowed}"
            raise Refusal(405, reason, {"allow": allowed})
        if self._access is None:
            return
        secret = _find_bearer(request.headers)
        if secret is None and self.reads_token_in_query:
            secret = text_of_query(request, "access_token")
        rights = self._access.rights_of(secret)
        if self._right in rights:
            return
        if rights:
            raise Refusal(403, f"this token does not carry the right to {self._right}")
        challenge = 'Bearer realm="jsonbus"'
        if secret is None:
            reason = "a token is needed: send the header Authorization: Bearer TOKEN"
        else:
            challenge += ', error="invalid_token"'
            reason = "the token is wrong"
        raise Refusal(401, reason, {"www-authenticate": challenge})


class GuardedRoute(APIRoute):
    """An operation of FastAPI behind the guard of its path."""

    guard: Guard

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.guard(scope, receive, send, self.app)


class PlainRoute(GuardedRoute):
    """A route that FastAPI documents by its function's signature; the guard has its answer.

    It gets every method; so of two such routes with the same path only the first is reached.
    """

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        if scope["type"] == "http" and self.path_regex.match(scope["path"]):
            return Match.FULL, {"endpoint": self.endpoint, "path_params": {}}
        return Match.NONE, {}


def _find_bearer(headers: Mapping[bytes, bytes]) -> str | None:
    """Return the secret in the header Authorization; "" if it is none, None without the header."""
    header = headers.get(b"authorization")
    if header is None:
        return None
    scheme, _, secret = header.partition(b" ")
    return secret.strip().decode("latin-1") if scheme.lower() == b"bearer" else ""
