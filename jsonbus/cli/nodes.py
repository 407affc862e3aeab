from __future__ import annotations

import dataclasses

import click

import jsonbus
from jsonbus.config import BusSettings

from .command import BusCommand, note, wait_until_sure, warn_unless_sure
from .output import Output
from .values import split_served


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

    One line per node: who and where it is, how long ago it was heard, what it subscribes to and
    what it serves. This command's own node is left out.
    """
    output = Output()
    with jsonbus.Bus(**settings) as bus:
        wait_until_sure(bus)
        others = sorted(
            (each for each in bus.nodes() if not each.is_self), key=lambda each: each.name
        )
        warn_unless_sure(bus)
        if not others:
            note(f"nobody else is on {bus.config.group}:{bus.config.port}")
        elif output.is_terminal:
            output.write_table(
                ("NAME", "NODE", "MODE", "HEARD", "ADDRESS", "SUBSCRIBES TO", "SERVES"),
                map(_row, others),
            )
        else:
            output.write_results(map(_as_dict, others))


def _as_dict(info: jsonbus.NodeInfo) -> dict[str, object]:
    wanted, served = split_served(info.patterns)
    facts = dataclasses.asdict(info)
    facts["heard_s_ago"] = round(info.heard_s_ago, 3)
    return {**facts, "patterns": wanted, "serves": served}


def _row(info: jsonbus.NodeInfo) -> tuple[str, ...]:
    wanted, served = split_served(info.patterns)
    return (
        info.name,
        info.node,
        f"{info.mode}, answers" if info.is_master else info.mode,
        f"{info.heard_s_ago:.1f} s ago",
        info.address or "-",
        ", ".join(wanted) or "-",
        ", ".join(served) or "-",
    )
