from __future__ import annotations

import click

import jsonbus
from jsonbus.config import BusSettings

from .command import BusCommand, note, warn_unless_sure, wait_until_sure
from .output import Output


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
