"""Naming patterns that no entry tells, because a coarse one covers them (announced.py).

A node that subscribes to a topic which its entry covers already changes nothing that others could
see. But publishers have to know of it if they retain a value of that topic, or have begun a
reliable stream. So the patterns are named, in lists without entries, which are sent three times. Of
very many at once, the coarsest pattern of all is named.
"""

from __future__ import annotations

import math

from jsonbus.core.limits import CHANGE_GATHER_S, GIVE_REPEAT_S, GIVE_TIMES, NAMED_BYTES_MAX
from jsonbus.core.membership.announced import EVERYTHING
from jsonbus.core.wire.encode import pattern_size_bytes


class Naming:
    """The patterns to name, and when."""

    __slots__ = ("_new", "_repeated", "_size_bytes", "timer_at")

    def __init__(self) -> None:
        #: Patterns that were not named yet, and those that were, with how often.
        self._new: dict[str, None] = {}
        self._repeated: dict[str, int] = {}
        self._size_bytes = 0
        self.timer_at = math.inf

    def add(self, patterns: list[str], now: float) -> None:
        """Name these patterns soon."""
        if EVERYTHING not in self._new:
            self._new.update(dict.fromkeys(patterns))
            self._size_bytes += sum(map(pattern_size_bytes, patterns))
            if self._size_bytes > NAMED_BYTES_MAX:
                self._new = {EVERYTHING: None}
        self.timer_at = min(self.timer_at, now + CHANGE_GATHER_S)

    def stop(self) -> None:
        self.timer_at = math.inf

    def take(self, now: float) -> list[str]:
        """Return what to name now, and plan the repeats."""
        named = {**self._repeated, **dict.fromkeys(self._new, 0)}
        self._new = {}
        if EVERYTHING in named:
            named = {EVERYTHING: named[EVERYTHING]}
        self._repeated = {
            pattern: times + 1 for pattern, times in named.items() if times + 1 < GIVE_TIMES
        }
        self._size_bytes = sum(map(pattern_size_bytes, self._repeated))
        self.timer_at = now + GIVE_REPEAT_S if self._repeated else math.inf
        return list(named)
