"""Checks the fields of a request: a client with the token may still be wrong."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeGuard

import jsonbus
from jsonbus.errors import InvalidTopicError

from .errors import RequestError

#: The largest integer that fits the columns of the log and of the sink.
INTEGER_MAX = (1 << 63) - 1

#: How long a client may wait for new rows in one request.
WAIT_MS_MAX = 60_000

#: Length of the names that clients give: groups, queries.
NAME_CHARACTERS_MAX = 200

#: The most patterns of one request; each topic is compared with all of them.
PATTERNS_MAX = 1_000


class Request:
    """A request. Each method returns a field, or raises RequestError with one sentence."""

    def __init__(self, body: dict[str, Any]) -> None:
        self._body = body

    def flag(self, key: str) -> bool:
        """Return whether a field is true."""
        return self._body.get(key) is True

    def integer(
        self, key: str, *, low: int = 0, high: int = INTEGER_MAX, default: int | None = None
    ) -> int:
        value = self._body.get(key, default)
        if type(value) is not int or not low <= value <= high:
            raise RequestError(
                f"{key} must be an integer from {low:,} to {high:,}, not {value!r:.50}"
            )
        return value

    def name(self, key: str, default: str | None = None) -> str:
        """Return a name, which will be stored and shown to people."""
        if default is not None and key not in self._body:
            return default
        value = self._body.get(key)
        if not isinstance(value, str) or not 0 < len(value) <= NAME_CHARACTERS_MAX:
            raise RequestError(f"{key} must be text of 1 to {NAME_CHARACTERS_MAX} characters")
        try:
            value.encode()
        except UnicodeEncodeError:
            raise RequestError(f"{key} has a lone surrogate, which UTF-8 cannot carry") from None
        return value

    def offsets(self, key: str, partitions: int) -> list[int]:
        """Return one offset for each partition."""
        value = self._body.get(key)
        if not _is_offsets(value) or len(value) != partitions:
            raise RequestError(f"{key} must be {partitions} offsets, one per partition")
        return value

    def known(self) -> list[int] | None:
        """Return the ends that a client knows; they may be those of another log."""
        value = self._body.get("known")
        if value is None or _is_offsets(value):
            return value
        raise RequestError("known must be a list of offsets, or null")

    def attempts(self) -> list[tuple[int, int]]:
        """Return pairs of partition and attempt."""
        value = self._body.get("partitions")
        if type(value) is not list or not all(
            _is_offsets(each) and len(each) == 2 for each in value
        ):
            raise RequestError("partitions must be a list of pairs: partition, attempt")
        return [(partition, attempt) for partition, attempt in value]

    def topic_filter(self) -> Callable[[str], bool] | None:
        """Return a function that says whether a topic is wanted; None if all are."""
        patterns = self._body.get("topics")
        if patterns is None or patterns == ["**"]:
            return None
        if type(patterns) is not list or not 0 < len(patterns) <= PATTERNS_MAX:
            raise RequestError(f"topics must be a list of 1 to {PATTERNS_MAX:,} patterns")
        for pattern in patterns:
            if type(pattern) is not str:
                raise RequestError(f"topics must be patterns, not {pattern!r:.50}")
            try:
                jsonbus.topic_matches(pattern, "any")
            except InvalidTopicError as error:
                raise RequestError(str(error)) from error
        return functools.partial(_matches_any, tuple(dict.fromkeys(patterns)))


def _is_offsets(value: Any) -> TypeGuard[list[int]]:
    return type(value) is list and all(
        type(each) is int and 0 <= each <= INTEGER_MAX for each in value
    )


def _matches_any(patterns: tuple[str, ...], topic: str) -> bool:
    return any(jsonbus.topic_matches(pattern, topic) for pattern in patterns)
