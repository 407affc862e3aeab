"""Run a bus under loss for a long time, killing and restarting nodes; check that nothing grows.

    sudo python3 tools/soak.py --minutes 60

Three nodes live all the time on hosts of the lab (tools/lab); a fourth is killed without a
goodbye and started again every few seconds. All publish reliable, ordinary, large and retained
values, hear those of all others, and open channels to them. In the end, what the lasting nodes hold
of memory, descriptors and threads must be in the second half what it was in the first, and what
they heard must add up.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from statistics import mean
from typing import Any

from _setup import ROOT, find_python

sys.path.insert(0, str(ROOT))

from tools.lab.namespace import LabError, find_obstacle
from tools.lab.network import Lab
from tools.lab.process import Process
from tools.lab.shape import Shape

NODE = Path(__file__).with_name("soak_node.py")
SHAPE = Shape(0.05, delay_ms=5, jitter_ms=5, repeat=0.01, reorder=0.05)
LASTING = 3
#: Memory grows while a node starts and fills its histories (10 s); that does not count.
WARM_UP_S = 20
RESIDENT_GROWTH_MAX = 1.15
RESIDENT_SLACK_KB = 6_000
#: Counters that must stay 0.
WRONG = ("repeated", "mangled", "messages_dropped", "datagrams_rejected", "messages_malformed")


def main() -> int:
    options = _parse_arguments()
    obstacle = find_obstacle()
    if obstacle is not None:
        print(f"no lab on this machine: {obstacle}", file=sys.stderr)
        return 1
    try:
        faults = soak(60 * options.minutes, options.restart, options.seed)
    except LabError as error:
        print(error, file=sys.stderr)
        return 1
    print("\n".join(faults) or "all well")
    return 1 if faults else 0


def soak(seconds: float, restart_s: float, seed: int) -> list[str]:
    """Run the soak and return the faults found."""
    with Lab(LASTING + 1, SHAPE, seed=seed, python=find_python()) as lab:
        *homes, stage = lab.hosts
        lasting = [host.start_program(NODE, f"lasting-{host.name}") for host in homes]
        deadline = time.monotonic() + seconds
        restarts = 0
        while time.monotonic() < deadline:
            victim = stage.start_program(NODE, "victim")
            restarts += 1
            time.sleep(min(restart_s, max(0.0, deadline - time.monotonic())))
            victim.kill()
            stage.processes.remove(victim)
            victim.close()
        faults = [fault for each in lasting for fault in judge(each)]
        for each in lasting:
            told = each.objects()
            print(f"{each.label}: {restarts} restarts seen, in the end {told[-1]}", flush=True)
        return faults


def judge(process: Process) -> list[str]:
    """Return the faults that the output of one lasting node shows."""
    if process.returncode is not None:
        return [f"{process.label} ended: {process.report()}"]
    lines = process.objects()[WARM_UP_S:]
    if len(lines) < 4:
        return [f"{process.label} told too little: {process.report()}"]
    half = len(lines) // 2
    faults = []
    before, after = _mean(lines[:half], "resident_kb"), _mean(lines[half:], "resident_kb")
    if after > before * RESIDENT_GROWTH_MAX + RESIDENT_SLACK_KB:
        faults.append(f"{process.label} grew from {before:,.0f} to {after:,.0f} kB")
    for what in ("descriptors", "threads"):
        before, after = _mean(lines[:half], what), _mean(lines[half:], what)
        if after > before + 1:
            faults.append(f"{process.label} had {before:.1f} {what}, then {after:.1f}")
    end = lines[-1]
    for what in WRONG:
        if end[what]:
            faults.append(f"{process.label}: {what} is {end[what]}")
    if end["skipped"] > end["messages_given_up"]:
        faults.append(f"{process.label} misses {end['skipped']}, gave up less: {end}")
    for kind in ("reliable", "plain", "large", "state", "echoed"):
        if end[kind] <= lines[0][kind]:
            faults.append(f"{process.label} heard nothing more that is {kind}")
    return faults


def _mean(lines: list[dict[str, Any]], what: str) -> float:
    return mean(line[what] for line in lines)


def _parse_arguments() -> argparse.Namespace:
    summary, _, details = (__doc__ or "").partition("\n\n")
    parser = argparse.ArgumentParser(
        description=summary, epilog=details, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--minutes", type=float, default=1.0, metavar="N", help="[1]")
    add("--restart", type=float, default=6.0, metavar="S", help="seconds of a victim's life [6]")
    add("--seed", type=int, default=1, metavar="N", help="of the relay's dice [1]")
    return parser.parse_args()


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
