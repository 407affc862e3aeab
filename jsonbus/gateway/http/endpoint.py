"""What is the same around every route: methods, bodies, figures, unexpected errors.

`OperationRoute` is for FastAPI's operations. `Endpoint` is an ASGI application for the two routes
that must be fast (publish.py) and for the dashboard's login: FastAPI solves dependencies, checks
the answer and keeps two exit stacks for each request. GET /health took 39 µs of CPU as an
`Endpoint` and takes 190 as an operation. `PlainRoute` has FastAPI document an `Endpoint`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from time import perf_counter
from typing import Any

from fastapi.routing import APIRoute
from starlette.routing import Match
from starlette.types import Message, Receive, Scope, Send

from ..metrics.metrics import Tally
from .access import Access
from .answers import (
    CLOSE,
    NO_SNIFF,
    NO_STORE,
    Answer,
    logger,
    refusal_answer,
    refusal_of,
    send_answer,
    send_head,
)
from .dependencies import check_token, find_bearer
from .request import REQUEST, BodyRoom, ClientGoneError, HttpRequest, Refusal, connection_of

#: The part of a refused body that is read and discarded before the connection is closed.
DISCARDED_BYTES_MAX = 1 << 20
DISCARDED_S_MAX = 2.0

Handler = Callable[[HttpRequest], Awaitable[Answer]]


class OperationRoute(APIRoute):
    """A FastAPI operation. Its application's state has `room`, `tallies` and `methods`."""

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        state = scope["app"].state
        operation = _Operation(scope, send, state.tallies[self.path])
        try:
            operation.request = request = HttpRequest(scope, receive, state.room)
            scope[REQUEST] = request
            if scope["method"] not in state.methods[self.path]:
                raise _wrong_method(scope["method"], state.methods[self.path])
            await super().handle(scope, receive, operation.send)
        except (ClientGoneError, asyncio.CancelledError):
            # Only the server cancels, after it has given up the connection: nobody to answer.
            return
        except Exception as error:
            await operation.fail(error)
        finally:
            if operation.request is not None:
                operation.request.release()


class _Operation:
    """One request to an operation, as far as its answer is concerned."""

    def __init__(self, scope: Scope, send: Send, tally: Tally) -> None:
        self.request: HttpRequest | None = None
        self._scope = scope
        self._send = send
        self._tally = tally
        self._started_at = perf_counter()
        self._has_answered = False

    async def send(self, message: Message) -> None:
        """Count the answer, add the headers of all answers, end a body that nobody reads."""
        is_unread = self.request is not None and self.request.has_unread_body
        if message["type"] == "http.response.start":
            self._has_answered = True
            self._tally.note(message["status"], perf_counter() - self._started_at)
            headers = message["headers"] = [*message["headers"], NO_SNIFF]
            if not any(name == b"cache-control" for name, _ in headers):
                headers.append(NO_STORE)
            if is_unread:
                headers.append(CLOSE)
        elif is_unread and not message.get("more_body", False):
            await self._send({**message, "more_body": True})
            await _discard_body(self.request)
            message = {"type": "http.response.body"}
        await self._send(message)

    async def fail(self, error: Exception) -> None:
        if not self._has_answered:
            refusal = refusal_of(error, self._scope["path"])
            await send_answer(self.send, refusal_answer(refusal))
            return
        logger.error("an answer of %r failed", self._scope["path"][:200], exc_info=error)
        connection = connection_of(self._scope)
        if connection is not None:  # the client sees that the answer is not complete
            connection.abort()


class PlainRoute(APIRoute):
    """A route that FastAPI documents by its function's signature, and that `app` serves alone.

    `app` gets every method; so of two such routes with the same path only the first is reached.
    """

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        if scope["type"] == "http" and self.path_regex.match(scope["path"]):
            return Match.FULL, {"endpoint": self.endpoint, "path_params": {}}
        return Match.NONE, {}

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.app(scope, receive, send)


class Endpoint:
    """A plain route: a function from a request to an answer, behind the checks of all routes."""

    def __init__(
        self,
        handler: Handler,
        *,
        methods: tuple[str, ...],
        access: Access,
        room: BodyRoom,
        right: str | None = None,
    ) -> None:
        """`right` is the right that a client's token must carry; None: everybody may call it."""
        self.tally = Tally()
        self._methods = methods
        self._right = None if access.is_open else right
        self._handler = handler
        self._access = access
        self._room = room

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        started_at = perf_counter()
        request = None
        try:
            request = HttpRequest(scope, receive, self._room)
            if scope["method"] not in self._methods:
                raise _wrong_method(scope["method"], self._methods)
            if self._right is not None:
                check_token(self._access, find_bearer(request.headers), self._right)
            answer = await self._handler(request)
        except (ClientGoneError, asyncio.CancelledError):
            # Only the server cancels, after it has given up the connection: nobody to answer.
            return
        except Exception as error:
            answer = refusal_answer(refusal_of(error, scope["path"]))
        finally:
            if request is not None:
                request.release()
        self.tally.note(answer.status, perf_counter() - started_at)
        if request is not None and request.has_unread_body:
            await send_head(send, answer._replace(headers=(*answer.headers, CLOSE)))
            await send({"type": "http.response.body", "body": answer.body, "more_body": True})
            await _discard_body(request)
            await send({"type": "http.response.body"})
        else:
            await send_answer(send, answer)


def _wrong_method(method: str, methods: tuple[str, ...]) -> Refusal:
    allowed = ", ".join(methods)
    return Refusal(
        405, f"the method {method[:20]} is not allowed here: use {allowed}", {"allow": allowed}
    )


async def _discard_body(request: Any) -> None:
    """Read some of a body that was refused, before the connection is closed.

    The server would otherwise read it to its end, however long it is.
    """
    if b"expect" not in request.headers:  # who waits for "100 Continue" sends nothing more
        await request.discard_body(DISCARDED_BYTES_MAX, DISCARDED_S_MAX)
