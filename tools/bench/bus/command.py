"""Measure the bus from end to end, against a floor of raw sockets and against other systems.

    python3 -m tools.bench bus                       everything: some twenty minutes
    python3 -m tools.bench bus --quick               everything, once, with few messages
    python3 -m tools.bench bus --only flood,latency  some of it
    python3 -m tools.bench bus --only memory --memory 10
                                                     memory over ten million messages
    python3 -m tools.bench bus --python /path/to/python --json bench.json --chart bench.png

Floors, jsonbus and peers are separate processes on loopback, in a private network namespace where
that is allowed. Peers are measured if the Python that runs this can import them (`pip install
eclipse-zenoh pyzmq lcm nats-py`; nats needs a nats-server as well). Every repetition measures every
system, in another order; a ratio compares within one repetition. CPU is that of all processes
together, the kernel's work for them included. floor.py says what a floor is, flow.py how all are
kept from losing messages. A machine that does nothing else gives the best figures.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from tools._setup import ROOT, say
from tools.bench.arena import Arena, enter
from tools.bench.bus.alone import (
    measure_memory,
    measure_start,
    measure_suppressed,
    measure_unwanted,
)
from tools.bench.bus.floods import (
    Plan,
    measure_busy,
    measure_fanout,
    measure_flood,
    measure_large,
    measure_latency,
)
from tools.bench.bus.growth import measure_growth
from tools.bench.bus.load import measure_losses, measure_rate
from tools.bench.bus.peers import MODULES
from tools.bench.bus.peers import find_obstacle as find_peer_obstacle
from tools.bench.bus.run import RunError
from tools.bench.measures import MEASURES, Sample
from tools.bench.report import as_dict, make_rows, make_summary, make_table
from tools.bench.wire.instructions import measure_instructions
from tools.pictures.bench_chart import draw
from tools.pictures.bench_chart import find_obstacle as find_chart_obstacle

WORKLOADS: dict[str, Callable[[Arena, Plan], Iterator[Sample]]] = {
    "flood": measure_flood,
    "fanout": measure_fanout,
    "large": measure_large,
    "latency": measure_latency,
    "busy": measure_busy,
    "suppressed": measure_suppressed,
    "unwanted": measure_unwanted,
    "start": measure_start,
    "rate": measure_rate,
    "losses": measure_losses,
    "memory": measure_memory,
    "growth": measure_growth,
}


def main(arguments: list[str] | None = None) -> int:
    given = sys.argv[1:] if arguments is None else arguments
    options = _parse(given)
    if options.python is not None:
        command = [options.python, "-m", "tools.bench", "bus", *_without_python(given)]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        return subprocess.run(command, env=environment).returncode
    if not options.here:
        code = enter("bus", given)
        if code is not None:
            return code
    arena = Arena()
    if not arena.in_namespace:
        say("no private network namespace: everything is on interface lo of this machine")
    samples: list[Sample] = []
    plan = _make_plan(options, arena)
    try:
        for name in options.only:
            samples.extend(WORKLOADS[name](arena, plan))
    except RunError as error:
        say(f"failed: {error}")
        return 1
    except KeyboardInterrupt:
        say("interrupted: what was measured follows")
    _tell(options, arena, samples)
    return 0


def _parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python3 -m tools.bench bus",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    names = ",".join(WORKLOADS)
    parser.add_argument("--only", metavar="NAMES", default=names, help=f"some of {names}")
    parser.add_argument("--quick", action="store_true", help="one repetition, few messages")
    parser.add_argument("--repetitions", type=int, metavar="N", help="(5; quick: 1)")
    parser.add_argument("--messages", type=int, metavar="N", help="in a flood (200000)")
    parser.add_argument("--subscribers", type=int, default=8, metavar="N", help="of fanout (8)")
    parser.add_argument(
        "--memory", type=float, metavar="MILLIONS", help="messages while memory is watched (1)"
    )
    parser.add_argument(
        "--peers", metavar="NAMES", default=",".join(MODULES), help="(all that are installed)"
    )
    parser.add_argument("--python", metavar="PATH", help="run all of it with another Python")
    parser.add_argument("--here", action="store_true", help="no network namespace")
    parser.add_argument("--json", metavar="FILE", type=Path, help="all figures, as JSON")
    parser.add_argument("--chart", metavar="FILE", type=Path, help="the main figures, as PNG")
    parser.add_argument(
        "--instructions", action="store_true", help="count the core's instructions as well"
    )
    options = parser.parse_args(arguments)
    options.only = [each for each in options.only.split(",") if each]
    options.peers = [each for each in options.peers.split(",") if each]
    for name in options.only:
        if name not in WORKLOADS:
            parser.error(f"--only knows {names}, not {name!r}")
    for name in options.peers:
        if name not in MODULES:
            parser.error(f"--peers knows {','.join(MODULES)}, not {name!r}")
    for name in ("repetitions", "messages", "subscribers"):
        value = getattr(options, name)
        if value is not None and value < 1:
            parser.error(f"--{name} is at least 1")
    return options


def _make_plan(options: argparse.Namespace, arena: Arena) -> Plan:
    peers = []
    for peer in options.peers:
        obstacle = find_peer_obstacle(peer, arena.in_namespace)
        if obstacle is None:
            peers.append(peer)
        else:
            say(f"without {peer}: {obstacle}")
    quick = options.quick
    messages = options.messages or (20_000 if quick else 200_000)
    millions = options.memory or (0.1 if quick else 1.0)
    sizes = (1, 10, 100, 1_000, 10_000, 100_000)
    return Plan(
        repetitions=options.repetitions or (1 if quick else 5),
        messages=messages,
        subscribers=options.subscribers,
        latency_messages=min(5_000, max(100, messages // 40)),  # fifty beyond the 99th percentile
        load_s=0.2 if quick else 0.5,
        memory_messages=int(millions * 1_000_000),
        growth_topics=sizes[:4] if quick else sizes,
        growth_nodes=sizes[:4] if quick else sizes[:5],
        peers=tuple(peers),
    )


def _tell(options: argparse.Namespace, arena: Arena, samples: list[Sample]) -> None:
    facts = arena.describe()
    print("\n" + ", ".join(f"{name} {fact}" for name, fact in facts.items()))
    rows = make_rows(samples, MEASURES)
    for name in rows:
        print(f"\n{make_table(MEASURES[name], rows[name])}")
    summary = make_summary(rows, MEASURES)
    if summary:
        print(f"\n{summary}")
    instructions = measure_instructions(say) if options.instructions else None
    if instructions is not None:
        print(f"\n{instructions}")
    if options.json is not None:
        result = {"machine": facts, "measures": as_dict(rows, MEASURES)}
        options.json.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n")
    if options.chart is not None:
        obstacle = find_chart_obstacle()
        if obstacle is None and not draw(rows, options.chart):
            obstacle = "it shows flood, fanout, latency and growth, and none was measured"
        say(f"no chart: {obstacle}" if obstacle else f"chart: {options.chart}")


def _without_python(arguments: list[str]) -> list[str]:
    kept, skip = [], False
    for argument in arguments:
        if not skip and not argument.startswith("--python"):
            kept.append(argument)
        skip = argument == "--python"
    return kept
