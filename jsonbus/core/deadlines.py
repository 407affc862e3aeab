"""Many deadlines, one timer: what is due next, without looking at all of them.

A heap with one valid entry per item. Putting a deadline off, which happens with every message, only
notes the new instant: the entry in the heap comes up too early once, and is put back where it
belongs. Bringing a deadline forward adds an entry; the late one is recognised when it comes up.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Hashable
from typing import Generic, TypeVar

T = TypeVar("T", bound=Hashable)


class Deadlines(Generic[T]):
    """One instant per item."""

    __slots__ = ("_at", "_heap", "_queued", "_serial")

    def __init__(self) -> None:
        self._at: dict[T, float] = {}
        self._queued: dict[T, float] = {}  # where the item's valid entry stands
        self._heap: list[tuple[float, int, T]] = []
        self._serial = 0  # items need no order of their own

    def __len__(self) -> int:
        return len(self._at)

    def __contains__(self, item: T) -> bool:
        return item in self._at

    def set(self, item: T, at: float) -> None:
        self._at[item] = at
        if at < self._queued.get(item, math.inf):
            self._queued[item] = at
            self._serial += 1
            heapq.heappush(self._heap, (at, self._serial, item))

    def bring_forward(self, item: T, at: float) -> None:
        """Set the deadline, unless it is earlier already."""
        if at < self._at.get(item, math.inf):
            self.set(item, at)

    def remove(self, item: T) -> None:
        """Its entry stays until it comes up, and serves again if a deadline is set before."""
        self._at.pop(item, None)

    def next_at(self) -> float:
        """The earliest deadline, or infinity."""
        heap = self._heap
        while heap:
            queued_at, _, item = heap[0]
            is_valid = self._queued.get(item) == queued_at
            at = self._at.get(item)
            if is_valid and at == queued_at:
                return at
            heapq.heappop(heap)
            if is_valid:
                del self._queued[item]
                if at is not None:
                    self.set(item, at)
        return math.inf

    def pop(self, due: float) -> T | None:
        """One whose deadline is not after `due`, earliest first; it is removed."""
        heap = self._heap
        # A deadline is never before its entry in the heap: often one look is enough.
        if not heap or heap[0][0] > due or self.next_at() > due:
            return None
        item = heapq.heappop(self._heap)[2]
        del self._at[item], self._queued[item]
        return item
