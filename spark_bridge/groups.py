"""Remembers what each group of queries committed last, so that people can see its lag.

Nothing depends on it: a query continues from its own checkpoint, and no row is deleted because
everybody has read it. So it is kept in memory, and comes back with each group's next commit.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

#: The most groups that are remembered; the least recently heard is forgotten first.
GROUPS_MAX = 1_000


@dataclass(slots=True)
class _Group:
    offsets: tuple[int, ...] | None = None  # None: it has not committed yet
    committed_at: float = 0.0
    misfits: int = 0


class Groups:
    """The groups by name. Any thread may call any method."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._groups: OrderedDict[str, _Group] = OrderedDict()

    def commit(self, name: str, offsets: Sequence[int], at: float) -> None:
        """Note that a group has finished everything below these offsets, `at` monotonic seconds."""
        with self._lock:
            group = self._touch(name)
            group.offsets, group.committed_at = tuple(offsets), at

    def note_misfits(self, name: str, count: int) -> None:
        """Count values that do not fit the schema of a group."""
        with self._lock:
            self._touch(name).misfits += count

    def describe(self, ends: Sequence[int], now: float) -> dict[str, dict[str, Any]]:
        """Return, by group, its offsets, how many rows it is behind, and when it committed last."""
        with self._lock:
            return {name: _describe(group, ends, now) for name, group in self._groups.items()}

    def _touch(self, name: str) -> _Group:
        group = self._groups.setdefault(name, _Group())
        self._groups.move_to_end(name)
        if len(self._groups) > GROUPS_MAX:
            self._groups.popitem(last=False)
        return group


def _describe(group: _Group, ends: Sequence[int], now: float) -> dict[str, Any]:
    told: dict[str, Any] = {"misfits": group.misfits}
    if group.offsets is not None:
        lag = sum(max(0, end - done) for end, done in zip(ends, group.offsets, strict=True))
        ago_s = round(now - group.committed_at, 3)
        told.update(offsets=list(group.offsets), lag=lag, committed_s_ago=ago_s)
    return told
