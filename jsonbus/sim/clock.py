"""Time that moves only when told, and the events that wait for it.

An event is a tuple (instant, order, handler, argument) in one heap. The order is the number of
the event, so that equal instants run in the order of their making and nothing beyond it is ever
compared: the same seed gives the same run, to the last event. A handler is one bound method for
many events and its argument a plain object, since a closure per event would cost more than the
heap itself.

A handler that has a sorted series of things to do (a multicast datagram that arrives at ten
thousand receivers) does not put each of them into the heap. It asks `advance` whether the next
one may happen now, and goes back into the heap only where something else is due first.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Any

Handler = Callable[[Any], None]


class Clock:
    """The virtual time, in seconds from 0, and the events that wait for it."""

    __slots__ = ("_heap", "_order", "_until", "now")

    def __init__(self) -> None:
        self.now = 0.0
        self._heap: list[tuple[float, int, Handler, Any]] = []
        self._order = 0
        self._until = 0.0

    def __len__(self) -> int:
        """Number of waiting events."""
        return len(self._heap)

    def call_at(self, at: float, handler: Handler, argument: Any = None) -> None:
        """Call `handler(argument)` at `at`; overdue events are called next."""
        self._order += 1
        heapq.heappush(self._heap, (max(at, self.now), self._order, handler, argument))

    def advance(self, at: float) -> bool:
        """Move to `at` and return True; if something else is due first, return False and do not
        move.
        """
        if at > self._until or (self._heap and self._heap[0][0] <= at):
            return False
        self.now = at
        return True

    def run_until(self, until: float) -> None:
        """Run everything that is due at `until` or before, and end at `until`."""
        assert until >= self.now, "time does not go back"
        self._until = until
        heap = self._heap
        while heap and heap[0][0] <= until:
            self.now, _, handler, argument = heapq.heappop(heap)
            handler(argument)
        self.now = until

    def run_next(self, until: float) -> bool:
        """Run only the next event; return False if none is due at `until` or before.

        For callers that examine the world after each event.
        """
        heap = self._heap
        if not heap or heap[0][0] > until:
            return False
        self._until = -1.0  # so that `advance` lets a series go one step at a time
        self.now, _, handler, argument = heapq.heappop(heap)
        handler(argument)
        return True
