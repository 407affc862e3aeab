"""One stream: the gaps in it, and the messages that wait behind them.

Theory of operation. A *stream* is what one incarnation of a publisher sends on one topic. `top` is
one above the highest sequence known of. Sequences missing below it form *gaps*, ranges in order.
Below `next`, the first missing sequence, everything was delivered or given up. Between `next` and
`top` a sequence is in a gap, or its message waits, or it was given up while an earlier one is still
missing. Nearly always there is no gap, and `next` is `top`.

A node asks for a gap in *rounds*. In each round, a random delay after the gap is ready, it sends a
NAK, or hears that of another subscriber, which serves as well. The gap is ready again after a wait
that grows from round to round. NAKs that cross each other belong to one round: another one within
half the wait does not count.

A gap is given up after five rounds in a row without a sign of life from the publisher. A publisher
that is heard may still have the missing messages, and says so when it does not (history.py). With
such a publisher the rounds go on until the gap is older than any history.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Generic, TypeVar

from jsonbus.core.limits import (
    HISTORY_AGE_S,
    NAK_WAITS_S,
    STREAM_ASK_RANGES_MAX,
    STREAM_BYTES_MAX,
    STREAM_GAPS_MAX,
    STREAMS_AHEAD_MAX,
    STREAMS_BYTES_MAX,
)

T = TypeVar("T")

Key = tuple[str, int, str]  # node, incarnation, topic
Range = tuple[int, int]  # first and last sequence

_ROUNDS_MAX = len(NAK_WAITS_S)


@dataclass(slots=True, eq=False)
class Gap:
    """The missing sequences first … last, all asked for alike."""

    first: int
    last: int
    noticed_at: float
    ready_at: float
    asked_at: float = -math.inf
    rounds: int = 0
    silent_rounds: int = 0  # since the publisher was last heard

    def split_after(self, sequence: int) -> Gap:
        """Cut the gap off after `sequence`; return the rest. The publisher was just heard."""
        rest = replace(self, first=sequence + 1, silent_rounds=0)
        self.last = sequence
        return rest

    @property
    def wait_s(self) -> float:
        return NAK_WAITS_S[min(self.rounds, _ROUNDS_MAX) - 1]

    def count_round(self, heard_at: float, now: float) -> None:
        is_silent = heard_at <= self.asked_at
        self.silent_rounds = self.silent_rounds + 1 if is_silent else 1
        self.rounds += 1
        self.asked_at = now
        self.ready_at = now + self.wait_s


_first_of = attrgetter("first")


@dataclass(slots=True)
class Waiting:
    """How much waits behind gaps, over all streams of a node."""

    messages: int = 0
    size_bytes: int = 0


class Stream(Generic[T]):
    """See the head of this file. `waiting` is shared by all streams."""

    __slots__ = (
        "_ahead",
        "_ahead_bytes",
        "_waiting",
        "checked_at",
        "far",
        "floor",
        "gaps",
        "heard_at",
        "idle_checks",
        "key",
        "known_from",
        "top",
    )

    def __init__(self, key: Key, top: int, waiting: Waiting, now: float) -> None:
        self.key = key
        self.top = top
        self.gaps: list[Gap] = []
        self._ahead: dict[int, tuple[T, int]] = {}  # messages that wait, with their sizes
        self._ahead_bytes = 0
        self._waiting = waiting
        self.heard_at = now
        self.checked_at = now  # for idleness
        self.idle_checks = 0  # in a row, with the publisher gone
        self.far: int | None = None  # a sequence that is not believed yet
        self.floor = 0  # messages with a lower number count, but are not delivered
        self.known_from = top  # unsent messages from here on are delivered in any case

    @property
    def next(self) -> int:
        """The sequence to be delivered next."""
        return self.gaps[0].first if self.gaps else self.top

    @property
    def is_full(self) -> bool:
        return len(self.gaps) >= STREAM_GAPS_MAX

    # --- Messages --------------------------------------------------------------------------------

    def add(self, sequence: int, item: T, size_bytes: int) -> bool:
        """Let a message wait behind a gap. False: there is no room, for the gap or the message.

        A single message may wait, however large it is.
        """
        waiting = self._waiting
        if len(self.gaps) >= STREAM_GAPS_MAX:
            return False
        if self._ahead and self._ahead_bytes + size_bytes > STREAM_BYTES_MAX:
            return False
        if waiting.messages and (
            waiting.messages >= STREAMS_AHEAD_MAX
            or waiting.size_bytes + size_bytes > STREAMS_BYTES_MAX
        ):
            return False
        self._ahead[sequence] = (item, size_bytes)
        self._ahead_bytes += size_bytes
        waiting.messages += 1
        waiting.size_bytes += size_bytes
        return True

    def find(self, sequence: int) -> int:
        """The index of the gap that the sequence is in; -1 if it is not missing."""
        index = bisect_right(self.gaps, sequence, key=_first_of) - 1
        return index if index >= 0 and sequence <= self.gaps[index].last else -1

    def fill(self, index: int, sequence: int) -> None:
        """Take a sequence that has come out of the gap at that index."""
        gap = self.gaps[index]
        # The publisher answers: the rest is under way, or must be asked for soon.
        gap.rounds = min(gap.rounds, 1)
        if gap.first == gap.last:
            del self.gaps[index]
        elif sequence == gap.first:
            gap.first += 1
        elif sequence == gap.last:
            gap.last -= 1
        else:
            self.gaps.insert(index + 1, gap.split_after(sequence))
            gap.last = sequence - 1

    def release(self, start: int, ready: list[T]) -> None:
        """After gaps were closed: move messages from `start` up to the next gap to `ready`."""
        ahead = self._ahead
        if not ahead:
            return
        for sequence in range(start, self.gaps[0].first if self.gaps else self.top):
            waited = ahead.pop(sequence, None)
            if waited is not None:  # else given up
                item, size_bytes = waited
                self._ahead_bytes -= size_bytes
                self._waiting.messages -= 1
                self._waiting.size_bytes -= size_bytes
                ready.append(item)

    # --- Gaps ------------------------------------------------------------------------------------

    def cut(self, sequence: int, ready: list[T]) -> list[Range]:
        """Stop missing what is below the sequence; return it. What waited becomes ready."""
        ranges: list[Range] = []
        if self.gaps:
            start = self.gaps[0].first
            while self.gaps and self.gaps[0].first < sequence:
                gap = self.gaps[0]
                ranges.append((gap.first, min(gap.last, sequence - 1)))
                if gap.last >= sequence:
                    gap.first = sequence
                else:
                    del self.gaps[0]
            self.release(start, ready)
        if sequence > self.top:
            first = self.top
            if ranges and ranges[-1][1] + 1 == first:
                first = ranges.pop()[0]
            ranges.append((first, sequence - 1))
            self.top = sequence
        return ranges

    def postpone(self, sequence: int, until: float) -> None:
        """Do not ask for that sequence before `until`: it is on its way."""
        index = self.find(sequence)
        if index < 0:
            return
        gap = self.gaps[index]
        if sequence > gap.first and not self.is_full:
            index, gap = index + 1, gap.split_after(sequence - 1)
            self.gaps.insert(index, gap)
        if sequence < gap.last and not self.is_full:
            self.gaps.insert(index + 1, gap.split_after(sequence))
        gap.ready_at = max(gap.ready_at, until)

    def hear_nak(self, ranges: Iterable[Range], now: float) -> None:
        """Count a round for gaps that another subscriber asked for."""
        for first, last in ranges:
            index = bisect_left(self.gaps, first, key=_first_of)
            while index < len(self.gaps) and self.gaps[index].last <= last:
                gap = self.gaps[index]
                index += 1
                if now - gap.asked_at >= gap.wait_s / 2:
                    gap.count_round(self.heard_at, now)

    def ask(self, now: float, due: float) -> tuple[list[Range], list[Range]]:
        """Return what to ask for now, and what to give up, of the gaps that are ready."""
        asked: list[Range] = []
        hopeless: list[Range] = []
        for gap in tuple(self.gaps):
            if gap.ready_at > due:
                continue
            is_silent = gap.silent_rounds >= _ROUNDS_MAX and self.heard_at <= gap.asked_at
            if is_silent or now - gap.noticed_at >= HISTORY_AGE_S:
                self.gaps.remove(gap)
                hopeless.append((gap.first, gap.last))
                continue
            if len(asked) >= STREAM_ASK_RANGES_MAX:
                break
            gap.count_round(self.heard_at, now)
            if asked and asked[-1][1] + 1 == gap.first:
                asked[-1] = (asked[-1][0], gap.last)
            else:
                asked.append((gap.first, gap.last))
        return asked, hopeless
