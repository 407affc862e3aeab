"""Arguments of the public methods, checked with a sentence that says what to do."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from time import monotonic
from typing import Any

from jsonbus.errors import ConfigError

#: The longest wait there is, a year. Far below what threads and event loops can count.
SECONDS_MAX = 366 * 86_400.0


def check_seconds(what: str, seconds: object) -> float:
    """Return a time to wait, 0 or more; raise ConfigError if it is none."""
    if isinstance(seconds, int | float) and not isinstance(seconds, bool):
        if math.isfinite(seconds) and seconds >= 0:
            return min(float(seconds), SECONDS_MAX)
    raise ConfigError(f"{what} must be a number of seconds, 0 or more, not {seconds!r}")


def countdown(seconds: float) -> Callable[[], float]:
    """Return a function that tells how much of that time is left, from now on."""
    deadline = monotonic() + seconds
    return lambda: max(0.0, deadline - monotonic())


def check_optional_seconds(what: str, seconds: object) -> float | None:
    """Return a time to wait, or None to wait for ever."""
    return None if seconds is None else check_seconds(what, seconds)


def check_handler(handler: Any, *, may_be_async: bool) -> None:
    """Raise ConfigError unless the handler can be called here."""
    if not callable(handler):
        raise ConfigError(f"a handler must be a function of one message, not {handler!r}")
    # A plain call would return a coroutine that never runs.
    if not may_be_async and (
        inspect.iscoroutinefunction(handler)
        or inspect.iscoroutinefunction(getattr(handler, "__call__", None))  # noqa: B004
    ):
        raise ConfigError(f"{handler!r} is an async function: AsyncBus runs those, Bus does not")


def check_count(count: object) -> int:
    """Return how many messages to take at most, 1 or more; raise ConfigError if it is none."""
    if type(count) is int and count >= 1:
        return count
    raise ConfigError(f"count_max is {count!r}: give the number of messages to take at most")


def check_patterns(patterns: Any) -> tuple[str, ...]:
    """Return several patterns as a tuple; raise ConfigError if there are none."""
    try:
        given = tuple(patterns)
    except TypeError:
        given = ()
    if not given or not all(isinstance(each, str) for each in given):
        raise ConfigError(f"subscribe to a pattern, or to a list of patterns, not to {patterns!r}")
    return given
