"""Measure channels between two nodes, against asyncio's streams over the same loopback.

    python3 -m tools.bench channel                     everything: some five minutes
    python3 -m tools.bench channel --quick             everything, once, with little
    python3 -m tools.bench channel --only large,trip   some of it
    python3 -m tools.bench channel --sealed            channels of sealed buses as well
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
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace

from tools._setup import say
from tools.bench.arena import Arena, enter
from tools.bench.bus.run import quantile
from tools.bench.channel.pair import Pair, median_ms
from tools.bench.measures import Measure, Sample, Target
from tools.bench.report import make_parser, make_report, make_rows, parse, run_parts, write_json

FLOOR, FLOOR_JSON = "asyncio stream", "asyncio stream, JSON"
FLOORS = (FLOOR, FLOOR_JSON)

#: Rows whose names say what they are, by system.
NAMES = {
    "stream": FLOOR,
    "socket": "blocking socket",
    "jsonbus": "Bus",
    "jsonbus-aio": "AsyncBus",
    "jsonbus-sealed": "Bus, sealed",
    "jsonbus-aio-sealed": "AsyncBus, sealed",
}


def row_of(system: str, is_json: bool = False) -> str:
    return NAMES[system] + (", JSON" if is_json else "")


def _both(target: Target) -> dict[str, Target]:
    return {row_of("jsonbus"): target, row_of("jsonbus-aio"): target}


MEASURES: dict[str, Measure] = {
    "large": Measure(
        "messages of 64 KB, one way", "messages/s", FLOORS, _both(Target(0.8, is_at_least=True))
    ),
    "trip-p50": Measure(
        "there and back, 64 bytes, median",
        "µs",
        FLOORS,
        _both(Target(1.3)),
    ),
    "trip-p99": Measure("there and back, 64 bytes, 99th percentile", "µs", FLOORS),
    "small": Measure("messages of 64 bytes, one way", "messages/s", FLOORS),
    "connect": Measure("from a name to an open channel, median", "ms", (FLOOR,)),
    "many-time": Measure("to open so many channels to one node, one after the other", "s"),
    "many-memory": Measure("memory of an idle channel, each of its two processes", "KB"),
    "many-idle": Measure("CPU of idle channels, both processes", "ms/s"),
    "many-threads": Measure("threads, both processes", "threads"),
    "transfer": Measure("1 GB in messages of 1 MB", "MB/s", (FLOOR,)),
}

LARGE_BYTES = 64 << 10
SMALL_BYTES = 64
TRANSFER_BYTES = 1 << 20

#: A node answers at most every 0.05 s where it is: each stranger is to be the only one who asks.
STRANGER_PAUSE_S = 0.15

BARE = ("stream", "socket")
OPEN = ("jsonbus", "jsonbus-aio")
SEALED = ("jsonbus-sealed", "jsonbus-aio-sealed")


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
    ours: tuple[str, ...] = OPEN

    @property
    def systems(self) -> tuple[str, ...]:
        return BARE + self.ours


FULL = Plan(7, 5_000, 30_000, 3_000, 20, 1024, (1, 100, 1_000, 4_000), 6.0)
QUICK = Plan(1, 1_000, 5_000, 500, 5, 128, (1, 100), 3.0)


def measure_large(arena: Arena, plan: Plan) -> Iterator[Sample]:
    return _measure_flow(arena, plan, "large", LARGE_BYTES, plan.large)


def measure_small(arena: Arena, plan: Plan) -> Iterator[Sample]:
    return _measure_flow(arena, plan, "small", SMALL_BYTES, plan.small)


def measure_trip(arena: Arena, plan: Plan) -> Iterator[Sample]:
    for pairs in _repeat(arena, plan, "trip", plan.systems):
        for is_json in (False, True):
            for pair in pairs:
                if pair.system != "socket" or not is_json:
                    pair.ping(plan.trips // 10, SMALL_BYTES, is_json)  # to warm up
                    delays_us = pair.ping(plan.trips, SMALL_BYTES, is_json)
                    yield from _tell_trip(row_of(pair.system, is_json), delays_us)
        for pair in pairs:
            if pair.system in plan.ours:
                delays_us = pair.ping_handler(plan.trips, SMALL_BYTES)
                yield from _tell_trip(f"{row_of(pair.system)}, handler", delays_us)


def measure_connect(arena: Arena, plan: Plan) -> Iterator[Sample]:
    for pairs in _repeat(arena, plan, "connect", ("stream", *plan.ours)):
        for pair in pairs:
            seconds = [pair.connect() for _ in range(plan.connects)]
            yield Sample("connect", row_of(pair.system), median_ms(seconds))
        for pair in pairs:
            if pair.system in plan.ours:
                seconds = []
                for _ in range(plan.connects):
                    time.sleep(STRANGER_PAUSE_S)
                    seconds.append(pair.connect_as_stranger())
                row = f"{row_of(pair.system)}, node never heard"
                yield Sample("connect", row, median_ms(seconds))


def measure_many(arena: Arena, plan: Plan) -> Iterator[Sample]:
    """Once: these figures hardly vary, and thousands of idle channels take their time."""
    for system in ("stream", *plan.ours):
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
    for pairs in _repeat(arena, plan, "transfer", plan.systems):
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
    if options.sealed:
        plan = replace(plan, ours=OPEN + SEALED)
    arena = Arena()
    samples = run_parts(options.only, lambda name: PARTS[name](arena, plan))
    if samples is None:
        return 1
    facts = arena.describe()
    print(make_report(facts, samples, MEASURES))
    write_json(options.json, make_rows(samples, MEASURES), MEASURES, machine=facts)
    return 0


def _measure_flow(
    arena: Arena, plan: Plan, measure: str, size_bytes: int, count: int
) -> Iterator[Sample]:
    for pairs in _repeat(arena, plan, measure, plan.systems):
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
    parser = make_parser("channel", __doc__ or "", PARTS)
    parser.add_argument("--repetitions", type=int, metavar="N", help="(7; quick: 1)")
    parser.add_argument("--sealed", action="store_true", help="channels of sealed buses as well")
    return parse(parser, arguments, {"only": PARTS}, {"repetitions": 1})
