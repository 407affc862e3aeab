from __future__ import annotations

import dataclasses
from collections.abc import Iterable

import click

import jsonbus
from jsonbus.config import BusSettings

from ..command import BusCommand, note, wait_until_sure, warn_unless_sure
from ..lib.output import Cell, Output

#: Subscription lists say which nodes are there, but only a node itself says its host and version.
#: Nodes that were not heard yet are asked this often, and given this long to answer each time; they
#: answer within milliseconds.
ASK_MAX = 5
ASK_S = 0.1

#: A clock that differs by this much is shown: the way of a datagram takes far less.
CLOCK_S = 1.0

#: A table of at least this width shows subscriptions, too.
WIDE_COLUMNS = 120


@click.command(
    "nodes",
    cls=BusCommand,
    epilog="""\b
Examples:
  jsonbus nodes
  jsonbus nodes | jq -r 'select(.lost > 0) | .name'
""",
)
def command(settings: BusSettings) -> None:
    """Show who is on the bus.

    For each node: its name and id, its host and address, its mode and whether it answers as a
    master, the version of its software, how long ago it was heard, and how many of its messages
    this command received and lost. A wide terminal also shows what it subscribes to and serves. In
    a pipe there is more, for example channel_port, the TCP port at which it accepts channels, and
    totals, the node's own counts. A clock that differs from this machine's by a second or more is
    below the age. The node of this command is left out.
    """
    output = Output()
    with jsonbus.Bus(**settings) as bus:
        wait_until_sure(bus)
        hear_everybody(bus)
        others = sorted(_others(bus), key=lambda each: each.name)
        warn_unless_sure(bus)
        if bus.sealed is not None:
            note(f"sealed: the bus {bus.sealed}")
        if not others:
            note(f"nobody else is on {bus.config.group}:{bus.config.port}")
        elif output.is_terminal:
            write_table(output, others)
        else:
            output.write_results(map(_as_dict, others))


def write_table(output: Output, nodes: Iterable[jsonbus.NodeInfo]) -> None:
    """Write two lines for each node, in 80 columns unless a name is long."""
    headings = ["NAME", "HOST", "MODE", "VERSION", "AGE", "RECEIVED", "LOST"]
    is_wide = output.columns >= WIDE_COLUMNS
    if is_wide:
        headings += ["SUBSCRIBES TO", "SERVES"]
    rows = (_row(info, is_wide=is_wide) for info in nodes)
    output.write_table(headings, rows, figures=("AGE", "RECEIVED", "LOST"))


def _others(bus: jsonbus.Bus) -> list[jsonbus.NodeInfo]:
    return [each for each in bus.nodes() if not each.is_self]


def hear_everybody(bus: jsonbus.Bus) -> None:
    """Ask until all nodes have described themselves. Old versions only answer."""
    answered: set[str] = set()
    for _ in range(ASK_MAX):
        if all(
            each.is_plain or each.version is not None or each.node in answered
            for each in _others(bus)
        ):
            return
        answered.update(pong.node for pong in bus.ping(timeout=ASK_S))


def _as_dict(info: jsonbus.NodeInfo) -> dict[str, object]:
    facts = dataclasses.asdict(info)
    facts["heard_s_ago"] = round(info.heard_s_ago, 3)
    if info.clock_ahead_s is not None:
        facts["clock_ahead_s"] = round(info.clock_ahead_s, 3)
    facts["totals"] = None if info.totals is None else info.totals._asdict()
    return {**facts, "patterns": info.wants, "serves": info.serves}


def _row(info: jsonbus.NodeInfo, *, is_wide: bool) -> tuple[Cell, ...]:
    age_s = info.heard_s_ago
    age = f"{age_s:.1f} s" if age_s < 9.95 else f"{age_s:.0f} s"
    ahead_s = info.clock_ahead_s or 0.0
    return (
        (info.name, info.node),
        (info.host or "-", info.address or "-"),
        (info.mode, "answers") if info.is_master else info.mode,
        info.version or "-",
        age if abs(ahead_s) < CLOCK_S else (age, f"clock {ahead_s:+.0f} s"),
        str(info.received),
        str(info.lost),
        *((", ".join(info.wants) or "-", ", ".join(info.serves) or "-") if is_wide else ()),
    )
