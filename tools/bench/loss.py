"""Reliable messages on a network that loses, delays, repeats and reorders: what arrives, and how.

    sudo python3 -m tools.bench loss --messages 100000 --loss 0.01 0.05 0.2

Three publishers and five subscribers, each a process on a host of its own in the lab (tools/lab).
Every loss rate is run twice, with and without `reliable`; the result is a table of tools/README.md.
Exit code 1: something that was sent reliably did not arrive exactly once and in order.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Sequence

from tools._setup import find_python
from tools.lab.delivery import Delivery, Load, Outcome
from tools.lab.namespace import LabError, find_obstacle
from tools.lab.network import Lab
from tools.lab.shape import Shape

TIMEOUT_S = 600
HEADER = (
    "loss",
    "reliable",
    "to deliver",
    "delivered",
    "lost",
    "repaired",
    "NAKs",
    "late",
    "twice",
    "seconds",
    "messages/s",
)


def main(arguments: list[str] | None = None) -> int:
    options = _parse_arguments(arguments)
    obstacle = find_obstacle()
    if obstacle is not None:
        print(f"no lab on this machine: {obstacle}", file=sys.stderr)
        return 1
    rows: list[tuple[str, ...]] = []
    is_good = True
    try:
        for loss in options.loss:
            for is_reliable in (False, True):
                outcome = measure(loss, is_reliable, options)
                rows.append(row_of(loss, outcome))
                print(" ".join(f"{cell:>12}" for cell in rows[-1]), file=sys.stderr, flush=True)
                is_good &= not is_reliable or not (outcome.lost or outcome.late or outcome.repeated)
    except (LabError, ValueError, TimeoutError) as error:
        print(error, file=sys.stderr)
        return 1
    print(table(HEADER, rows))
    return 0 if is_good else 1


def measure(loss: float, is_reliable: bool, options: argparse.Namespace) -> Outcome:
    """One run on a lab of its own."""
    jitter_ms = options.jitter
    shape = Shape(loss, jitter_ms, jitter_ms, options.repeat, options.reorder)
    per_topic = options.messages // (options.publishers * options.topics)
    load = Load(options.publishers, options.subscribers, options.topics, per_topic, is_reliable)
    hosts = options.publishers + options.subscribers
    with Lab(hosts, shape, hub=options.hub, seed=options.seed, python=find_python()) as lab:
        return Delivery(lab, load).wait(TIMEOUT_S)


def row_of(loss: float, outcome: Outcome) -> tuple[str, ...]:
    return (
        f"{loss * 100:g} %",
        "yes" if outcome.load.is_reliable else "no",
        f"{outcome.load.expected:,}",
        f"{outcome.delivered:,}",
        f"{outcome.lost:,}",
        f"{outcome.repaired:,}",
        f"{outcome.naks:,}",
        f"{outcome.late:,}",
        f"{outcome.repeated:,}",
        f"{outcome.took_s:.1f}",
        f"{outcome.messages_per_s:,.0f}",
    )


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(header)} |", f"|{'---:|' * len(header)}"]
    lines.extend(f"| {' | '.join(row)} |" for row in rows)
    return "\n".join(lines)


def _parse_arguments(arguments: list[str] | None) -> argparse.Namespace:
    summary, _, details = (__doc__ or "").partition("\n\n")
    parser = argparse.ArgumentParser(
        prog="python3 -m tools.bench loss",
        description=summary,
        epilog=details,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--messages", type=int, default=100_000, metavar="N", help="in all [100000]")
    add("--publishers", type=int, default=3, metavar="N", help="[3]")
    add("--subscribers", type=int, default=5, metavar="N", help="[5]")
    add("--topics", type=int, default=2, metavar="N", help="of each publisher [2]")
    add("--loss", type=float, nargs="+", default=[0.0, 0.01, 0.05, 0.2], metavar="P")
    add("--jitter", type=float, default=10.0, metavar="MS", help="delay is that, ± that [10]")
    add("--repeat", type=float, default=0.01, metavar="P", help="frames that come twice [0.01]")
    add("--reorder", type=float, default=0.05, metavar="P", help="frames that overtake [0.05]")
    add("--hub", choices=("auto", "bridge", "relay"), default="auto", help="[auto]")
    add("--seed", type=int, default=1, metavar="N", help="of the relay's dice [1]")
    return parser.parse_args(arguments)
