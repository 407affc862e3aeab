"""Measures how regularly a topic's messages come, and how large they are.

Intervals are taken between messages of one publisher, in the order of its sequence and by its own
clock (`sent_at`): so neither the jitter of the network nor a second publisher disturbs them.
Messages of one datagram share `sent_at`, so the time between them is 0. A plain sender has no
sequence: its messages count in the order and at the time of their arrival.

A message that comes late takes its place among the last ones, and the interval that it falls into
becomes two. `window` covers the last messages of each publisher. `total` runs from the beginning
and cannot correct intervals: a late message is counted there, but not in its intervals.

Threads: one takes messages while another looks; IntervalTable has a lock for that.
"""

from __future__ import annotations

import math
import threading
from array import array
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import jsonbus

from .topic import size_of

#: Default length of a window, in messages of one publisher: 24 KB.
WINDOW_MESSAGES = 1_000

#: Publishers of one topic; the one that was silent longest makes room for another.
PUBLISHERS_MAX = 64

#: Topics that are remembered by default: with full windows, 60 MB.
TOPICS_MAX = 2_000


class Spread(NamedTuple):
    """Statistics of some values; all 0 if there are none."""

    number: int
    mean: float
    #: The standard deviation; of intervals, people call it jitter.
    deviation: float
    least: float
    most: float


class IntervalView(NamedTuple):
    """One topic at one moment."""

    #: Messages since the beginning; duplicates are not counted.
    messages: int
    duplicates: int
    late: int
    #: Messages per second in the window by the publishers' clocks, summed over the publishers; one
    #: that has stopped no longer counts.
    rate: float
    #: Messages per second that these publishers send under all their topics, by their sequence:
    #: lost messages count, too.
    publisher_rate: float
    #: Ids of the publishers, in the order in which they were first heard.
    publishers: tuple[str, ...]
    #: Seconds between messages: in the window, and since the beginning.
    intervals: Spread
    intervals_total: Spread
    #: Bytes of values as compact JSON, likewise.
    sizes: Spread
    sizes_total: Spread
    #: Since the beginning.
    bytes: int
    #: Bytes per second in the window: the rate times the mean size.
    bytes_per_s: float
    #: When the last message came, seconds since 1970.
    last_at: float


@dataclass(slots=True)
class Running:
    """A spread of values that are not kept (Welford's method)."""

    count: int = 0
    mean: float = 0.0
    squares: float = 0.0
    least: float = math.inf
    most: float = -math.inf

    def add(self, value: float) -> None:
        self.count += 1
        change = value - self.mean
        self.mean += change / self.count
        self.squares += change * (value - self.mean)
        if value < self.least:
            self.least = value
        if value > self.most:
            self.most = value

    def spread(self) -> Spread:
        if not self.count:
            return _NOTHING
        deviation = math.sqrt(max(0.0, self.squares) / self.count)
        return Spread(self.count, self.mean, deviation, self.least, self.most)


class Intervals:
    """Statistics of one topic's messages. For one thread at a time."""

    def __init__(self, window: int = WINDOW_MESSAGES) -> None:
        self._window = max(2, window)
        self._publishers: dict[str, _Publisher] = {}
        self._messages = 0
        self._duplicates = 0
        self._late = 0
        self._bytes = 0
        #: When the last message came, seconds since 1970.
        self.last_at = 0.0
        self._intervals = Running()
        self._sizes = Running()

    def take(self, message: jsonbus.Message) -> None:
        """Count a message, unless it is a retained one, which is of the past."""
        origin = message.origin
        if origin.is_retained:
            return
        publisher = self._publishers.get(origin.node)
        if publisher is None or publisher.incarnation != origin.incarnation:
            publisher = self._add(origin)
        sequence = message.sequence
        if sequence is None:
            sequence = publisher.next_sequence()
        size = size_of(message.value)
        place = publisher.put(sequence, origin.sent_at, size)
        if place == _DUPLICATE:
            self._duplicates += 1
            return
        publisher.heard_at = self.last_at = origin.received_at
        self._messages += 1
        self._bytes += size
        self._sizes.add(size)
        if place == _LATE:
            self._late += 1
        elif publisher.interval is not None:
            self._intervals.add(publisher.interval)

    def view(self, now: float) -> IntervalView:
        """Return the statistics; `now` is in seconds since 1970, like `received_at`."""
        rate = publisher_rate = bytes_per_s = 0.0
        intervals: list[float] = []
        sizes: list[int] = []
        for publisher in self._publishers.values():
            own, own_sizes = publisher.last(self._window)
            intervals += own
            sizes += own_sizes
            mean_s = sum(own) / len(own) if own else 0.0
            # Two intervals without a message, rather than one: no publisher is perfectly regular.
            if mean_s > 0 and now - publisher.heard_at <= max(2 * mean_s, 1.0):
                rate += 1 / mean_s
                publisher_rate += publisher.steps(self._window) / sum(own)
                bytes_per_s += sum(own_sizes) / len(own_sizes) / mean_s
        return IntervalView(
            self._messages,
            self._duplicates,
            self._late,
            rate,
            publisher_rate,
            tuple(self._publishers),
            spread_of(intervals),
            self._intervals.spread(),
            spread_of(sizes),
            self._sizes.spread(),
            self._bytes,
            bytes_per_s,
            self.last_at,
        )

    def _add(self, origin: jsonbus.Origin) -> _Publisher:
        if origin.node not in self._publishers and len(self._publishers) >= PUBLISHERS_MAX:
            silent = min(self._publishers, key=lambda node: self._publishers[node].heard_at)
            del self._publishers[silent]
        publisher = self._publishers[origin.node] = _Publisher(origin.incarnation, self._window)
        return publisher


