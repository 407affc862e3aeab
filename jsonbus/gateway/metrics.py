"""The gateway's figures for Prometheus."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from prometheus_client import CollectorRegistry
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector

from .endpoint import BUCKETS_S, Tally

CONTENT_TYPE = CONTENT_TYPE_LATEST.encode()

#: Figures of parts, by part: {"hub": {"messages_published": 3, …}, "bus": {…}, …}.
Stats = Callable[[], Mapping[str, Mapping[str, int]]]

#: Figures that go up and down; all others only grow.
GAUGES = frozenset(
    """
    clients patterns commands_waiting lines_waiting backlog_bytes
    streams events_waiting
    subscribers subscriptions patterns_wanted backlog
    delivering messages_storing bodies_bytes connections_kept connections_open is_failing
    messages_lost messages_kept_for_repair messages_waiting_for_repair messages_waiting_to_be_sure
    lookers pages pages_seen sessions
    nodes_known values_retained receive_buffer_asked_bytes receive_buffer_obtained_bytes
    """.split()
)


class Metrics:
    """Writes the figures down, in a registry of its own: what else a process counts stays out."""

    def __init__(self, stats: Stats, tallies: Mapping[str, Tally]) -> None:
        self._registry = CollectorRegistry()
        self._registry.register(_GatewayCollector(stats, tallies))

    def expose(self) -> bytes:
        """All figures in Prometheus' text format."""
        return generate_latest(self._registry)


class _GatewayCollector(Collector):
    def __init__(self, stats: Stats, tallies: Mapping[str, Tally]) -> None:
        self._stats = stats
        self._tallies = tallies

    def describe(self) -> Iterator[Metric]:
        """Nothing: the registry would otherwise collect once, before the gateway runs."""
        return iter(())

    def collect(self) -> Iterator[Metric]:
        for part, figures in self._stats().items():
            prefix = "jsonbus_bus" if part == "bus" else f"jsonbus_gateway_{part}"
            owner = "the gateway's node on the bus" if part == "bus" else f"the gateway's {part}"
            for name, value in figures.items():
                kind = GaugeMetricFamily if name in GAUGES else CounterMetricFamily
                text = f"{name.replace('_', ' ')} of {owner}"
                yield kind(f"{prefix}_{name}", text, value=value)
        yield from self._collect_requests()

    def _collect_requests(self) -> Iterator[Metric]:
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
        for route, tally in self._tallies.items():
            for status, count in tally.answers.items():
                answers.add_metric([route, str(status)], count)
            seconds.add_metric([route], _cumulate(tally), tally.seconds)
        yield answers
        yield seconds


def _cumulate(tally: Tally) -> list[tuple[str, float]]:
    rows = []
    total = 0
    for bound, count in zip((*map(str, BUCKETS_S), "+Inf"), tally.buckets, strict=True):
        total += count
        rows.append((bound, float(total)))
    return rows
