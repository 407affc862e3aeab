"""Streams with a hand-held clock, and all that comes of them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TypeVar

from jsonbus.core.reliable.gaps import Key, Stream
from jsonbus.core.reliable.streams import IN_TURN, REFUSED, Nak, Streams

T = TypeVar("T")

NOW = 1000.0
KEY = ("n", 7, "a")


def find_or_open(streams: Streams[T], key: Key, sequence: int, now: float) -> Stream[T]:
    """The stream, which begins at that sequence if there is none yet."""
    return streams.by_key.get(key) or streams.open(key, sequence, now)


class Receiver:
    """One subscriber, mostly of one stream."""

    def __init__(self, subscribers: int = 1, seed: int = 1) -> None:
        self.streams: Streams[int] = Streams(lambda: subscribers, random.Random(seed))
        self.now = NOW
        self.delivered: list[int] = []
        self.refused = 0
        self.naks: list[tuple[float, list[tuple[int, int]]]] = []
        self.gaps: list[tuple[float, int, int]] = []

    def receive(self, *sequences: int, key: tuple[str, int, str] = KEY, size: int = 1) -> None:
        for sequence in sequences:
            stream = find_or_open(self.streams, key, sequence, self.now)
            outcome = self.streams.receive(stream, sequence, sequence, size, self.now)
            if outcome is IN_TURN:
                self.delivered.append(sequence)
            self.refused += outcome is REFUSED
            self.collect()

    def beat(self, last: int, first: int) -> None:
        stream = find_or_open(self.streams, KEY, last + 1, self.now)
        self.streams.hear_beat(stream, last, first, self.now)
        self.collect()

    def run(self, seconds: float) -> None:
        end = self.now + seconds
        while (at := self.streams.timer_at()) <= end:
            self.now = max(self.now, at)
            naks = self.streams.handle_timer(self.now)
            self.collect(naks)
        self.now = end

    def collect(self, naks: Sequence[Nak] = ()) -> None:
        self.delivered += self.streams.take_ready()
        at = round(self.now - NOW, 6)
        for nak in naks:
            assert (nak.node, nak.incarnation) == KEY[:2]
            for _, ranges, _ in nak.topics:
                self.naks.append((at, ranges))
        self.gaps += [(at, gap.first, gap.last) for gap in self.streams.take_lost()]