class IntervalTable:
    """The intervals and sizes of many topics."""

    def __init__(self, window: int = WINDOW_MESSAGES, topics_max: int = TOPICS_MAX) -> None:
        #: Messages that were counted, duplicates included.
        self.taken = 0
        #: Topics that made room for others; those that were silent longest.
        self.forgotten = 0
        self._window = window
        self._topics_max = topics_max
        self._lock = threading.Lock()
        self._topics: dict[str, Intervals] = {}

    def take(self, messages: Sequence[jsonbus.Message], count_max: int | None = None) -> None:
        """Count messages in the order of their arrival, at most `count_max` in all.

        Retained messages, which are of the past, are left out.
        """
        with self._lock:
            for message in messages:
                if message.origin.is_retained:
                    continue
                if self.taken == count_max:
                    return
                self.taken += 1
                intervals = self._topics.get(message.topic)
                if intervals is None:
                    intervals = self._add(message.topic)
                intervals.take(message)

    def views(self, now: float) -> dict[str, IntervalView]:
        """Return all topics, sorted; `now` is in seconds since 1970."""
        with self._lock:
            return {name: intervals.view(now) for name, intervals in sorted(self._topics.items())}

    def _add(self, topic: str) -> Intervals:
        if len(self._topics) >= self._topics_max:
            silent = min(self._topics, key=lambda name: self._topics[name].last_at)
            del self._topics[silent]
            self.forgotten += 1
        intervals = self._topics[topic] = Intervals(self._window)
        return intervals


def spread_of(values: list[float] | list[int]) -> Spread:
    """Return the statistics of these values."""
    if not values:
        return _NOTHING
    mean = math.fsum(values) / len(values)
    squares = math.fsum((each - mean) ** 2 for each in values)
    deviation = math.sqrt(squares / len(values))
    return Spread(len(values), mean, deviation, float(min(values)), float(max(values)))


_NOTHING = Spread(0, 0.0, 0.0, 0.0, 0.0)
_NEWEST, _LATE, _DUPLICATE = range(3)


class _Publisher:
    """The last messages of one publisher, in the order of their sequence."""

    __slots__ = ("_sequences", "_sizes", "_times", "_window", "heard_at", "incarnation", "interval")

    def __init__(self, incarnation: int, window: int) -> None:
        self.incarnation = incarnation
        self.heard_at = 0.0
        #: Between the last two, if the last one was the newest and not the first.
        self.interval: float | None = None
        self._window = window
        self._sequences = array("q")
        self._times = array("d")
        self._sizes = array("q")

    def next_sequence(self) -> int:
        return self._sequences[-1] + 1 if self._sequences else 0

    def put(self, sequence: int, sent_at: float, size: int) -> int:
        """Add a message. Return _NEWEST, _LATE or _DUPLICATE."""
        sequences, times = self._sequences, self._times
        if not sequences or sequence > sequences[-1]:
            # A clock that was set back leaves no negative time between messages.
            self.interval = max(0.0, sent_at - times[-1]) if times else None
            sequences.append(sequence)
            times.append(sent_at)
            self._sizes.append(size)
            # Cut only after some have gathered: cutting moves all the others.
            if len(sequences) > self._window + self._window // 4 + 8:
                surplus = len(sequences) - self._window
                for each in (sequences, times, self._sizes):
                    del each[:surplus]
            return _NEWEST
        place = bisect_left(sequences, sequence)
        if sequences[place] == sequence:
            return _DUPLICATE
        if place > 0 or len(sequences) < self._window:
            # Else it is older than the window.
            sequences.insert(place, sequence)
            times.insert(place, sent_at)
            self._sizes.insert(place, size)
        return _LATE

    def last(self, count: int) -> tuple[list[float], list[int]]:
        """Return the intervals and sizes of the last `count` messages."""
        times = self._times[-count:].tolist()
        intervals = [max(0.0, b - a) for a, b in zip(times, times[1:], strict=False)]
        return intervals, self._sizes[-count:].tolist()

    def steps(self, count: int) -> int:
        """Return how far the sequence advanced within the last `count` messages."""
        sequences = self._sequences[-count:]
        return sequences[-1] - sequences[0] if sequences else 0
