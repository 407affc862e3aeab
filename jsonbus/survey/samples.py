"""Samples of counters, for rates over the last few seconds.

A rate is what was added since the newest sample that is old enough. Everybody who asks gets the
same, however often they ask: samples are taken at most once a second, and used by all. An observer
that asks rarely gets the rate since the last time anybody asked.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Generic, NamedTuple, TypeVar

#: Rates cover at least this long, unless the survey has just begun.
WINDOW_S = 4.0

#: Samples are at least this far apart. Each is a copy of all counters: of 10,000 topics, 1 MB.
APART_S = 1.0

#: A shorter time says nothing about a rate: a single message would look like thousands.
SPAN_S_MIN = 0.1

T = TypeVar("T")


class Sample(NamedTuple, Generic[T]):
    at: float
    number: int
    counts: T


class Samples(Generic[T]):
    """The last few samples of something."""

    def __init__(self) -> None:
        self._kept: deque[Sample[T]] = deque()
        #: Number of samples ever taken.
        self.number = 0

    def look(self, now: float, count: Callable[[], T]) -> tuple[Sample[T], bool]:
        """Return the sample to compare the counters with, and whether it was taken just now.

        The very first time, that is the present: rates are 0.
        """
        kept = self._kept
        is_due = not kept or now - kept[-1].at >= APART_S
        if is_due:
            self.number += 1
            kept.append(Sample(now, self.number, count()))
        while len(kept) > 1 and now - kept[1].at >= WINDOW_S:
            kept.popleft()
        return kept[0], is_due


def per_second(added: float, span_s: float) -> float:
    return added / span_s if span_s >= SPAN_S_MIN and added > 0 else 0.0
