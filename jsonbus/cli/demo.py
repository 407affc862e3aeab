from __future__ import annotations

import os

import click

from jsonbus.config import MODES

from .command import note
from .demo_report import Tally
from .demo_stage import Stage
from .demo_view import DemoView, LineView, LiveView
from .output import Output

#: Three modes and their pauses in about half a minute.
SECONDS = 7.0


@click.command(
    "demo",
    epilog="""\b
Examples:
  jsonbus demo
  jsonbus demo --seconds 3                     a short one
  jsonbus demo --mode master
  jsonbus demo --forever                       mode delayed until Ctrl-C
""",
)
@click.option(
    "-s",
    "--seconds",
    type=click.FloatRange(min=1, max=3600),
    default=SECONDS,
    show_default=True,
    metavar="SECONDS",
    help="How long each mode takes.",
)
@click.option(
    "--mode",
    "modes",
    type=click.Choice(MODES),
    multiple=True,
    help="Show this mode only; may be repeated [all three].",
)
@click.option(
    "--forever", "is_forever", is_flag=True, help="Stay in one mode [delayed] until Ctrl-C."
)
def command(seconds: float, modes: tuple[str, ...], is_forever: bool) -> None:
    """Watch sensors and subscribers find each other on this machine.

    Sensors in processes of their own publish; a subscriber comes late and leaves again. The table
    shows what is sent and what is suppressed, in mode basic, master and delayed; a summary compares
    them. Everything stays on the loopback interface, on ports of its own: a bus that you use is not
    touched. It ends by itself; Ctrl-C ends it at once, and all its processes with it.
    """
    if is_forever and len(modes) > 1:
        raise click.UsageError("--forever stays in one mode: give one --mode, or none")
    view = _make_view()
    view.introduce()
    tallies: list[Tally] = []
    try:
        for mode in modes or (("delayed",) if is_forever else MODES):
            _run_mode(mode, seconds, is_forever, view, tallies)
    except KeyboardInterrupt:
        note("interrupted: what follows is what there was to see so far")
    view.summarize(tallies)


def _run_mode(
    mode: str, seconds: float, is_forever: bool, view: DemoView, tallies: list[Tally]
) -> None:
    """One mode to its end, whatever that is; its tally is added in any case."""
    stage = Stage(mode, seconds, view)
    try:
        view.begin(stage.scene)
        with stage:
            stage.run(is_forever=is_forever)
    finally:
        view.end(stage.scene)
        tallies.append(stage.scene.tally())


def _make_view() -> DemoView:
    output = Output()
    is_dumb = os.environ.get("TERM", "dumb") in ("dumb", "unknown")
    return LiveView() if output.is_terminal and not is_dumb else LineView(output)
