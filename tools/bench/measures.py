"""Measures with their floors and targets, and one sample of a measure."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
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


#: With offload last: the kernel cuts and joins runs of datagrams there.
BATCHED = ("raw-1400", "raw-8k", "raw-8k-offload")
LAN_BATCHED = ("raw-1400", "raw-1400-offload")
#: Like is compared with like: a bus held to 1,400 bytes with such a floor, and one that chooses the
#: size of its datagrams with the cheapest size there is.
LOOPBACK = "raw-8k"

#: What begins the names of measures that were taken between hosts (network.py).
LAN = "lan-"

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
        ("raw-slices", "raw-slices-offload"),
        {"jsonbus": Target(0.7), "jsonbus-1400": Target(0.7)},
    ),
    "reliable": Measure(
        "CPU per reliable message, 74-byte values, flood, nothing lost",
        "µs",
        ("jsonbus",),
        target=Target(3.0),
    ),
    "latency-p50": Measure(
        "one way at 1,000 messages/s, median",
        "µs",
        ("raw",),
        {"jsonbus": Target(1.3), "jsonbus-aio": Target(1.6)},
    ),
    "latency-p99": Measure(
        "one way at 1,000 messages/s, 99th percentile",
        "µs",
        ("raw",),
        {"jsonbus": Target(1.3), "jsonbus-aio": Target(1.6)},
    ),
    "calm": Measure(
        "CPU per message at 1,000 messages/s", "µs", ("raw",), {"jsonbus": Target(1.5)}
    ),
    "calls": Measure(
        "system calls of a subscriber per message at 1,000 messages/s",
        "calls",
        ("raw",),
        targets={"jsonbus": Target(2.2, is_ratio=False)},
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
        {"jsonbus": Target(1.5)},
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
    "sealed": Measure(
        "CPU per message, 74-byte values, flood, sealed beside open",
        "µs",
        ("jsonbus",),
        target=Target(1.15),
    ),
    "sealed-p50": Measure(
        "one way at 1,000 messages/s, median, sealed beside open",
        "µs",
        ("jsonbus",),
        target=Target(1.1),
    ),
    "sealed-p99": Measure(
        "one way at 1,000 messages/s, 99th percentile, sealed beside open", "µs", ("jsonbus",)
    ),
    "forged": Measure(
        "CPU per forged datagram of 200 and of 1,400 bytes, beyond receiving it",
        "µs",
        target=Target(3.0, is_ratio=False),
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
    "subscribe-core": Measure(
        "CPU per subscription of the core, by their number",
        "µs",
        target=Target(10.0, is_ratio=False),
    ),
    "subscribe-at-once": Measure(
        "the same, all in one call", "µs", target=Target(10.0, is_ratio=False)
    ),
    "subscribe-bus": Measure("CPU per `Bus.subscribe`, by their number", "µs"),
    "buses-threads": Measure(
        "until all `Bus` objects of a process are sure", "s", target=Target(5.0, is_ratio=False)
    ),
    "buses-tasks": Measure(
        "until all `AsyncBus` objects of a loop are sure", "s", target=Target(5.0, is_ratio=False)
    ),
    "growth-idle": Measure(
        "CPU per second of an idle node by the number of nodes",
        "ms",
        target=Target(1.5, is_ratio=False),
    ),
}

#: Between hosts, a bus and its floors send datagrams of 1,400 bytes.
_LAN_TARGETS: dict[str, tuple[tuple[str, ...], dict[str, Target]]] = {
    "flood": (LAN_BATCHED, {"jsonbus": Target(1.0)}),
    "fanout": (LAN_BATCHED, {"jsonbus": Target(1.3)}),
    "rate": (LAN_BATCHED, {"jsonbus": Target(0.9, is_at_least=True, floor=LAN_BATCHED[-1])}),
}

#: Measures that are taken on every network.
NETWORKED = (
    *("flood", "fanout", "reliable", "large-1k", "large-16k", "large-1m"),
    *("latency-p50", "latency-p99", "calm", "calls", "unwanted", "rate"),
    *("sealed", "sealed-p50", "sealed-p99"),
)


def _between_hosts(name: str) -> Measure:
    measure = MEASURES[name]
    floors, targets = _LAN_TARGETS.get(name, (measure.floors, measure.targets))
    return replace(measure, title=f"between hosts: {measure.title}", floors=floors, targets=targets)


MEASURES = {**{f"{LAN}{name}": _between_hosts(name) for name in NETWORKED}, **MEASURES}
