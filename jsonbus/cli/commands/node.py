from __future__ import annotations

import click

import jsonbus
from jsonbus.config import BusSettings

from .. import signals
from ..command import NodeCommand, note
from ..lib.message_printer import MessagePrinter
from ..lib.output import Output
from ..lib.parameters import repeated


@click.command(
    "node",
    cls=NodeCommand,
    epilog="""\b
Examples:
  jsonbus node --master                        answer late joiners, in mode master
  jsonbus node --subs-share-delay 0            answer late joiners first, in mode delayed
  jsonbus node --name desk --sub 'alarm/**'    and print what comes, retained values first
""",
)
@repeated("--sub PATTERN patterns", "Subscribe to this; may be repeated.")
def command(settings: BusSettings, patterns: tuple[str, ...]) -> None:
    """Stay on the bus and report who joins, leaves and expires.

    The report goes to standard error; a node expires when it is no longer heard. Messages of the
    patterns given with --sub are printed as `jsonbus sub` prints them. Runs until Ctrl-C.
    """
    with signals.until_interrupted(), jsonbus.Bus(**settings) as bus:
        config = bus.config
        note(f"{bus.name} joined {config.group}:{config.port} in mode {config.mode}; Ctrl-C ends")
        if patterns:
            MessagePrinter(bus, patterns, Output()).run()
        else:
            signals.stay()
