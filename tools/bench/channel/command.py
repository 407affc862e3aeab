"""Measure channels between two nodes, against asyncio's streams over the same loopback.

    python3 -m tools.bench channel                     everything: some five minutes
    python3 -m tools.bench channel --quick             everything, once, with little
    python3 -m tools.bench channel --only large,trip   some of it
    python3 -m tools.bench channel --json channel.json

Both sides are processes of their own, in a private network namespace where that is allowed. The
floor is what a program without jsonbus would write: messages with their length before them over
`asyncio.open_connection`, with `drain` after each; a blocking socket is there for information. All
systems are open at once and take turns, every repetition with new processes and in another order;
figures are medians, and a ratio is taken within a repetition. CPU is the kernel's work included.

  large     messages of 64 KB one way, as bytes and as JSON, until the last one is received
  trip      64 bytes there and back, by plain calls, and answered by a handler
  small     messages of 64 bytes one way
  connect   to open a channel: to a node that is known, and right after opening a bus; the floor
            connects to an address and exchanges one message
  many      thousands of channels: to open them, and what idle ones take
  transfer  1 GB in messages of 1 MB, and the most memory that took
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from tools._setup import say
from tools.bench.arena import Arena, enter
from tools.bench.bus.run import quantile
from tools.bench.channel.measures import MEASURES, NAMES, row_of
from tools.bench.channel.pair import Pair, median_ms
from tools.bench.child import RunError
from tools.bench.measures import Sample
from tools.bench.report import as_dict, make_rows, make_summary, make_table

LARGE_BYTES = 64 << 10
SMALL_BYTES = 64
TRANSFER_BYTES = 1 << 20

#: A node answers at most every 0.05 s where it is: each stranger is to be the only one who asks.
STRANGER_PAUSE_S = 0.15

SYSTEMS = tuple(NAMES)
OURS = ("jsonbus", "jsonbus-aio")


@dataclass(frozen=True, slots=True)
class Plan:
    """How much, and how often."""

    repetitions: int
    large: int  # messages, and so below
    small: int
    trips: int
    connects: int
    transfer: int
    channels: tuple[int, ...]
    idle_s: float


FULL = Plan(7, 5_000, 30_000, 3_000, 20, 1024, (1, 100, 1_000, 4_000), 6.0)
QUICK = Plan(1, 1_000, 5_000, 500, 5, 128, (1, 100), 3.0)


def measure_large(arena: Arena, plan: Plan) -> Iterator[Sample]:
    return _measure_flow(arena, plan, "large", LARGE_BYTES, plan.large)


def measure_small(arena: Arena, plan: Plan) -> Iterator[Sample]:
    return _measure_flow(arena, plan, "small", SMALL_BYTES, plan.small)


def measure_trip(arena: Arena, plan: Plan) -> Iterator[Sample]:
    for pairs in _repeat(arena, plan, "trip", SYSTEMS):
        for is_json in (False, True):
            for pair in pairs:
                if pair.system != "socket" or not is_json:
                    pair.ping(plan.trips // 10, SMALL_BYTES, is_json)  # to warm up
                    delays_us = pair.ping(plan.trips, SMALL_BYTES, is_json)
                    yield from _tell_trip(row_of(pair.system, is_json), delays_us)
        for pair in pairs:
            if pair.system in OURS:
                delays_us = pair.ping_handler(plan.trips, SMALL_BYTES)
                yield from _tell_trip(f"{row_of(pair.system)}, handler", delays_us)


def measure_connect(arena: Arena, plan: Plan) -> Iterator[Sample]:
    for pairs in _repeat(arena, plan, "connect", ("stream", *OURS)):
        for pair in pairs:
            seconds = [pair.connect() for _ in range(plan.connects)]
            yield Sample("connect", row_of(pair.system), median_ms(seconds))
        for pair in pairs:
            if pair.system in OURS:
                seconds = []
                for _ in range(plan.connects):
                    time.sleep(STRANGER_PAUSE_S)
                    seconds.append(pair.connect_as_stranger())
                row = f"{row_of(pair.system)}, node never heard"
                yield Sample("connect", row, median_ms(seconds))


def measure_many(arena: Arena, plan: Plan) -> Iterator[Sample]:
    """Once: these figures hardly vary, and thousands of idle channels take their time."""
    for system in ("stream", *OURS):
        with Pair(arena, system) as pair:
            held, seconds = 1, 0.0  # the one of the pair
            before_mb = (0.0, 0.0)
            for count in plan.channels:
                say(f"many, {system}: {count:,}")
                seconds += pair.hold(count - held)
                row = f"{row_of(system)}: {count:,}"
                if held < count:
                    yield Sample("many-time", row, seconds)
                held = count
                time.sleep(1.0)  # what opening left to do
                now_mb = pair.memory_mb()
                if count == 1:
                    before_mb = now_mb
                else:
                    for role, now, before in zip(
                        ("caller", "listener"), now_mb, before_mb, strict=True
                    ):
                        each_kb = 1e3 * (now - before) / (count - 1)
                        yield Sample("many-memory", f"{row}, {role}", each_kb)
                cpu_s = pair.cpu_s()
                time.sleep(plan.idle_s)
                cpu_ms = 1e3 * (pair.cpu_s() - cpu_s) / plan.idle_s
                yield Sample("many-idle", row, cpu_ms)
                yield Sample("many-threads", row, pair.threads())
                pair.check_held(count - 1)


def measure_transfer(arena: Arena, plan: Plan) -> Iterator[Sample]:
    for pairs in _repeat(arena, plan, "transfer", SYSTEMS):
        for pair in pairs:
            flow = pair.flow(plan.transfer, TRANSFER_BYTES)
            sender_mb, receiver_mb = pair.memory_mb("VmHWM")
            extra = {**flow.extra(), "sender_mb": sender_mb, "receiver_mb": receiver_mb}
            del extra["mb_s"]
            yield Sample("transfer", row_of(pair.system), flow.mb_s, extra)


PARTS: dict[str, Callable[[Arena, Plan], Iterator[Sample]]] = {
    "large": measure_large,
    "trip": measure_trip,
    "small": measure_small,
    "connect": measure_connect,
    "many": measure_many,
    "transfer": measure_transfer,
}


def main(arguments: list[str] | None = None) -> int:
    given = sys.argv[1:] if arguments is None else arguments
    options = _parse(given)
    if not options.here:
        code = enter("channel", given)
        if code is not None:
            return code
    plan = QUICK if options.quick else FULL
    if options.repetitions is not None:
        plan = replace(plan, repetitions=options.repetitions)
    arena = Arena()
    samples: list[Sample] = []
    try:
        for name in options.only:
            samples.extend(PARTS[name](arena, plan))
    except RunError as error:
        say(f"failed: {error}")
        return 1
    except KeyboardInterrupt:
        say("interrupted: what was measured follows")
    print(make_report(arena, samples))
    if options.json is not None:
        result = {
            "machine": arena.describe(),
            "measures": as_dict(make_rows(samples, MEASURES), MEASURES),
        }
        options.json.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n")
    return 0


def make_report(arena: Arena, samples: list[Sample]) -> str:
    """Tables of what was measured, and of the targets."""
    rows = make_rows(samples, MEASURES)
    parts = [", ".join(f"{name} {fact}" for name, fact in arena.describe().items())]
    parts += [make_table(MEASURES[name], rows[name]) for name in rows]
    parts.append(make_summary(rows, MEASURES))
    return "\n\n".join(part for part in parts if part)


def _measure_flow(
    arena: Arena, plan: Plan, measure: str, size_bytes: int, count: int
) -> Iterator[Sample]:
    for pairs in _repeat(arena, plan, measure, SYSTEMS):
        for is_json in (False, True):
            for pair in pairs:
                if pair.system != "socket" or not is_json:
                    pair.flow(count // 10, size_bytes, is_json)  # to warm up
                    flow = pair.flow(count, size_bytes, is_json)
                    yield Sample(measure, row_of(pair.system, is_json), flow.per_s, flow.extra())


def _tell_trip(row: str, delays_us: list[float]) -> Iterator[Sample]:
    yield Sample("trip-p50", row, quantile(delays_us, 0.5))
    yield Sample("trip-p99", row, quantile(delays_us, 0.99))


def _repeat(arena: Arena, plan: Plan, part: str, systems: tuple[str, ...]) -> Iterator[list[Pair]]:
    """All systems, with new processes and in another order each time."""
    for number in range(plan.repetitions):
        say(f"{part} {number + 1}/{plan.repetitions}")
        with ExitStack() as stack:
            pairs = [stack.enter_context(Pair(arena, system)) for system in systems]
            turn = number % len(pairs)
            yield pairs[turn:] + pairs[:turn]


def _parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python3 -m tools.bench channel",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    names = ",".join(PARTS)
    parser.add_argument("--only", metavar="NAMES", default=names, help=f"some of {names}")
    parser.add_argument("--quick", action="store_true", help="one repetition, little of everything")
    parser.add_argument("--repetitions", type=int, metavar="N", help="(7; quick: 1)")
    parser.add_argument("--here", action="store_true", help="no network namespace")
    parser.add_argument("--json", metavar="FILE", type=Path, help="all figures, as JSON")
    options = parser.parse_args(arguments)
    options.only = [each for each in options.only.split(",") if each]
    for name in options.only:
        if name not in PARTS:
            parser.error(f"--only knows {names}, not {name!r}")
    if options.repetitions is not None and options.repetitions < 1:
        parser.error("--repetitions is at least 1")
    return options
