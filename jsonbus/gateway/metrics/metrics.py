"""Metrics: writes all figures in Prometheus' text format."""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from itertools import accumulate

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector

from .help_texts import help_text

CONTENT_TYPE = CONTENT_TYPE_LATEST.encode()

#: Figures of parts, by part: {"hub": {"messages_published": 3, …}, "bus": {…}, …}.
Stats = Callable[[], Mapping[str, Mapping[str, int]]]

#: Returns the figures of the whole bus: `MetricsObserver.scrape`.
Observe = Callable[[], Awaitable[Sequence[Metric]]]

#: Figures that go up and down; all others only grow.
GAUGES = frozenset(
    """
    clients patterns commands_waiting lines_waiting backlog_bytes
    streams events_waiting
    subscribers subscriptions patterns_wanted backlog
    delivering messages_storing bodies_bytes connections_kept connections_open is_failing
    messages_lost messages_kept_for_repair messages_waiting_for_repair messages_waiting_to_be_sure
    nodes_known values_retained receive_buffer_asked_bytes receive_buffer_obtained_bytes
    interfaces_up tls_handshakes_waiting
    lookers known left_out pages pages_seen sessions
    """.split()
)

#: Gauges that were once exposed as counters, with a `_total`. Names stay: they are exposed as both.
MISNAMED = frozenset({"channels_open"})


#: Upper bounds of the histogram of durations, in seconds.
BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_BOUNDS = (*map(str, BUCKETS_S), "+Inf")


class Tally:
    """Figures of one route: answers by status, and how long they took."""

    __slots__ = ("answers", "buckets", "seconds")

    def __init__(self) -> None:
        self.answers: Counter[int] = Counter()
        self.buckets = [0] * (len(BUCKETS_S) + 1)
        self.seconds = 0.0

    def note(self, status: int, seconds: float) -> None:
        self.answers[status] += 1
        self.buckets[bisect_left(BUCKETS_S, seconds)] += 1
        self.seconds += seconds


class Metrics:
    """Writes the figures of one gateway; other metrics of the process stay out."""

    def __init__(
        self, stats: Stats, tallies: Mapping[str, Tally], observe: Observe | None = None
    ) -> None:
        self._stats = stats
        self._tallies = tallies
        self._observe = observe

    async def expose(self) -> bytes:
        """Return all figures in Prometheus' text format."""
        families = [] if self._observe is None else await self._observe()
        # Collected here, where nothing changes meanwhile; written in a thread, since that takes
        # 20 ms on a large bus, and clients should not wait for it.
        metrics = [*_collect_parts(self._stats()), *_collect_requests(self._tallies), *families]
        return await asyncio.to_thread(generate_latest, _Collected(metrics))


class _Collected(Collector):
    """Metrics that are already collected."""

    def __init__(self, metrics: list[Metric]) -> None:
        self._metrics = metrics

    def collect(self) -> list[Metric]:
        return self._metrics


def _collect_parts(stats: Mapping[str, Mapping[str, int]]) -> Iterator[Metric]:
    for part, figures in stats.items():
        prefix = "jsonbus_bus" if part == "bus" else f"jsonbus_gateway_{part}"
        for name, value in figures.items():
            kind = GaugeMetricFamily if name in GAUGES else CounterMetricFamily
            text = help_text(part, name)
            yield kind(f"{prefix}_{name}", text, value=value)
            if name in MISNAMED:
                yield GaugeMetricFamily(f"{prefix}_{name}", text, value=value)


def _collect_requests(tallies: Mapping[str, Tally]) -> Iterator[Metric]:
    answers = CounterMetricFamily(
        "jsonbus_gateway_http_answers",
        "answers to HTTP requests, by route and status",
        labels=["route", "status"],
    )
    seconds = HistogramMetricFamily(
        "jsonbus_gateway_http_seconds",
        "how long HTTP requests took until their answer was known",
        labels=["route"],
    )
    for route, tally in tallies.items():
        for status, count in tally.answers.items():
            answers.add_metric([route, str(status)], count)
        counts = map(float, accumulate(tally.buckets))
        seconds.add_metric([route], list(zip(_BOUNDS, counts, strict=True)), tally.seconds)
    yield answers
    yield seconds
