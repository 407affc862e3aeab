"""Checks the fields of a request: a client with the token may still be wrong.

Each function returns its field, or raises RequestError with one sentence.
"""

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


def read_integer(request: dict[str, Any], key: str) -> int:
    """Read a count, a number or an offset: 0 or more."""
    value = request.get(key)
    if type(value) is not int or not 0 <= value <= INTEGER_MAX:
        raise RequestError(f"{key} must be an integer, 0 or more, not {value!r:.50}")
    return value


def read_wait_ms(request: dict[str, Any]) -> int:
    """Read how long a client is ready to wait; 0 by default."""
    value = request.get("wait_ms", 0)
    if type(value) is not int or not 0 <= value <= WAIT_MS_MAX:
        raise RequestError(f"wait_ms must be 0 to {WAIT_MS_MAX:,}, not {value!r:.50}")
    return value


def read_time_us(request: dict[str, Any]) -> int:
    value = request.get("time_us")
    if type(value) is not int or abs(value) > INTEGER_MAX:
        raise RequestError(
            f"time_us must be an integer, microseconds since 1970, not {value!r:.50}"
        )
    return value


def read_name(request: dict[str, Any], key: str) -> str:
    """Read a name, which will be stored and shown to people."""
    value = request.get(key)
    if not isinstance(value, str) or not 0 < len(value) <= NAME_CHARACTERS_MAX:
        raise RequestError(f"{key} must be text of 1 to {NAME_CHARACTERS_MAX} characters")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise RequestError(f"{key} has a lone surrogate, which UTF-8 cannot carry") from None
    return value


def read_offsets(request: dict[str, Any], key: str, partitions: int) -> list[int]:
    """Read one offset for each partition."""
    value = request.get(key)
    if not _is_offsets(value) or len(value) != partitions:
        raise RequestError(f"{key} must be {partitions} offsets, one per partition")
    return value


def read_known(request: dict[str, Any]) -> list[int] | None:
    """Read the ends that a client knows; they may be those of another log."""
    value = request.get("known")
    if value is None or _is_offsets(value):
        return value
    raise RequestError("known must be a list of offsets, or null")


def read_attempts(request: dict[str, Any]) -> list[tuple[int, int]]:
    """Read pairs of partition and attempt."""
    value = request.get("partitions")
    if type(value) is not list or not all(_is_offsets(each) and len(each) == 2 for each in value):
        raise RequestError("partitions must be a list of pairs: partition, attempt")
    return [(partition, attempt) for partition, attempt in value]


def read_filter(request: dict[str, Any]) -> Callable[[str], bool] | None:
    """Return a function that says whether a topic is wanted; None if all are."""
    patterns = request.get("topics")
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
