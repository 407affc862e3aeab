"""Workloads with a publisher and subscribers of every system: floods and one-way latency.

Repetitions are interleaved, in another order each time: what else the machine does hits all alike.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from tools._setup import say
from tools.bench.arena import Arena
from tools.bench.bus.floor import BATCH_BYTES
from tools.bench.bus.run import ANSWER_S, Run, RunError, quantile
from tools.bench.bus.spec import SENSOR_BYTES
from tools.bench.measures import Sample

FLOORS = tuple(BATCH_BYTES)
OURS = ("jsonbus", "jsonbus-1400", "jsonbus-aio")
RELIABLE = "jsonbus-reliable"
LATENCY_RATE = 1_000.0
SHORT_INTERVAL_S = 0.0005
BUSY_CASES: dict[str, tuple[str, float | None]] = {
    "raw": ("raw", None),
    "raw, switch interval 0.5 ms": ("raw", SHORT_INTERVAL_S),
    "jsonbus": ("jsonbus", None),
    "jsonbus, switch interval 0.5 ms": ("jsonbus", SHORT_INTERVAL_S),
}
#: Messages before the count begins: caches fill, memory is touched for the first time.
WARM_UP = 2_000
LATENCY_WARM_UP = 200

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Plan:
    """How much of everything."""

    repetitions: int
    messages: int
    subscribers: int
    latency_messages: int
    load_s: float
    memory_messages: int
    growth_topics: tuple[int, ...]
    growth_nodes: tuple[int, ...]
    peers: tuple[str, ...]


def measure_flood(arena: Arena, plan: Plan) -> Iterator[Sample]:
    systems = (*FLOORS, *OURS, RELIABLE, *plan.peers)
    yield from _flood(arena, plan, "flood", systems, 1, SENSOR_BYTES, plan.messages)


def measure_fanout(arena: Arena, plan: Plan) -> Iterator[Sample]:
    systems = (*FLOORS, *OURS, *plan.peers)
    count = max(1, plan.messages // 4)
    say(f"fanout: {plan.subscribers} subscribers")
    yield from _flood(arena, plan, "fanout", systems, plan.subscribers, SENSOR_BYTES, count)


def measure_large(arena: Arena, plan: Plan) -> Iterator[Sample]:
    systems = ("raw", *OURS, *plan.peers)
    count = max(1, plan.messages // 4)
    yield from _flood(arena, plan, "large-1k", systems, 1, 1024, count)
    yield from _flood(arena, plan, "large-16k", systems, 1, 16 * 1024, max(1, count // 5))
    sliced = ("raw-slices", "jsonbus-1400")
    yield from _flood(arena, plan, "large-1m", sliced, 1, 1_000_000, max(1, count // 500))


def measure_latency(arena: Arena, plan: Plan) -> Iterator[Sample]:
    def measure(system: str) -> Iterable[Sample]:
        with Run(arena, system, has_stamps=True) as run:
            run.probe()
            yield from _take_delays("latency", system, run, plan.latency_messages)

    systems = ("raw", "jsonbus", "jsonbus-aio", *plan.peers)
    yield from interleave("latency", systems, plan, measure)


def measure_busy(arena: Arena, plan: Plan) -> Iterator[Sample]:
    """One way into a process whose main thread computes in pure Python."""

    def measure(case: str) -> Iterable[Sample]:
        system, interval_s = BUSY_CASES[case]
        busy = {"has_stamps": True, "is_busy": True, "switch_interval_s": interval_s}
        with Run(arena, system, **busy) as run:
            run.probe()
            yield from _take_delays("busy", case, run, plan.latency_messages)

    yield from interleave("busy", tuple(BUSY_CASES), plan, measure)


def _take_delays(measure: str, row: str, run: Run, count: int) -> Iterator[Sample]:
    _tick(run, LATENCY_WARM_UP)
    report = _tick(run, count)
    delays_us = [delay_ns / 1000 for delay_ns in report["delays_ns"]]
    extra = {"received": report["received"], "sent": count}
    yield Sample(f"{measure}-p50", row, quantile(delays_us, 0.50), extra)
    yield Sample(f"{measure}-p99", row, quantile(delays_us, 0.99), extra)


def _tick(run: Run, count: int) -> dict[str, Any]:
    """Publish at a low rate; the subscriber's report."""
    run.begin(count)
    timeout_s = ANSWER_S + 10 * count / LATENCY_RATE
    run.publisher.ask("tick", timeout_s, count=count, rate=LATENCY_RATE)
    (report,) = run.settle(count)
    return report


def _flood(
    arena: Arena,
    plan: Plan,
    measure_name: str,
    systems: Sequence[str],
    subscribers: int,
    value_bytes: int,
    count: int,
) -> Iterator[Sample]:
    def measure(system: str) -> Iterable[Sample]:
        with Run(arena, system, subscribers=subscribers, value_bytes=value_bytes) as run:
            run.probe()
            run.flood(min(WARM_UP, count))
            flood = run.flood(count)
        extra = {
            "publisher_us": 1e6 * flood.publisher_cpu_s / flood.sent,
            "subscriber_us": 1e6 * flood.subscribers_cpu_s / max(1, flood.deliveries),
            "wall_us": flood.wall_us_per_message,
            "received": flood.deliveries,
            "sent": flood.sent * subscribers,
        }
        yield Sample(measure_name, system, flood.cpu_us_per_delivery, extra)

    yield from interleave(measure_name, systems, plan, measure)


def interleave(
    name: str,
    rows: Sequence[str],
    plan: Plan,
    measure: Callable[[str], Iterable[Sample]],
) -> Iterator[Sample]:
    """Every row once per repetition. A peer that fails is left out from then on."""
    failed: set[str] = set()
    for repetition in range(plan.repetitions):
        for row in _rotate(rows, repetition):
            if row in failed:
                continue
            say(f"{name} {repetition + 1}/{plan.repetitions}: {row}")
            try:
                yield from measure(row)
            except RunError as error:
                if row not in plan.peers:
                    raise
                say(f"{row} failed and is left out: {error}")
                failed.add(row)


def _rotate(items: Sequence[T], by: int) -> list[T]:
    by %= len(items)
    return [*items[by:], *items[:by]]
