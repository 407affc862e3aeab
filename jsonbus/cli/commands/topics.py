from __future__ import annotations

from collections.abc import Iterable
from typing import TypedDict

import click

import jsonbus
from jsonbus.config import BusSettings

from ..command import BusCommand, note, wait_until_sure, warn_unless_sure
from ..lib.output import Output


class Wish(TypedDict):
    """A line of this command."""

    pattern: str
    served: bool
    nodes: list[str]
    names: list[str]


@click.command(
    "topics",
    cls=BusCommand,
    epilog="""\b
Examples:
  jsonbus topics
  jsonbus topics | jq -r .pattern
""",
)
def command(settings: BusSettings) -> None:
    """Show what is subscribed to, and by whom.

    A published value that matches none of these patterns is not sent. Topics for which a node
    serves requests are shown as served.
    """
    output = Output()
    with jsonbus.Bus(**settings) as bus:
        wait_until_sure(bus)
        rows = _list_wishes(bus.nodes())
        warn_unless_sure(bus)
    if not rows:
        note(f"nobody subscribes to anything on {bus.config.group}:{bus.config.port}")
    elif output.is_terminal:
        output.write_table(
            ("TOPIC OR PATTERN", "", "NODES"),
            (
                (row["pattern"], "served" if row["served"] else "", ", ".join(row["names"]))
                for row in rows
            ),
        )
    else:
        output.write_results(rows)


def _list_wishes(nodes: Iterable[jsonbus.NodeInfo]) -> list[Wish]:
    wishes: dict[tuple[str, bool], Wish] = {}
    for info in nodes:
        keys = [(each, False) for each in info.wants] + [(each, True) for each in info.serves]
        for pattern, is_served in keys:
            wish = wishes.setdefault(
                (pattern, is_served),
                {"pattern": pattern, "served": is_served, "nodes": [], "names": []},
            )
            wish["nodes"].append(info.node)
            wish["names"].append(info.name)
    return [wish for _, wish in sorted(wishes.items())]
