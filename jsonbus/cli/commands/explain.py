from __future__ import annotations

import dataclasses

import click

import jsonbus
from jsonbus.config import BusSettings

from ..command import BusCommand, note, wait_until_sure
from ..lib.names import TOPIC
from ..lib.output import Output
from ..lib.values import printable


@click.command(
    "explain",
    cls=BusCommand,
    epilog="""\b
Examples:
  jsonbus explain sensors/kitchen
  jsonbus explain sensors/kitchen | jq -r .verdict
""",
)
@click.argument("topic", type=TOPIC)
def command(settings: BusSettings, topic: str) -> None:
    """Explain why a value would be sent, held or not sent.

    The answer is for a publisher that joins now with the same options.
    """
    output = Output()
    with jsonbus.Bus(**settings) as bus:
        wait_until_sure(bus)
        explanation = bus.explain(topic)
        if bus.sealed is not None:
            note(f"sealed: the bus {bus.sealed}; only nodes with its keys count")
    if output.is_terminal:
        output.write_line(printable(str(explanation)))
        if explanation.wanted_by:
            output.write_line(f"wanted by: {printable(', '.join(explanation.wanted_by))}")
        output.flush()
    else:
        output.write_results([dataclasses.asdict(explanation)])
