"""Differences that may be gone in a moment, and those that are not.

A change reaches the nodes of a bus at slightly different instants, and presences are under way all
the time: among a thousand nodes, every join crosses some datagram that still has the digest of
before. Two rules tell such echoes from real differences:

- a digest that was this node's own a short while ago: its sender is only behind. If it has missed
  the change, it will notice so itself, from everybody else's digest;
- any other digest: perhaps this node is behind, by milliseconds. It is looked at again after a
  grace, and is a difference if this node's own is still another one.
"""

from __future__ import annotations

import math
from collections import deque
from typing import NamedTuple

from jsonbus.core.limits import (
    DIFFERENCE_GRACE_S,
    DIFFERENCES_PENDING_MAX,
    DIGESTS_REMEMBERED,
    DIGESTS_REMEMBERED_S,
)
from jsonbus.core.wire.frames import Digest


class Difference(NamedTuple):
    """What a settled node said that did not fit."""

    sender: str
    digest: Digest | None  # None: it is not in the list at all
    sums: int | None
    is_list: bool  # a list may be answered whole, a presence without sums may not
    due_at: float


class Differences:
    """What was this node's digest lately, and what waits to be looked at again."""

    __slots__ = ("_pending", "_recent")

    def __init__(self) -> None:
        self._recent: deque[tuple[Digest, float]] = deque(maxlen=DIGESTS_REMEMBERED)
        self._pending: dict[str, Difference] = {}

    @property
    def is_empty(self) -> bool:
        return not self._pending

    def leave_behind(self, digest: Digest, now: float) -> None:
        """The list changed; this was its digest until now."""
        self._recent.append((digest, now))

    def is_behind(self, digest: Digest, now: float) -> bool:
        """Whether this node had that digest lately."""
        since = now - DIGESTS_REMEMBERED_S
        return any(old == digest and at >= since for old, at in self._recent)

    def note(
        self, sender: str, digest: Digest | None, sums: int | None, is_list: bool, now: float
    ) -> None:
        """Something did not fit; look at it again after the grace."""
        if sender in self._pending:
            due_at = self._pending[sender].due_at  # the grace began with the first
        elif len(self._pending) >= DIFFERENCES_PENDING_MAX:
            return  # whatever comes of those will do for this one
        else:
            due_at = now + DIFFERENCE_GRACE_S
        self._pending[sender] = Difference(sender, digest, sums, is_list, due_at)

    def forget(self, sender: str) -> None:
        self._pending.pop(sender, None)

    def clear(self) -> None:
        self._pending.clear()

    def timer_at(self) -> float:
        if not self._pending:
            return math.inf
        return min(difference.due_at for difference in self._pending.values())

    def take_due(self, due: float) -> list[Difference]:
        ripe = [difference for difference in self._pending.values() if difference.due_at <= due]
        for difference in ripe:
            del self._pending[difference.sender]
        return ripe
