"""Answers over HTTP: JSON, and every error as `{"error": "one sentence"}`.

An `Answer` is what a plain route sends (see endpoint.py); FastAPI's operations answer by
`JsonLine`. Both turn an error into the same status and sentence by `answer_to`.
"""

from __future__ import annotations

import logging
from typing import Any, NamedTuple

from starlette.responses import JSONResponse
from starlette.types import Send

from jsonbus.errors import (
    BacklogFullError,
    ClosedError,
    JsonBusError,
    LocalError,
    PayloadTooLargeError,
    StoreError,
)

from ..values import to_json_line
from .request import Refusal

logger = logging.getLogger("jsonbus.gateway.http")

#: When a client should try again: a full backlog or disk is hardly any better before.
RETRY_AFTER_S = 5

JSON_TYPE = b"application/json"

NO_STORE = (b"cache-control", b"no-store")  # an answer is outdated a moment later
NO_SNIFF = (b"x-content-type-options", b"nosniff")  # browsers must not guess what a message is
_JSON_HEADERS = [(b"content-type", JSON_TYPE), NO_STORE, NO_SNIFF]

#: Tells the server to close the connection after this answer.
CLOSE = (b"connection", b"close")


class Answer(NamedTuple):
    """The answer of a plain route."""

    body: bytes
    status: int = 200
    content_type: bytes = JSON_TYPE
    headers: tuple[tuple[bytes, bytes], ...] = ()


class JsonLine(JSONResponse):
    """A JSON answer that ends its line, which looks better in a terminal."""

    def render(self, content: Any) -> bytes:
        return to_json_line(content)


def refusal_answer(refusal: Refusal) -> Answer:
    headers = tuple((name.encode(), value.encode()) for name, value in refusal.headers.items())
    return Answer(to_json_line({"error": refusal.reason}), refusal.status, headers=headers)


def refusal_of(error: Exception, path: str) -> Refusal:
    """Return what to answer to an error; an unexpected one is logged with its traceback."""
    if isinstance(error, Refusal):
        return error
    if isinstance(error, BacklogFullError):
        return _try_later(500, error.detail)
    if isinstance(error, StoreError):
        # Its text names files of this machine; the store logs it.
        return _try_later(500, "the gateway cannot write to its store")
    if isinstance(error, ClosedError):
        return _try_later(503, "the gateway is closing")
    if isinstance(error, PayloadTooLargeError):
        return Refusal(413, str(error))
    if isinstance(error, ValueError) and isinstance(error, JsonBusError):
        return Refusal(400, str(error))
    if isinstance(error, LocalError):  # too many patterns: the gateway's limit, not the client's
        return _try_later(503, str(error))
    # The path alone: a query may hold a token.
    logger.error("a request to %r failed", path[:200], exc_info=error)
    return Refusal(500, "the gateway failed to do this: its log tells why")


async def refuse(send: Send, refusal: Refusal) -> None:
    await send_answer(send, refusal_answer(refusal))


async def send_answer(send: Send, answer: Answer) -> None:
    await send_head(send, answer)
    await send({"type": "http.response.body", "body": answer.body})


async def send_head(send: Send, answer: Answer) -> None:
    """Send status and headers; the body must follow."""
    if answer.content_type is JSON_TYPE:
        headers = _JSON_HEADERS.copy()
    else:
        headers = [(b"content-type", answer.content_type), NO_STORE, NO_SNIFF]
    headers.append((b"content-length", b"%d" % len(answer.body)))
    headers += answer.headers
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})


def _try_later(status: int, reason: str) -> Refusal:
    return Refusal(status, f"try again later: {reason}", {"retry-after": str(RETRY_AFTER_S)})
