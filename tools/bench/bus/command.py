"""Measure the bus from end to end, against a floor of raw sockets and against other systems.

    python3 -m tools.bench bus                       everything on loopback: some ten minutes
    python3 -m tools.bench bus --quick               everything, once, with few messages
    python3 -m tools.bench bus --only flood,latency  some of it
    python3 -m tools.bench bus --network veth        between hosts of its own; needs root
    python3 -m tools.bench bus --network veth,lo --chart tools/pictures/bench.png
                                                     the tables and the picture of the READMEs
    python3 -m tools.bench bus --only sealed,forged  sealed beside open; what forgeries cost
    python3 -m tools.bench bus --only memory --memory 10
                                                     memory over ten million messages
    python3 -m tools.bench bus --python /path/to/python --json bench.json --chart bench.png

Floors, jsonbus and peers are separate processes on loopback, in a private network namespace where
that is allowed; or each on a host of its own, as on a LAN (network.py). Peers are measured if the
Python that runs this can import them (`pip install eclipse-zenoh pyzmq lcm nats-py`; nats needs a
nats-server as well). Every repetition measures every system, in another order; a ratio compares
within one repetition. CPU is that of all processes together, the kernel's work for them included.
floor.py says what a floor is, flow.py how all are kept from losing messages. A machine that does
nothing else gives the best figures.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from tools._setup import ROOT, say
from tools.bench.arena import Arena, enter
from tools.bench.bus.alone import (
    measure_memory,
    measure_start,
    measure_suppressed,
    measure_unwanted,
)
from tools.bench.bus.calm import measure_busy, measure_calls, measure_latency
from tools.bench.bus.floods import (
    Plan,
    measure_fanout,
    measure_flood,
    measure_large,
    measure_losses,
    measure_rate,
    measure_reliable,
)
from tools.bench.bus.growth import measure_growth
from tools.bench.bus.growth_node import measure_node
from tools.bench.bus.overview import make_overview
from tools.bench.bus.peers import MODULES
from tools.bench.bus.peers import find_obstacle as find_peer_obstacle
from tools.bench.bus.sealed import measure_forged, measure_sealed
from tools.bench.measures import LAN, MEASURES, Sample
from tools.bench.network import NETWORKS
from tools.bench.report import make_parser, make_report, make_rows, parse, run_parts, write_json
from tools.bench.wire.instructions import measure_instructions
from tools.pictures.bench_chart import draw
from tools.pictures.bench_chart import find_obstacle as find_chart_obstacle

Workload = Callable[[Arena, Plan], Iterator[Sample]]

#: Measured on each network; the others say nothing about a network.
NETWORKED: dict[str, Workload] = {
    "flood": measure_flood,
    "fanout": measure_fanout,
    "reliable": measure_reliable,
    "large": measure_large,
    "latency": measure_latency,
    "calls": measure_calls,
    "unwanted": measure_unwanted,
    "rate": measure_rate,
    "sealed": measure_sealed,
}
WORKLOADS: dict[str, Workload] = {
    **NETWORKED,
    "busy": measure_busy,
    "suppressed": measure_suppressed,
    "start": measure_start,
    "losses": measure_losses,
    "memory": measure_memory,
    "growth": measure_growth,
    "node": measure_node,
    "forged": measure_forged,
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
    samples: list[Sample] = []
    facts: dict[str, str] = {}
    for network in options.network:
        arena = Arena(network=network)
        obstacle = arena.network.obstacle
        if obstacle is not None:
            say(f"no network {network} on this machine: {obstacle}")
            return 1
        with closing(arena.network):
            if not arena.in_namespace:
                say("no private network namespace: everything is on interface lo of this machine")
            measured = _measure(arena, options)
        if measured is None:
            return 1
        samples += measured
        told = arena.describe()
        facts |= told if not facts else {"and": told["network"]}
    _report(options, facts, samples)
    return 0


def _measure(arena: Arena, options: argparse.Namespace) -> list[Sample] | None:
    """All samples of one network; None if a part failed."""
    plan = _make_plan(options, arena)
    is_lan = arena.network.is_lan
    names = [name for name in options.only if name in NETWORKED or not is_lan]
    samples = run_parts(names, lambda name: WORKLOADS[name](arena, plan))
    if samples is None or not is_lan:
        return samples
    return [replace(each, measure=LAN + each.measure) for each in samples]


def _parse(arguments: list[str]) -> argparse.Namespace:
    parser = make_parser("bus", __doc__ or "", WORKLOADS)
    add = parser.add_argument
    add("--network", metavar="NAMES", default="lo", help="lo, veth, or both: veth,lo (lo)")
    add("--repetitions", type=int, metavar="N", help="(3; quick: 1)")
    add("--messages", type=int, metavar="N", help="in a flood (200000)")
    add("--subscribers", type=int, default=8, metavar="N", help="of fanout (8)")
    add("--memory", type=float, metavar="MILLIONS", help="messages while memory is watched (1)")
    add("--peers", metavar="NAMES", default=",".join(MODULES), help="(all that are installed)")
    add("--python", metavar="PATH", help="run all of it with another Python")
    add("--chart", metavar="FILE", type=Path, help="the main figures, as PNG")
    add("--instructions", action="store_true", help="count the core's instructions as well")
    at_least = {"repetitions": 1, "messages": 1, "subscribers": 1}
    return parse(
        parser, arguments, {"only": WORKLOADS, "peers": MODULES, "network": NETWORKS}, at_least
    )


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
        repetitions=options.repetitions or (1 if quick else 3),
        messages=messages,
        subscribers=options.subscribers,
        latency_messages=min(2_000, max(100, messages // 40)),  # twenty beyond the 99th percentile
        load_s=0.2 if quick else 0.5,
        memory_messages=int(millions * 1_000_000),
        growth_topics=sizes[:4] if quick else sizes,
        growth_nodes=sizes[:4] if quick else sizes[:5],
        idle_nodes=(3,) if quick else (10, 30, 60),
        idle_s=2.0 if quick else 20.0,
        peers=tuple(peers),
    )


def _report(options: argparse.Namespace, facts: dict[str, str], samples: list[Sample]) -> None:
    print(f"\n{make_report(facts, samples, MEASURES)}")
    if options.instructions:
        print(f"\n{measure_instructions(say)}")
    rows = make_rows(samples, MEASURES)
    print(f"\n{make_overview(rows)}")
    write_json(options.json, rows, MEASURES, machine=facts)
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
