"""Measure the Spark side: source, bridge and recorder, beside Spark's own sources.

    python3 -m tools.bench spark                        everything: some ten minutes
    python3 -m tools.bench spark --quick                everything, once, with little: two minutes
    python3 -m tools.bench spark --only trigger,idle    some of it
    python3 -m tools.bench spark --json spark.json

One local Spark in this process, bridges and publishers as processes beside it, on loopback, in a
private network namespace where that is allowed. CPU is that of all processes of a kind, by /proc:
Java, this process (the driver), the Python that Spark starts, the bridge. What is compared runs
alternately, on one Java that has run all of it before; medians, ratios within a repetition. Each
figure that something is to be reached for says what, and whether it was. A machine that does
nothing else gives the best figures; on a busy one, believe those of CPU.
"""

from __future__ import annotations

import argparse
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

import pyarrow  # noqa: F401 - whether it is there
import pyspark  # noqa: F401

from tools._setup import say
from tools.bench.arena import Arena, enter
from tools.bench.measures import Sample
from tools.bench.report import make_parser, make_report, make_rows, parse, run_parts, write_json
from tools.bench.spark.flows import Sizes, measure_flows
from tools.bench.spark.latency import measure_idle, measure_latency, measure_triggers
from tools.bench.spark.measures import MEASURES, make_readme_table
from tools.bench.spark.rows import SMALL_ROWS, measure_ranges, measure_recorder
from tools.bench.spark.stage import Stage


@dataclass(frozen=True, slots=True)
class Plan:
    """How much, and how often."""

    repetitions: int
    sizes: Sizes
    batches: int
    latency_s: float
    idle_s: float
    messages: int
    small_rows: int


FULL = Plan(3, Sizes(3_600_000, 600_000, 600_000, 20_000), 60, 12.0, 10.0, 1_000_000, SMALL_ROWS)
QUICK = Plan(1, Sizes(600_000, 300_000, 150_000, 5_000), 15, 4.0, 5.0, 200_000, 16_384)

PARTS: dict[str, Callable[[Stage, Plan], Iterator[Sample]]] = {
    "flow": lambda stage, plan: measure_flows(stage, plan.sizes, plan.repetitions),
    "trigger": lambda stage, plan: measure_triggers(stage, plan.batches, plan.repetitions),
    "latency": lambda stage, plan: measure_latency(stage, plan.latency_s, plan.repetitions),
    "idle": lambda stage, plan: measure_idle(stage, plan.idle_s, plan.repetitions),
    "recorder": lambda stage, plan: measure_recorder(stage, plan.messages, plan.repetitions),
    "range": lambda stage, plan: measure_ranges(stage, plan.repetitions, plan.small_rows),
}


def main(arguments: list[str] | None = None) -> int:
    given = sys.argv[1:] if arguments is None else arguments
    options = _parse(given)
    if not options.here:
        code = enter("spark", given)
        if code is not None:
            return code
    plan = QUICK if options.quick else FULL
    plan = Plan(
        options.repetitions or plan.repetitions,
        *(getattr(plan, name) for name in Plan.__slots__[1:]),
    )
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, _end)  # so that nothing is left behind
    arena = Arena()
    began_at = time.monotonic()
    with Stage(arena) as stage:

        def measure(name: str) -> Iterator[Sample]:
            yield from PARTS[name](stage, plan)
            say(f"{name}: done after {time.monotonic() - began_at:.0f} s")

        samples = run_parts(options.only, measure)
    if samples is None:
        return 1
    facts = arena.describe()
    facts |= {name: metadata.version(name) for name in ("pyspark", "pyarrow")}
    facts["load"] = Path("/proc/loadavg").read_text().split()[0]
    rows = make_rows(samples, MEASURES)
    print(f"\n{make_report(facts, samples, MEASURES)}\n\n{make_readme_table(rows)}")
    write_json(options.json, rows, MEASURES, machine=facts)
    return 0


def _end(number: int, frame: object) -> None:
    sys.exit(128 + number)


def _parse(arguments: list[str]) -> argparse.Namespace:
    parser = make_parser("spark", __doc__ or "", PARTS)
    parser.add_argument("--repetitions", type=int, metavar="N", help="(3; quick: 1)")
    return parse(parser, arguments, {"only": PARTS}, {"repetitions": 1})
