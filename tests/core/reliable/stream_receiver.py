"""Streams with a hand-held clock, and all that comes of them."""

from __future__ import annotations

import random

from jsonbus.core.reliable.streams import Streams

NOW = 1000.0
KEY = ("n", 7, "a")


class Receiver:
    """One subscriber, mostly of one stream."""

    def __init__(self, subscribers: int = 1, seed: int = 1) -> None:
        self.streams: Streams[int] = Streams(lambda: subscribers, random.Random(seed))
        self.now = NOW
        self.delivered: list[int] = []
        self.naks: list[tuple[float, list[tuple[int, int]]]] = []
        self.gaps: list[tuple[float, int, int]] = []

    def receive(self, *sequences: int, key: tuple[str, int, str] = KEY, size: int = 1) -> None:
        for sequence in sequences:
            if self.streams.receive(key, sequence, sequence, size, self.now):
                self.delivered.append(sequence)
            self.collect()

    def beat(self, last: int, first: int) -> None:
        self.streams.hear_beat(KEY, last, first, self.now)
        self.collect()

    def run(self, seconds: float) -> None:
        end = self.now + seconds
        while (at := self.streams.timer_at()) <= end:
            self.now = max(self.now, at)
            self.streams.handle_timer(self.now)
            self.collect()
        self.now = end

    def collect(self) -> None:
        self.delivered += self.streams.take_ready()
        at = round(self.now - NOW, 6)
        for nak in self.streams.take_naks():
            assert (nak.node, nak.incarnation) == KEY[:2]
            for _, ranges in nak.topics:
                self.naks.append((at, ranges))
        self.gaps += [(at, gap.first, gap.last) for gap in self.streams.take_gaps()]
