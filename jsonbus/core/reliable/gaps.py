"""What one stream misses, and how often it was asked for.

Theory of operation. Sequences that are missing stand in *gaps*, ranges in order. A gap is asked for
in *rounds*: when it has become ready, and some random delay later, the node sends a NAK, or hears
that of another subscriber, which is as good. Then it is ready again after a wait that grows from
round to round. NAKs that cross each other belong to one round: what comes within half the wait does
not count.

A gap is given up after five rounds in a row without a sign of life from the publisher. A publisher
that is heard may still have what is missing, and says so when it has not (core.history); so with
such a one the rounds go on until the gap is older than any history.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from operator import attrgetter

from jsonbus.core.limits import (
    GAP_WAIT_S,
    HISTORY_AGE_S,
    NAK_WAITS_S,
    STREAM_ASK_RANGES_MAX,
    STREAM_GAPS_MAX,
)

Range = tuple[int, int]  # first and last sequence

_TRIES_MAX = len(NAK_WAITS_S)


class _Gap:
    """Sequences first … last, all missing, all asked for alike."""

    __slots__ = ("asked_at", "first", "last", "noticed_at", "ready_at", "rounds", "silent_rounds")

    def __init__(self, first: int, last: int, now: float) -> None:
        self.first = first
        self.last = last
        self.noticed_at = now
        self.ready_at = now + GAP_WAIT_S
        self.asked_at = -math.inf
        self.rounds = 0
        self.silent_rounds = 0  # since the publisher was heard last

    def behind(self, sequence: int) -> _Gap:
        """The part of it behind that sequence, of which something was heard just now."""
        rest = _Gap(sequence + 1, self.last, self.noticed_at)
        rest.ready_at = self.ready_at
        rest.asked_at = self.asked_at
        rest.rounds = self.rounds
        return rest

    @property
    def wait_s(self) -> float:
        return NAK_WAITS_S[min(self.rounds, _TRIES_MAX) - 1]

    def count_round(self, heard_at: float, now: float) -> None:
        is_silent = heard_at <= self.asked_at
        self.silent_rounds = self.silent_rounds + 1 if is_silent else 1
        self.rounds += 1
        self.asked_at = now
        self.ready_at = now + self.wait_s

    def is_hopeless(self, heard_at: float, now: float) -> bool:
        if now - self.noticed_at >= HISTORY_AGE_S:
            return True
        return self.silent_rounds >= _TRIES_MAX and heard_at <= self.asked_at


_first_of = attrgetter("first")


class Gaps:
    """The gaps of one stream, in order; never empty while a stream holds on to it."""

    __slots__ = ("_gaps",)

    def __init__(self) -> None:
        self._gaps: list[_Gap] = []

    def __len__(self) -> int:
        return len(self._gaps)

    @property
    def first(self) -> int:
        """The first sequence that is missing."""
        return self._gaps[0].first

    @property
    def is_full(self) -> bool:
        return len(self._gaps) >= STREAM_GAPS_MAX

    def note(self, first: int, last: int, now: float) -> None:
        """All of that is missing, and it is behind all that was."""
        self._gaps.append(_Gap(first, last, now))

    def find(self, sequence: int) -> int:
        """Which gap that sequence is in; -1: it is not missing."""
        index = bisect_right(self._gaps, sequence, key=_first_of) - 1
        return index if index >= 0 and sequence <= self._gaps[index].last else -1

    def fill(self, index: int, sequence: int) -> None:
        """That sequence, of the gap at that place, has come."""
        gap = self._gaps[index]
        # The publisher answers: what else was asked for is under way, or must be asked for soon.
        gap.rounds = min(gap.rounds, 1)
        if gap.first == gap.last:
            del self._gaps[index]
        elif sequence == gap.first:
            gap.first += 1
        elif sequence == gap.last:
            gap.last -= 1
        else:
            self._gaps.insert(index + 1, gap.behind(sequence))
            gap.last = sequence - 1

    def cut(self, sequence: int) -> list[Range]:
        """Miss no more what is before that sequence; what that is."""
        ranges = []
        while self._gaps and self._gaps[0].first < sequence:
            gap = self._gaps[0]
            ranges.append((gap.first, min(gap.last, sequence - 1)))
            if gap.last >= sequence:
                gap.first = sequence
            else:
                del self._gaps[0]
        return ranges

    def touch(self, sequence: int, until: float) -> None:
        """Do not ask for that sequence before then: it is on its way."""
        index = self.find(sequence)
        if index < 0:
            return
        gap = self._gaps[index]
        if sequence > gap.first and not self.is_full:
            self._gaps.insert(index + 1, gap.behind(sequence - 1))
            gap.last = sequence - 1
            index, gap = index + 1, self._gaps[index + 1]
        if sequence < gap.last and not self.is_full:
            self._gaps.insert(index + 1, gap.behind(sequence))
            gap.last = sequence
        gap.ready_at = max(gap.ready_at, until)

    def hear_nak(self, ranges: Iterable[Range], heard_at: float, now: float) -> int:
        """Another subscriber asked for these; how many gaps need not be asked for now."""
        heard = 0
        for first, last in ranges:
            index = bisect_left(self._gaps, first, key=_first_of)
            while index < len(self._gaps) and self._gaps[index].last <= last:
                gap = self._gaps[index]
                index += 1
                if now - gap.asked_at >= gap.wait_s / 2:
                    gap.count_round(heard_at, now)
                    heard += 1
        return heard

    def ask(self, heard_at: float, now: float, due: float) -> tuple[list[Range], list[Range]]:
        """What to ask for now, and what to give up, of the gaps that are ready."""
        asked: list[Range] = []
        hopeless: list[_Gap] = []
        for gap in self._gaps:
            if gap.ready_at > due:
                continue
            if gap.is_hopeless(heard_at, now):
                hopeless.append(gap)
                continue
            if len(asked) >= STREAM_ASK_RANGES_MAX:
                break
            gap.count_round(heard_at, now)
            if asked and asked[-1][1] + 1 == gap.first:
                asked[-1] = (asked[-1][0], gap.last)
            else:
                asked.append((gap.first, gap.last))
        if hopeless:
            gone = set(hopeless)
            self._gaps = [gap for gap in self._gaps if gap not in gone]
        return asked, [(gap.first, gap.last) for gap in hopeless]

    def ready_at(self) -> float:
        """When the first of them may be asked for, or given up."""
        return min(gap.ready_at for gap in self._gaps)
