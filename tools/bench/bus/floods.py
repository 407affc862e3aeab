"""Workloads with a publisher and subscribers of every system: floods, latency, load without loss.

Repetitions are interleaved, in another order each time: what else the machine does hits all alike.
The last part asks how much load goes through without loss, and whether every loss is counted.
"""

from __future__ import annotations

import statistics
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
    idle_nodes: tuple[int, ...]
    idle_s: float
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


#: Steps of the search for the highest rate: to a thirty-second of the highest there is.
BISECTIONS = 5
#: A rate is free of loss if so many tries were, and is not after as many with a loss: on a machine
#: that does other things as well, one loss in a hundred thousand messages says little.
TRIES_NEEDED = 2
#: What the publisher can do is found by as many messages as this rate would need.
RATE_FIRST = 100_000.0

#: More than any run sends: nobody waits for an expected number.
UNKNOWN = 1 << 40

CASES: dict[str, dict[str, Any]] = {
    "as fast as it goes": {},
    "receive buffer of 64 KiB": {"receive_buffer_bytes": 65_536},
    "handler of 50 µs, mailbox of 1,024": {"handler_us": 50.0, "mailbox": 1024},
    "both": {"receive_buffer_bytes": 65_536, "handler_us": 50.0, "mailbox": 1024},
}


def measure_rate(arena: Arena, plan: Plan) -> Iterator[Sample]:
    """The offered load is what a publisher can do, or less until nothing is lost."""

    def measure(system: str) -> Iterable[Sample]:
        with Run(arena, system, mailbox=1 << 20) as run:
            run.probe()
            yield Sample("rate", system, _find_highest_rate(run, plan.load_s))

    systems = (*FLOORS, "jsonbus", "jsonbus-1400")
    yield from interleave("rate", systems, plan, measure)


def measure_losses(arena: Arena, plan: Plan) -> Iterator[Sample]:
    """Sent, less handled, less what the subscriber counted as lost or dropped: nothing is left."""

    def measure(case: str) -> Iterable[Sample]:
        with Run(arena, "jsonbus", **CASES[case]) as run:
            run.probe()
            run.begin(UNKNOWN)
            run.publisher.ask("offer", 3 * ANSWER_S, count=plan.messages)
            run.settle(UNKNOWN)  # so that the goodbye finds room, and tells of the last loss
            published, (report,) = run.close()
        stats = report["stats"]
        sent, handled = published["messages_sent"], report["received_ever"]
        missing = sent - handled - stats["messages_lost"] - stats["messages_dropped"]
        extra = {
            "sent": sent,
            "received": handled,
            "lost": stats["messages_lost"],
            "dropped": stats["messages_dropped"],
            "kernel_drops": stats["kernel_drops"],
        }
        yield Sample("losses", case, abs(missing), extra)

    yield from interleave("losses", tuple(CASES), plan, measure)


@dataclass(frozen=True, slots=True)
class Offer:
    """What became of an offered load."""

    is_lossless: bool
    #: Messages per second, until the last one was handled: what only waits somewhere, in a buffer
    #: or in a mailbox, has not gone through.
    rate: float


def search_highest_rate(offer: Callable[[float], Offer], rate_max: float) -> float:
    """The highest rate that went through without loss; `offer` is given 0 for no limit."""
    best = _try_rate(offer, 0.0)
    if best is not None:
        return best  # the publisher is the limit
    best, low, high = 0.0, 0.0, rate_max
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        reached = _try_rate(offer, middle)
        if reached is None:
            high = middle
        else:
            low, best = middle, max(best, reached)
    return best


def _try_rate(offer: Callable[[float], Offer], rate: float) -> float | None:
    """The rate that was reached, or None if messages were lost in most tries."""
    reached: list[float] = []
    losses = 0
    while len(reached) < TRIES_NEEDED:
        offered = offer(rate)
        if offered.is_lossless:
            reached.append(offered.rate)
        else:
            losses += 1
            if losses == TRIES_NEEDED:
                return None
    return statistics.mean(reached)


def _find_highest_rate(run: Run, seconds: float) -> float:
    _, published_per_s = _offer(run, 0.0, max(1, int(seconds * RATE_FIRST)))

    def offer(rate: float) -> Offer:
        return _offer(run, rate, max(1, int(seconds * (rate or published_per_s))))[0]

    return search_highest_rate(offer, published_per_s)


def _offer(run: Run, rate: float, count: int) -> tuple[Offer, float]:
    """What became of it, and how many messages per second the publisher got rid of."""
    run.begin(count)
    published = run.publisher.ask("offer", 3 * ANSWER_S, count=count, rate=rate)
    sent, started_at, ended_at = (published[key] for key in ("sent", "started_at", "ended_at"))
    (report,) = run.settle(sent)
    handled_at = max(ended_at, report["ended_at"] or ended_at)
    is_lossless = report["received"] >= sent
    return Offer(is_lossless, sent / (handled_at - started_at)), sent / (ended_at - started_at)
