"""The patterns by which a node announces its subscriptions: its own, or coarser ones.

An entry has to fit a datagram, which holds some 3,000 patterns. When a node has more, the groups
that save most are told as one pattern each that covers them, then groups of these:

    a/b/c1 … a/b/c9000   ->   a/b/*   ->   a/**   ->   **

So publishers send rather than withhold, and this node drops what it does not want, as it does in
mode basic. A subscription that a coarse pattern covers changes nothing that others could see.

Every pattern has one path of ever coarser ones (`coarser`), and at most one of them is *merged*,
told for all below it. So looking one up takes as many steps as it has levels. Merging goes on until
a quarter of the room is free, and everything is told as it is again when that takes half of the
room: whoever subscribes and unsubscribes at the bound does not make the entry jump.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable

from jsonbus.core.wire.encode import pattern_size_bytes

EVERYTHING = "**"


class AnnouncedPatterns:
    """See the head of this file. `own` returns the patterns of all subscriptions, each once."""

    __slots__ = ("_fine_bytes", "_merged", "_own", "_room_bytes", "_told", "_told_bytes")

    def __init__(self, own: Callable[[], Iterable[str]], room_bytes: int) -> None:
        self._own = own
        self._room_bytes = room_bytes
        self._told: dict[str, int] = {}  # for how many patterns each stands
        self._told_bytes = 0
        self._merged: set[str] = set()  # those told for others
        self._fine_bytes = 0  # what all own patterns would take

    @property
    def is_coarse(self) -> bool:
        """Whether it tells some patterns that nobody subscribed to."""
        return bool(self._merged)

    def patterns(self) -> list[str]:
        """Return the patterns to tell, in no particular order."""
        return list(self._told)

    def set_room(self, room_bytes: int) -> None:
        """Fit into that many bytes from now on; `**` always has to fit."""
        self._room_bytes = room_bytes
        self._fit()

    def add(self, pattern: str) -> bool:
        """Take a new pattern of the node's own; return whether that changed what is told."""
        self._fine_bytes += pattern_size_bytes(pattern)
        told = self._told_for(pattern)
        count = self._told[told] = self._told.get(told, 0) + 1
        if count > 1:
            return False
        self._told_bytes += pattern_size_bytes(told)
        self._fit()
        return True

    def remove(self, patterns: Iterable[str]) -> bool:
        """Forget patterns that `own` no longer has; return whether that changed what is told."""
        told_before = len(self._told)
        for pattern in patterns:
            self._fine_bytes -= pattern_size_bytes(pattern)
            told = self._told_for(pattern)
            count = self._told[told] = self._told[told] - 1
            if not count:
                del self._told[told]
                self._told_bytes -= pattern_size_bytes(told)
                self._merged.discard(told)
        if self._merged and self._fine_bytes <= self._room_bytes // 2:
            self._merged.clear()
            self._told = dict.fromkeys(self._own(), 1)
            self._told_bytes = self._fine_bytes
            return True
        return len(self._told) < told_before

    def _told_for(self, pattern: str) -> str:
        """Return the pattern that is told for this one: a coarser one, or itself."""
        if not self._merged:
            return pattern
        told: str | None = pattern
        while told is not None and told not in self._merged:
            told = coarser(told)
        return pattern if told is None else told

    def _fit(self) -> None:
        """Merge until there is some room again, if there is none."""
        if self._told_bytes <= self._room_bytes:
            return
        target = self._room_bytes * 3 // 4
        while self._told_bytes > target and (len(self._told) > 1 or EVERYTHING not in self._told):
            self._merged |= self._choose(self._told_bytes - target)
            self._regroup()

    def _choose(self, excess_bytes: int) -> set[str]:
        """Return what to merge next: the groups that save most; if none saves, the deepest ones."""
        saved: defaultdict[str, int] = defaultdict(int)
        for told in self._told:
            group = coarser(told)
            if group is not None:
                saved[group] += pattern_size_bytes(told)
        for group in saved:
            if group not in self._told:
                saved[group] -= pattern_size_bytes(group)
        chosen: set[str] = set()
        for group in sorted(saved, key=lambda each: (-saved[each], each)):
            if saved[group] <= 0 or excess_bytes <= 0:
                break
            chosen.add(group)
            excess_bytes -= saved[group]
        if chosen:
            return chosen
        levels_max = max(group.count("/") for group in saved)
        return {group for group in saved if group.count("/") == levels_max}

    def _regroup(self) -> None:
        """Count what is told anew, after more was merged."""
        # Of two on one path, the coarser stands for both.
        self._merged = {
            each
            for each in self._merged
            if (above := coarser(each)) is None or self._told_for(above) not in self._merged
        }
        told: defaultdict[str, int] = defaultdict(int)
        for pattern, count in self._told.items():
            told[self._told_for(pattern)] += count
        self._told = dict(told)
        self._told_bytes = sum(map(pattern_size_bytes, told))


def coarser(pattern: str) -> str | None:
    """Return the next coarser pattern, which covers this one; None for `**`."""
    if pattern == EVERYTHING:
        return None
    above, _, last = pattern.rpartition("/")
    if last not in ("*", "**"):
        return f"{above}/*" if above else "*"
    above = above.rpartition("/")[0]
    return f"{above}/**" if above else EVERYTHING
