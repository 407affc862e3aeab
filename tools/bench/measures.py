"""Measures with their floors and targets, and one sample of a measure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Target:
    """A bound for a value, or for its ratio to the floor of the same run."""

    limit: float
    is_ratio: bool = True
    is_at_least: bool = False
    floor: str | None = None  # None: the measure's first

    def is_met_by(self, figure: float) -> bool:
        return figure >= self.limit if self.is_at_least else figure <= self.limit

    def __str__(self) -> str:
        sign = "≥" if self.is_at_least else "≤"
        return f"{sign} {self.limit:g}{' ×' if self.is_ratio else ''}"


@dataclass(frozen=True, slots=True)
class Measure:
    """One table of the report. Its rows are systems, or sizes, or cases."""

    title: str
    unit: str
    #: Rows that the others are compared with.
    floors: tuple[str, ...] = ()
    targets: dict[str, Target] = field(default_factory=dict)
    #: For every row but the floors.
    target: Target | None = None

    def target_of(self, row: str) -> Target | None:
        return self.targets.get(row, None if row in self.floors else self.target)


@dataclass(frozen=True, slots=True)
class Sample:
    """One measurement: a figure, and whatever else is worth showing (`wall_us`, `received`, …)."""

    measure: str
    row: str
    value: float
    extra: dict[str, Any] = field(default_factory=dict)


BATCHED = ("raw-1400", "raw-8k", "raw-60k")
#: Like is compared with like: a bus held to 1,400 bytes with such a floor, and one that chooses the
#: size of its datagrams with the cheapest size there is.
LOOPBACK = "raw-8k"

#: Names of rows: the floors of bus/floor.py, jsonbus with threads and with asyncio, and peers.
MEASURES: dict[str, Measure] = {
    "flood": Measure(
        "CPU per message, 74-byte values, flood, one subscriber",
        "µs",
        BATCHED,
        {
            "jsonbus": Target(2.0, floor=LOOPBACK),
            "jsonbus-1400": Target(2.0),
            "jsonbus-aio": Target(2.5, floor=LOOPBACK),
        },
    ),
    "fanout": Measure(
        "CPU per delivery, 74-byte values, flood, many subscribers",
        "µs",
        BATCHED,
        {"jsonbus": Target(2.0, floor=LOOPBACK), "jsonbus-1400": Target(2.0)},
    ),
    "large-1k": Measure(
        "CPU per message, 1 KB values, flood, one subscriber",
        "µs",
        ("raw",),
        {"jsonbus": Target(1.5), "jsonbus-1400": Target(1.5)},
    ),
    "large-16k": Measure(
        "CPU per message, 16 KB values, flood, one subscriber",
        "µs",
        ("raw",),
        {"jsonbus": Target(1.5), "jsonbus-1400": Target(1.5)},
    ),
    "large-1m": Measure(
        "CPU per message, 1 MB values in datagrams of 1,400 bytes, one subscriber",
        "µs",
        ("raw-slices",),
        {"jsonbus-1400": Target(1.5)},
    ),
    "latency-p50": Measure(
        "one way at 1,000 messages/s, median", "µs", ("raw",), {"jsonbus": Target(1.3)}
    ),
    "latency-p99": Measure(
        "one way at 1,000 messages/s, 99th percentile", "µs", ("raw",), {"jsonbus": Target(1.3)}
    ),
    "busy-p50": Measure(
        "one way beside a main thread that computes, 1,000 messages/s, median", "µs", ("raw",)
    ),
    "busy-p99": Measure(
        "one way beside a main thread that computes, 1,000 messages/s, 99th percentile",
        "µs",
        ("raw",),
    ),
    "suppressed": Measure(
        "publish to a topic nobody wants, CPU per call",
        "µs",
        targets={"jsonbus": Target(0.5, is_ratio=False)},
    ),
    "unwanted": Measure(
        "receiver's CPU per 1.6 KB message it does not want",
        "µs",
        ("bare-recv",),
        {"jsonbus": Target(1.2)},
    ),
    "start": Measure(
        "CPU to import jsonbus and open a bus",
        "ms",
        targets={"import and open": Target(150.0, is_ratio=False)},
    ),
    "rate": Measure(
        "highest rate without loss",
        "messages/s",
        BATCHED,
        {
            "jsonbus": Target(0.8, is_at_least=True, floor=LOOPBACK),
            "jsonbus-1400": Target(0.8, is_at_least=True),
        },
    ),
    "losses": Measure(
        "losses that nobody counted, jsonbus", "messages", target=Target(0.0, is_ratio=False)
    ),
    "memory": Measure(
        "memory of a subscriber, resident",
        "MB",
        targets={"at the end": Target(40.0, is_ratio=False), "growth": Target(1.0, is_ratio=False)},
    ),
    "memory-curve": Measure("memory of a subscriber by messages received", "MB"),
    "growth-topics": Measure(
        "CPU per publish by the number of topics", "µs", ("1",), target=Target(2.0)
    ),
    "growth-nodes": Measure(
        "CPU per publish by the number of known nodes", "µs", ("1",), target=Target(2.0)
    ),
    "growth-receive": Measure(
        "CPU per received message by the number of topics", "µs", ("1",), target=Target(2.0)
    ),
    "growth-idle": Measure(
        "CPU per second of an idle node by the number of nodes",
        "ms",
        target=Target(1.5, is_ratio=False),
    ),
}
