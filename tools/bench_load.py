"""How much load goes through without loss, and whether every loss is counted."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from bench_arena import Arena
from bench_floods import Plan, interleave
from bench_measures import Sample
from bench_run import ANSWER_S, Run

RATE_FIRST = 25_000.0
RATE_MAX = 10_000_000.0
#: A publisher that reaches less than this share of the rate asked for is at its limit.
REACHED = 0.9
BISECTIONS = 4

#: More than any run sends: nobody waits for an expected number.
UNKNOWN = 1 << 40

CASES: dict[str, dict[str, Any]] = {
    "as fast as it goes": {},
    "receive buffer of 64 KiB": {"receive_buffer_bytes": 65_536},
    "handler of 50 µs, mailbox of 1,024": {"handler_us": 50.0, "mailbox": 1024},
    "both": {"receive_buffer_bytes": 65_536, "handler_us": 50.0, "mailbox": 1024},
}


def measure_rate(arena: Arena, plan: Plan) -> Iterator[Sample]:
    """Raise the offered load until something is lost or the publisher is at its limit."""

    def measure(system: str) -> Iterable[Sample]:
        with Run(arena, system, mailbox=1 << 20) as run:
            run.probe()
            yield Sample("rate", system, _highest_rate(run, plan.load_s))

    yield from interleave("rate", ("raw", "raw-1400", "jsonbus"), plan, measure)


def measure_losses(arena: Arena, plan: Plan) -> Iterator[Sample]:
    """Sent, less handled, less what the subscriber counted as lost or dropped: nothing is left."""

    def measure(case: str) -> Iterable[Sample]:
        with Run(arena, "jsonbus", **CASES[case]) as run:
            run.probe()
            run.begin(UNKNOWN)
            run.publisher.ask("offer", ANSWER_S + 10 * plan.load_s, rate=0, seconds=plan.load_s)
            run.settle(UNKNOWN)
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


def _highest_rate(run: Run, seconds: float) -> float:
    best, rate = 0.0, RATE_FIRST
    while rate <= RATE_MAX:
        reached, is_lossless = _offer(run, rate, seconds)
        if is_lossless:
            best = max(best, reached)
        if not is_lossless or reached < REACHED * rate:
            break
        rate *= 2
    low, high = best, rate
    if is_lossless:
        return best  # the publisher is the limit
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        reached, is_lossless = _offer(run, middle, seconds)
        if is_lossless:
            low, best = middle, max(best, reached)
        else:
            high = middle
    return best


def _offer(run: Run, rate: float, seconds: float) -> tuple[float, bool]:
    """The rate that was reached, and whether everything arrived."""
    run.begin(UNKNOWN)
    published = run.publisher.ask("offer", ANSWER_S + 10 * seconds, rate=rate, seconds=seconds)
    sent = published["sent"]
    (report,) = run.settle(sent)
    return sent / (published["ended_at"] - published["started_at"]), report["received"] >= sent
