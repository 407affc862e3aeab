from __future__ import annotations

import click

from jsonbus.config import BusSettings

from ..command import BusCommand
from ..lib.observer import observer_options
from ..lib.parameters import flag, option

#: Orders of the topics; the first is the default.
ORDERS = ("rate", "topic", "bytes", "publishers", "subscribers", "loss", "age")

#: How long --once collects by default.
ONCE_S = 2.0

#: Seconds between pictures, on a screen and in a pipe.
SCREEN_S = 0.5
LINES_S = 1.0


@click.command(
    "top",
    cls=BusCommand,
    epilog="""\b
Examples:
  jsonbus top
  jsonbus top 'sensors/**' --sort bytes
  jsonbus top --once --json | jq -r '.topics[] | [.topic, .rate] | @tsv'
  jsonbus top --interval 10 >> bus.jsonl        a picture every 10 seconds, for ever
  jsonbus top --subscribe                       also topics that nobody else wants

\b
On the screen: Tab switches between topics and nodes; arrows, PgUp, PgDn, Home and End move; Enter
shows everything about a row; / filters; r t b p s l a and < > choose the order, i reverses it;
Space freezes the picture, not the counting; ? shows the keys; q quits.
""",
)
@observer_options
@flag("--once", "Collect for a while, print one picture, and end.")
@flag("--json is_json", "Print JSON on a terminal, too.")
@option(
    "-d --duration SECONDS", f"End after this time; with --once, collect this long [{ONCE_S:g}]."
)
@option(
    "--interval SECONDS",
    f"Time between pictures [{SCREEN_S:g} on a screen, {LINES_S:g} in a pipe].",
    bounds=(0.05, 3600),
)
@option("--sort", "Order of the topics.", ORDERS[0], type=click.Choice(ORDERS))
def command(
    settings: BusSettings,
    patterns: tuple[str, ...],
    is_subscribing: bool,
    once: bool,
    is_json: bool,
    duration: float | None,
    interval: float | None,
    sort: str,
) -> None:
    """Show what flows on the bus, live: topics, nodes, rates, losses.

    For each topic: messages and bytes per second, how many nodes publish and subscribe, which
    fraction of its publishers' messages was lost on the way here, and the last value. For each
    node: what it reports to have sent, received, suppressed, lost and repaired. Observing changes
    nothing: a value that nobody wants is not sent, and so not seen, unless --subscribe asks for it.

    On a terminal this is a screen with keys. In a pipe it is one JSON object per interval, with the
    keys at, overview, topics and nodes; with --once, a single one.
    """
    from ..top.session import Session

    session = Session(
        settings, patterns, is_subscribing=is_subscribing, order=sort, duration_s=duration
    )
    if once:
        session.print_once(is_json=is_json)
    else:
        session.run(interval, is_json=is_json)
