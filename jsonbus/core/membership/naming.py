"""Naming patterns that no entry tells, because a coarse one covers them (announced.py).

A node that subscribes to a topic which its entry covers already changes nothing that others could
see. But publishers have to know of it if they retain a value of that topic, or have begun a
reliable stream. So the patterns are named, in lists without entries, which are sent three times. Of
very many at once, the coarsest pattern of all is named.

Repeats have a timer of their own: a program that subscribes all the time would otherwise have all
three sent within milliseconds, and a short burst of losses could take them all.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

from jsonbus.core.limits import (
    CHANGE_GATHER_S,
    GIVE_REPEAT_S,
    GIVE_TIMES,
    NAMED_BYTES_MAX,
    TIMER_SLACK_S,
)
from jsonbus.core.membership.announced import EVERYTHING
from jsonbus.core.wire.encode import pattern_size_bytes

#: All patterns that are to be repeated, in bytes: those of a program that subscribes to 4,000
#: topics a second, one after the other.
_REPEATED_BYTES_MAX = 8 * NAMED_BYTES_MAX


class Naming:
    """The patterns to name, and when."""

    __slots__ = ("_new", "_new_at", "_new_bytes", "_repeat_at", "_repeated", "_repeated_bytes")

    def __init__(self) -> None:
        #: Patterns that were not named yet, and those that were, with how often.
        self._new: dict[str, None] = {}
        self._new_bytes = 0
        self._new_at = math.inf
        self._repeated: dict[str, int] = {}
        self._repeated_bytes = 0
        self._repeat_at = math.inf

    @property
    def timer_at(self) -> float:
        return min(self._new_at, self._repeat_at)

    def add(self, patterns: list[str], now: float) -> None:
        """Name these patterns soon."""
        if EVERYTHING not in self._new:
            self._new.update(dict.fromkeys(patterns))
            self._new_bytes += _size_bytes(patterns)
            if (
                self._new_bytes > NAMED_BYTES_MAX
                or self._new_bytes + self._repeated_bytes > _REPEATED_BYTES_MAX
            ):
                self._new = {EVERYTHING: None}
        self._new_at = min(self._new_at, now + CHANGE_GATHER_S)

    def stop(self) -> None:
        self._new_at = self._repeat_at = math.inf

    def take(self, now: float) -> list[str]:
        """Return what to name now, and plan the repeats."""
        if EVERYTHING in self._new:
            self._repeated.clear()
        # First, because what is named anew begins anew.
        named = dict.fromkeys(self._new, 0)
        if self._repeat_at <= now + TIMER_SLACK_S:
            named = {**self._repeated, **named}
            self._repeated = {}
            self._repeat_at = math.inf
        self._new, self._new_bytes, self._new_at = {}, 0, math.inf
        for pattern, times in named.items():
            if times + 1 < GIVE_TIMES:
                self._repeated[pattern] = times + 1
        self._repeated_bytes = _size_bytes(self._repeated)
        if not self._repeated:
            self._repeat_at = math.inf
        elif self._repeat_at == math.inf:
            self._repeat_at = now + GIVE_REPEAT_S
        return list(named)


def in_datagrams(patterns: list[str]) -> Iterator[list[str]]:
    """Yield the patterns in groups, each of which fits a datagram."""
    group: list[str] = []
    size_bytes = 0
    for pattern in patterns:
        size_bytes += pattern_size_bytes(pattern)
        if group and size_bytes > NAMED_BYTES_MAX:
            yield group
            group, size_bytes = [], pattern_size_bytes(pattern)
        group.append(pattern)
    if group:
        yield group


def _size_bytes(patterns: Iterable[str]) -> int:
    return sum(map(pattern_size_bytes, patterns))
