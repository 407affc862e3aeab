"""How much load goes through without loss, and whether every loss is counted."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from tools.bench.arena import Arena
from tools.bench.bus.floods import FLOORS, Plan, interleave
from tools.bench.bus.run import ANSWER_S, Run
from tools.bench.measures import Sample

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
