"""Many deadlines behind one timer: finds the next one without looking at all of them.

A heap holds one valid entry per item. Postponing a deadline, which happens with every message, only
notes the new instant: the entry in the heap comes up too early once and is put back at the right
place. Bringing a deadline forward adds an entry; the late one is recognised when it comes up.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Hashable
from typing import Generic, TypeVar

T = TypeVar("T", bound=Hashable)


class Deadlines(Generic[T]):
    """One deadline per item."""

    __slots__ = ("_at", "_heap", "_queued", "_serial")

    def __init__(self) -> None:
        self._at: dict[T, float] = {}
        self._queued: dict[T, float] = {}  # the instant of the item's valid entry
        self._heap: list[tuple[float, int, T]] = []
        self._serial = 0  # breaks ties: items need not be comparable

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
        """Remove the item. Its heap entry stays and is reused if a deadline is set before it
        comes up.
        """
        self._at.pop(item, None)

    def next_at(self) -> float:
        """Return the earliest deadline, or infinity."""
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
        """Remove and return the item with the earliest deadline not after `due`."""
        heap = self._heap
        # A deadline is never before its heap entry, so one look at the heap is often enough.
        if not heap or heap[0][0] > due or self.next_at() > due:
            return None
        item = heapq.heappop(self._heap)[2]
        del self._at[item], self._queued[item]
        return item
