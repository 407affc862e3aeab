"""How far queries are: what each group committed last, for people to see its lag.

Nothing depends on it: a query's own checkpoint says where it goes on, and no row is deleted because
everybody has read it. So it is kept in memory, and comes back with each group's next commit.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

#: Groups that are remembered; the one that was heard of longest ago goes first.
GROUPS_MAX = 1_000


class Groups:
    """The groups by name. Used by the server's event loop alone."""

    def __init__(self) -> None:
        self._offsets: OrderedDict[str, tuple[Sequence[int], float]] = OrderedDict()
        self._misfits: dict[str, int] = {}

    def commit(self, name: str, offsets: Sequence[int], at: float) -> None:
        """A group has done with everything below these offsets."""
        self._offsets[name] = (tuple(offsets), at)
        self._offsets.move_to_end(name)
        while len(self._offsets) > GROUPS_MAX:
            forgotten, _ = self._offsets.popitem(last=False)
            self._misfits.pop(forgotten, None)

    def note_misfits(self, name: str, count: int) -> None:
        """A group met values that do not fit its schema."""
        if name in self._misfits or len(self._misfits) < GROUPS_MAX:
            self._misfits[name] = self._misfits.get(name, 0) + count

    def describe(self, ends: Sequence[int], now: float) -> dict[str, dict[str, Any]]:
        """By group: its offsets, how many rows it is behind, and when it was heard of last."""
        names = [*self._offsets, *(each for each in self._misfits if each not in self._offsets)]
        return {name: self._describe(name, ends, now) for name in names}

    def _describe(self, name: str, ends: Sequence[int], now: float) -> dict[str, Any]:
        told: dict[str, Any] = {"misfits": self._misfits.get(name, 0)}
        if name in self._offsets:
            offsets, at = self._offsets[name]
            lag = sum(max(0, end - done) for end, done in zip(ends, offsets, strict=True))
            told.update(offsets=list(offsets), lag=lag, committed_s_ago=round(now - at, 3))
        return told
