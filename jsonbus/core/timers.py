"""Waiting times: suppression delays, the brake and Trickle; and many deadlines with one timer.

Many nodes learn at the same instant that somebody should speak. Each draws a delay; the first to
speak is heard by the others, which then stay silent. A uniform draw among N nodes gives about
N·d/T answers where d is the network's delay and T the longest delay: hundreds, for thousands of
nodes. So the draw is exponential (Nonnenmacher and Biersack): most delays are near T, few are
short, and the expected number of answers hardly grows with N.
"""

from __future__ import annotations

import heapq
import math
import random
from collections.abc import Hashable
from typing import Generic, TypeVar

from jsonbus.core.limits import (
    SHARE_DELAY_MAX_S,
    SHARE_UNIFORM_NODES,
    TRICKLE_MAX_S,
    TRICKLE_MIN_S,
)

T = TypeVar("T", bound=Hashable)


def suppression_delay_s(longest_s: float, known_nodes: int, u: float) -> float:
    """Return the delay, up to the longest, for a uniform draw `u` of [0, 1) among
    `known_nodes`.
    """
    if known_nodes <= SHARE_UNIFORM_NODES:
        return longest_s * u
    rate = math.log(known_nodes / SHARE_UNIFORM_NODES)
    return longest_s / rate * math.log1p(u * math.expm1(rate))


def share_delay_s(known_nodes: int, u: float) -> float:
    """Return how long a node waits before it shares its list."""
    return suppression_delay_s(SHARE_DELAY_MAX_S, known_nodes, u)


class Brake:
    """Doubles the wait each time, until it is released.

    A difference between two nodes usually disappears after one exchange. If it stays (a full list,
    a node of a later version), they must not repeat themselves as fast as they can.
    """

    __slots__ = ("_first_s", "_free_at", "_stepped_at", "_wait_s")

    def __init__(self, first_s: float) -> None:
        self._first_s = first_s
        self._wait_s = first_s
        self._free_at = -math.inf
        self._stepped_at = -math.inf

    @property
    def is_free(self) -> bool:
        return self._free_at == -math.inf

    def at(self, wanted_at: float) -> float:
        """Return the instant, or a later one if it is too soon after the last time."""
        return max(wanted_at, self._free_at)

    def step(self, now: float, longest_s: float) -> None:
        """Note that it was done once more; the next wait is at most the longest."""
        self._stepped_at = now
        self._free_at = now + self._wait_s
        self._wait_s = min(2 * self._wait_s, longest_s)

    def release(self, now: float) -> None:
        """Reset the wait once nothing was done for four times the wait.

        Not at once: of two groups that differ, each agrees within itself, not with the other.
        """
        if now - self._stepped_at > 4 * self._wait_s:
            self._wait_s = self._first_s
            self._free_at = -math.inf


class Trickle:
    """RFC 6206 with k = 1: speak once per interval unless another node said the same.

    The interval doubles while all nodes agree and falls back to its minimum when one does not.
    """

    __slots__ = ("_begun_at", "_rng", "_speak_at", "_was_heard", "interval_s")

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self.interval_s = TRICKLE_MIN_S
        self._was_heard = False
        self._begun_at = math.inf
        self._speak_at = math.inf

    @property
    def is_running(self) -> bool:
        return self._begun_at != math.inf

    @property
    def is_eager(self) -> bool:
        """True if a mismatch was seen recently."""
        return self.interval_s <= TRICKLE_MIN_S

    def start(self, now: float, interval_s: float = TRICKLE_MIN_S) -> None:
        self.interval_s = interval_s
        self._begin(now)

    def stop(self) -> None:
        self._speak_at = self._begun_at = math.inf

    def hear_agreement(self) -> None:
        self._was_heard = True

    def hear_mismatch(self, now: float) -> None:
        """Start again with the shortest interval, unless it is already running."""
        if self.is_running and self.interval_s > TRICKLE_MIN_S:
            self.start(now)

    def timer_at(self) -> float:
        return self._speak_at if self._speak_at != math.inf else self._begun_at + self.interval_s

    def expire(self, now: float) -> bool:
        """Return whether to speak now. Call it at `timer_at`."""
        if self._speak_at != math.inf:
            self._speak_at = math.inf
            return not self._was_heard
        self.interval_s = min(2 * self.interval_s, TRICKLE_MAX_S)
        self._begin(now)
        return False

    def _begin(self, now: float) -> None:
        self._begun_at = now
        self._was_heard = False
        self._speak_at = now + self.interval_s * (0.5 + 0.5 * self._rng.random())


class Deadlines(Generic[T]):
    """One deadline per item; finds the next one without looking at all of them.

    A heap holds one valid entry per item. Postponing a deadline, which happens with every message,
    only notes the new instant: the entry in the heap comes up too early once and is put back at the
    right place. Bringing a deadline forward adds an entry; the late one is recognized when it comes
    up.
    """

    __slots__ = ("_at", "_heap", "_queued", "_serial")

    def __init__(self) -> None:
        self._at: dict[T, float] = {}
        self._queued: dict[T, float] = {}  # the instant of the item's valid entry
        self._heap: list[tuple[float, int, T]] = []
        self._serial = 0  # breaks ties: items need not be comparable

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
