"""Workloads with a publisher and subscribers of every system: floods, and load without loss.

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
from tools.bench.bus.run import ANSWER_S, Run, RunError
from tools.bench.bus.spec import SENSOR_BYTES
from tools.bench.measures import Sample

OURS = ("jsonbus", "jsonbus-aio")
#: On loopback, in datagrams as on a LAN.
LAN_SIZED = "jsonbus-1400"
RELIABLE = "jsonbus-reliable"
#: Messages before the count begins: caches fill, memory is touched for the first time.
WARM_UP = 2_000

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


def floors_of(arena: Arena) -> tuple[str, ...]:
    """Batching floors, with the same means as a bus has on that network and without offload.

    On loopback, 1,400 bytes are measured too: there, a bus chooses larger datagrams.
    """
    if arena.network.is_lan:
        return "raw-1400", "raw-1400-offload"
    return "raw-1400", "raw-8k", "raw-8k-offload"


def batching(arena: Arena) -> tuple[str, ...]:
    """The floors, and jsonbus; on loopback also in datagrams as on a LAN."""
    return (*floors_of(arena), *OURS, *([] if arena.network.is_lan else [LAN_SIZED]))


def measure_flood(arena: Arena, plan: Plan) -> Iterator[Sample]:
    systems = (*batching(arena), *plan.peers)
    yield from flood(arena, plan, "flood", systems, 1, SENSOR_BYTES, plan.messages)


def measure_reliable(arena: Arena, plan: Plan) -> Iterator[Sample]:
    """On a network that loses nothing: what it costs to be ready for losses."""
    systems = ("jsonbus", RELIABLE)
    count = max(1, plan.messages // 2)
    yield from flood(arena, plan, "reliable", systems, 1, SENSOR_BYTES, count)


def measure_fanout(arena: Arena, plan: Plan) -> Iterator[Sample]:
    systems = (*batching(arena), *plan.peers)
    count = max(1, plan.messages // 4)
    say(f"fanout: {plan.subscribers} subscribers")
    yield from flood(arena, plan, "fanout", systems, plan.subscribers, SENSOR_BYTES, count)


def measure_large(arena: Arena, plan: Plan) -> Iterator[Sample]:
    count = max(1, plan.messages // 4)
    systems = ("raw", *OURS, *plan.peers)
    yield from flood(arena, plan, "large-1k", systems, 1, 1024, count)
    if not arena.network.is_lan:  # there, a floor of one datagram would be cut by IP
        yield from flood(arena, plan, "large-16k", systems, 1, 16 * 1024, max(1, count // 5))
    sliced = ("raw-slices", "raw-slices-offload", "jsonbus" if arena.network.is_lan else LAN_SIZED)
    yield from flood(arena, plan, "large-1m", sliced, 1, 1_000_000, max(1, count // 500))


def flood(
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
            result = run.flood(count)
            means = run.means()
        extra = {
            "publisher_us": 1e6 * result.publisher_cpu_s / result.sent,
            "subscriber_us": 1e6 * result.subscribers_cpu_s / max(1, result.deliveries),
            "wall_us": result.wall_us_per_message,
            "means": means,
            "received": result.deliveries,
            "sent": result.sent * subscribers,
        }
        yield Sample(measure_name, system, result.cpu_us_per_delivery, extra)

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
            rate = _find_highest_rate(run, plan.load_s)
            yield Sample("rate", system, rate, {"means": run.means()})

    systems = [each for each in batching(arena) if each != "jsonbus-aio"]
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
