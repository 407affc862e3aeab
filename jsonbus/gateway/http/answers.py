"""Answers over HTTP: JSON, and errors as `{"error": "one sentence"}`."""

from __future__ import annotations

from typing import NamedTuple

from starlette.types import Send

from ..values import to_json_line
from .request import Refusal

JSON_TYPE = b"application/json"

# Nothing that the gateway says is still true a moment later, and a browser must not guess at what
# a message's content might be.
_COMMON = [(b"cache-control", b"no-store"), (b"x-content-type-options", b"nosniff")]
_JSON_HEADERS = [(b"content-type", JSON_TYPE), *_COMMON]

#: Says to the server that the connection ends with this answer.
CLOSE = (b"connection", b"close")


class Answer(NamedTuple):
    """What a route has to say."""

    body: bytes
    status: int = 200
    content_type: bytes = JSON_TYPE
    headers: tuple[tuple[bytes, bytes], ...] = ()


def refusal_answer(refusal: Refusal) -> Answer:
    headers = tuple((name.encode(), value.encode()) for name, value in refusal.headers.items())
    return Answer(to_json_line({"error": refusal.reason}), refusal.status, headers=headers)


async def refuse(send: Send, refusal: Refusal) -> None:
    await send_answer(send, refusal_answer(refusal))


async def send_answer(send: Send, answer: Answer) -> None:
    await send_head(send, answer)
    await send({"type": "http.response.body", "body": answer.body})


async def send_head(send: Send, answer: Answer) -> None:
    """Send all but the body, which is to follow."""
    if answer.content_type is JSON_TYPE:
        headers = _JSON_HEADERS.copy()
    else:
        headers = [(b"content-type", answer.content_type), *_COMMON]
    headers.append((b"content-length", b"%d" % len(answer.body)))
    headers += answer.headers
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
