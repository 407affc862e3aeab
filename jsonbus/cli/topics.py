from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypedDict

import click

import jsonbus
from jsonbus.config import BusSettings

from .command import BusCommand, note, wait_until_sure, warn_unless_sure
from .output import Output

#: How a node's list names a topic that the node serves; part of the wire format.
SERVED_PREFIX = "jsonbus.request/"


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

    This is what decides whether a published value is sent: one that no pattern here matches is not.
    Topics that a node serves requests for are shown as served.
    """
    output = Output()
    with jsonbus.Bus(**settings) as bus:
        wait_until_sure(bus)
        names = {info.node: info.name for info in bus.nodes()}
        wanted = sorted(bus.subscriptions().items())
        warn_unless_sure(bus)
    rows = [_describe(pattern, nodes, names) for pattern, nodes in wanted]
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


def _describe(pattern: str, nodes: Sequence[str], names: Mapping[str, str]) -> Wish:
    return {
        "pattern": pattern.removeprefix(SERVED_PREFIX),
        "served": pattern.startswith(SERVED_PREFIX),
        "nodes": list(nodes),
        "names": [names.get(node, node) for node in nodes],
    }
