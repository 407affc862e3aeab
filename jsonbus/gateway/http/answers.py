"""Answers over HTTP: JSON, and every error as `{"error": "one sentence"}`."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from starlette.responses import JSONResponse

from jsonbus.errors import (
    BacklogFullError,
    ClosedError,
    JsonBusError,
    LocalError,
    PayloadTooLargeError,
    StoreError,
)

from ..values import to_json_line

logger = logging.getLogger("jsonbus.gateway.http")

#: When a client should try again: a full backlog or disk is hardly any better before.
RETRY_AFTER_S = 5

NO_SNIFF = {"x-content-type-options": "nosniff"}  # browsers must not guess what a message is
#: For answers that are outdated a moment later.
NO_STORE = {"cache-control": "no-store", **NO_SNIFF}


class JsonLine(JSONResponse):
    """A JSON answer that ends its line, which looks better in a terminal."""

    def render(self, content: Any) -> bytes:
        return to_json_line(content)

    def init_headers(self, headers: Mapping[str, str] | None = None) -> None:
        super().init_headers({**NO_STORE, **(headers or {})})


class Refusal(Exception):
    """Ends a request with an error: a status, one sentence, and extra headers."""

    def __init__(self, status: int, reason: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(status, reason)
        self.status = status
        self.reason = reason
        self.headers = headers

    @property
    def answer(self) -> JsonLine:
        return JsonLine({"error": self.reason}, self.status, self.headers)


def try_later(reason: str, status: int = 503) -> Refusal:
    return Refusal(status, f"try again later: {reason}", {"retry-after": str(RETRY_AFTER_S)})


def refusal_of(error: Exception, path: str) -> Refusal:
    """Return what to answer to an error; an unexpected one is logged with its traceback."""
    if isinstance(error, Refusal):
        return error
    if isinstance(error, BacklogFullError):
        return try_later(error.detail, 500)
    if isinstance(error, StoreError):
        # Its text names files of this machine; the store logs it.
        return try_later("the gateway cannot write to its store", 500)
    if isinstance(error, ClosedError):
        return try_later("the gateway is closing")
    if isinstance(error, PayloadTooLargeError):
        return Refusal(413, str(error))
    if isinstance(error, ValueError) and isinstance(error, JsonBusError):
        return Refusal(400, str(error))
    if isinstance(error, LocalError):  # no room: the gateway's limit, not the client's
        return try_later(str(error))
    # The path alone: a query may hold a token.
    logger.error("a request to %r failed", path[:200], exc_info=error)
    return Refusal(500, "the gateway failed to do this: its log tells why")
