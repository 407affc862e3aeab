from __future__ import annotations

import click

import jsonbus
from jsonbus.config import BusSettings

from .. import signals
from ..command import BusCommand, note
from ..exit_codes import TIMED_OUT
from ..lib.message_printer import MessagePrinter
from ..lib.names import PATTERN
from ..lib.numbers import counted
from ..lib.output import Output
from ..lib.parameters import flag, option


@click.command(
    "sub",
    cls=BusCommand,
    epilog="""\b
Examples:
  jsonbus sub 'sensors/**'                     everything below sensors/
  jsonbus sub 'sensors/*/temp' door            * is one level; several patterns are fine
  jsonbus sub --value sensors/kitchen | jq .temp
  jsonbus sub --once --timeout 10 door         wait for one message; exit code 3 if none comes
  jsonbus sub --once --value door              the current value; at once if it is retained
  jsonbus sub '**' > messages.jsonl            keep them; publish again: pub < messages.jsonl
""",
)
@click.argument("patterns", nargs=-1, required=True, metavar="PATTERN...", type=PATTERN)
@option("-c --count N", "End after N messages.")
@flag("--once", "End after one message; the same as --count 1.")
@option(
    "-t --timeout SECONDS",
    "End after this time; exit code 3 if no message, or fewer than --count, came.",
)
@flag("--value value_only", "Print values only, not whole messages.")
@flag("--gaps has_gaps", "Also print how many messages of a reliable topic are missing for good.")
def command(
    settings: BusSettings,
    patterns: tuple[str, ...],
    count: int | None,
    once: bool,
    timeout: float | None,
    value_only: bool,
    has_gaps: bool,
) -> None:
    """Print the messages of topics.

    A PATTERN is a topic, in which * stands for one level and ** for any number of levels. On a
    terminal a message is a readable line. In a pipe it is one JSON object with the keys topic,
    value, node, name, sequence, sent_at and received_at, and for a retained value also
    "retained": true. With --gaps, there are also objects with the one key "jsonbus.gap"; pub passes
    over them. Runs until Ctrl-C, --count or --timeout.
    """
    if once and count is not None:
        raise click.UsageError("--once is --count 1: give one of them")
    if once:
        count = 1
    output = Output()
    is_endless = count is None and timeout is None
    with signals.until_interrupted(is_usual=is_endless), jsonbus.Bus(**settings) as bus:
        printer = MessagePrinter(bus, patterns, output, value_only=value_only, has_gaps=has_gaps)
        if output.is_terminal:
            note(f"subscribed to {', '.join(patterns)} as {bus.name}; Ctrl-C ends")
        printer.run(count, timeout)
    if timeout is not None and printer.printed < (count or 1) and output.has_reader():
        note(f"{counted(printer.printed, 'message')} within {timeout:g} s")
        raise click.exceptions.Exit(TIMED_OUT)
