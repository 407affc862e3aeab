from __future__ import annotations

import sys

import click

import jsonbus
from jsonbus.config import BusSettings

from ..command import ValueCommand
from ..lib.names import TOPIC
from ..lib.output import Output
from ..lib.parameters import flag, option
from ..lib.values import parse_argument, to_readable_json


@click.command(
    "request",
    cls=ValueCommand,
    epilog="""\b
Examples:
  jsonbus request add '{"a": 1, "b": 2}'
  jsonbus request time                         without a value: null
  jsonbus request resize - < picture.json      the value from standard input
  jsonbus request slow --timeout 30
""",
)
@click.argument("topic", type=TOPIC)
@click.argument("value", required=False)
@option("-t --timeout SECONDS", "Wait this long for the reply; exit code 3 if none comes.", 1.0)
@flag("--text is_text", "The value is text, not JSON.")
def command(
    settings: BusSettings, topic: str, value: str | None, timeout: float, is_text: bool
) -> None:
    """Ask a node that serves a topic, and print its reply.

    Exit code 1 as soon as it is known that nobody serves TOPIC, or if the serving node reports an
    error.
    """
    if value == "-":
        value = sys.stdin.buffer.read().decode(errors="replace").strip()
    asked = None if value is None else parse_argument(value, is_text=is_text)
    output = Output()
    with jsonbus.Bus(**settings) as bus:
        reply = bus.request(topic, asked, timeout=timeout)
    if output.is_terminal:
        output.write_line(to_readable_json(reply))
        output.flush()
    else:
        output.write_results([reply])
