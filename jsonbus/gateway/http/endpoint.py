"""Around every route: methods, rights, errors to answers, figures.

An `Endpoint` is an ASGI application of its own, behind a plain Starlette route of the FastAPI
application. A FastAPI operation would solve dependencies and keep two exit stacks for each request:
103 µs of CPU for an empty answer, where such a route takes 44 and uvicorn alone 30.
"""

from __future__ import annotations

import asyncio
import logging
from bisect import bisect_left
from collections import Counter
from collections.abc import Awaitable, Callable
from time import perf_counter

from starlette.types import Receive, Scope, Send

from jsonbus.errors import (
    BacklogFullError,
    ClosedError,
    JsonBusError,
    LocalError,
    PayloadTooLargeError,
    StoreError,
)

from .access import Access
from .answers import CLOSE, Answer, refusal_answer, send_answer, send_head
from .parameters import texts_of_query
from .request import BodyRoom, ClientGoneError, HttpRequest, Refusal, connection_of

logger = logging.getLogger("jsonbus.gateway.http")

#: When a client should try again: the backlog or the disk will hardly be any better before.
RETRY_AFTER_S = 5

#: Of a body that was refused unread, this much is thrown away before the connection ends.
DISCARDED_BYTES_MAX = 1 << 20
DISCARDED_S_MAX = 2.0

#: Upper bounds of the histogram of durations, in seconds.
BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)

#: An answer that is sent piece by piece, for as long as the client stays.
Stream = Callable[[Send], Awaitable[None]]
Handler = Callable[[HttpRequest], Awaitable[Answer | Stream]]


class Tally:
    """What one route did: answers by status, and how long they took."""

    __slots__ = ("answers", "buckets", "seconds")

    def __init__(self) -> None:
        self.answers: Counter[int] = Counter()
        self.buckets = [0] * (len(BUCKETS_S) + 1)
        self.seconds = 0.0

    def note(self, status: int, seconds: float) -> None:
        self.answers[status] += 1
        self.buckets[bisect_left(BUCKETS_S, seconds)] += 1
        self.seconds += seconds


class Endpoint:
    """One route: its handler, behind what is the same for all of them."""

    def __init__(
        self,
        handler: Handler,
        *,
        methods: tuple[str, ...],
        access: Access,
        room: BodyRoom,
        right: str | None = None,
        takes_token_in_query: bool = False,
    ) -> None:
        """`right` is what a client's token must carry; None: everybody may. `room` is for the
        bodies of all routes."""
        self.methods = methods
        self.right = right
        self.tally = Tally()
        self._handler = handler
        self._access = access
        self._room = room
        self._is_guarded = right is not None and not access.is_open
        self._takes_token_in_query = takes_token_in_query

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        started_at = perf_counter()
        request = None
        try:
            request = HttpRequest(scope, receive, self._room)
            if scope["method"] not in self.methods:
                raise _wrong_method(scope["method"], self.methods)
            if self._is_guarded:
                self._check_right(request)
            answer = await self._handler(request)
        except (ClientGoneError, asyncio.CancelledError):
            # Only the server cancels, when it has given up the connection: nobody to answer.
            return
        except Exception as error:
            answer = _answer_to(error, scope["path"])
        finally:
            if request is not None:
                request.release()
        if not isinstance(answer, Answer):
            self.tally.note(200, perf_counter() - started_at)
            await _stream(answer, scope, send)
            return
        self.tally.note(answer.status, perf_counter() - started_at)
        if request is not None and request.has_unread_body:
            await _answer_unread(send, request, answer)
        else:
            await send_answer(send, answer)

    def _check_right(self, request: HttpRequest) -> None:
        secret = _find_secret(request, self._takes_token_in_query)
        rights = self._access.rights_of(secret)
        if self.right in rights:
            return
        if rights:
            raise Refusal(403, f"this token does not carry the right to {self.right}")
        if secret is None:
            challenge = 'Bearer realm="jsonbus"'
            reason = "a token is needed: send the header Authorization: Bearer TOKEN"
        else:
            challenge = 'Bearer realm="jsonbus", error="invalid_token"'
            reason = "the token is wrong"
        raise Refusal(401, reason, {"www-authenticate": challenge})


def _find_secret(request: HttpRequest, takes_token_in_query: bool) -> str | None:
    header = request.headers.get(b"authorization")
    if header is not None:
        scheme, _, secret = header.partition(b" ")
        return secret.strip().decode("latin-1") if scheme.lower() == b"bearer" else ""
    if takes_token_in_query:
        found = texts_of_query(request, "access_token")
        if len(found) > 1:
            raise Refusal(400, "the parameter access_token comes twice: send it once")
        return found[0] if found else None
    return None


def _answer_to(error: Exception, path: str) -> Answer:
    """What a client is told of an error; what nobody expected is logged with its traceback."""
    if isinstance(error, Refusal):
        return refusal_answer(error)
    if isinstance(error, BacklogFullError):
        return _try_later(500, error.detail)
    if isinstance(error, StoreError):
        # Its text names files of this machine; the store logs it.
        return _try_later(500, "the gateway cannot write to its store")
    if isinstance(error, ClosedError):
        return _try_later(503, "the gateway is closing")
    if isinstance(error, PayloadTooLargeError):
        return refusal_answer(Refusal(413, str(error)))
    if isinstance(error, ValueError) and isinstance(error, JsonBusError):
        return refusal_answer(Refusal(400, str(error)))
    if isinstance(error, LocalError):  # too many patterns: the gateway's limit, not the client's
        return _try_later(503, str(error))
    # The path alone: a query may hold a token.
    logger.error("a request to %r failed", path[:200], exc_info=error)
    return refusal_answer(Refusal(500, "the gateway failed to do this: its log tells why"))


def _try_later(status: int, reason: str) -> Answer:
    headers = {"retry-after": str(RETRY_AFTER_S)}
    return refusal_answer(Refusal(status, f"try again later: {reason}", headers))


def _wrong_method(method: str, methods: tuple[str, ...]) -> Refusal:
    allowed = ", ".join(methods)
    return Refusal(
        405, f"the method {method[:20]} is not allowed here: use {allowed}", {"allow": allowed}
    )


async def _answer_unread(send: Send, request: HttpRequest, answer: Answer) -> None:
    """Answer while the body has not been read, and end the connection.

    Otherwise the server would read it to its end, however long that is.
    """
    await send_head(send, answer._replace(headers=(*answer.headers, CLOSE)))
    await send({"type": "http.response.body", "body": answer.body, "more_body": True})
    if b"expect" not in request.headers:  # who waits for "100 Continue" sends nothing more
        await request.discard_body(DISCARDED_BYTES_MAX, DISCARDED_S_MAX)
    await send({"type": "http.response.body"})


async def _stream(stream: Stream, scope: Scope, send: Send) -> None:
    try:
        await stream(send)
    except Exception:
        logger.exception("a stream of %r failed", scope["path"][:200])
        connection = connection_of(scope)
        if connection is not None:  # the client sees that it did not end well
            connection.abort()
