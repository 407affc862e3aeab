"""`jsonbus demo`: the product at work on this machine.

process.py       processes of their own, started, heard and ended
loopback.py      where its buses are
sensor.py        a process: publishes readings, and does wrong when told to
leash.py         a process: any command, here the bridge, that ends with the demo
pipeline_*.py    sensors, bus, bridge and Spark: stage, commands, scene, script, view
counts.py        what has to be equal in the end
sharing_*.py     --bus: the modes of sharing subscriptions, without Spark
"""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from jsonbus.config import MODES

from ..command import note
from ..exit_codes import FAILED, INTERRUPTED
from ..lib.output import Output

if TYPE_CHECKING:
    from jsonbus.demo.sharing_report import Tally
    from jsonbus.demo.sharing_view import DemoView

#: With Spark's start and the end of everything, less than two minutes.
SECONDS = 60.0
#: Three modes and their pauses in about half a minute.
SECONDS_PER_MODE = 7.0

RATE_PER_S = 500.0


@click.command(
    "demo",
    epilog="""\b
Examples:
  jsonbus demo
  jsonbus demo --seconds 20 --rate 5000        a short one, with more readings
  jsonbus demo --keep data                     what it recorded stays in data
  jsonbus demo --bus                           without Spark: who gets what, in the three modes
  jsonbus demo --bus --mode master
""",
)
@click.option(
    "-s",
    "--seconds",
    type=click.FloatRange(min=1, max=3600),
    metavar="SECONDS",
    help=f"How long it takes once everything runs [{SECONDS:g}]; with --bus, each mode "
    f"[{SECONDS_PER_MODE:g}].",
)
@click.option(
    "--forever",
    "is_forever",
    is_flag=True,
    help="Stay until Ctrl-C; with --bus, in one mode [delayed].",
)
@click.option(
    "--rate",
    type=click.FloatRange(min=50, max=100_000),
    metavar="PER_SECOND",
    help=f"Readings of all sensors [{RATE_PER_S:g}].",
)
@click.option(
    "--keep",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="FOLDER",
    help="Keep the bridge's log, the Parquet files and the checkpoints there.",
)
@click.option("--bus", "is_bus", is_flag=True, help="Show how nodes find each other, no Spark.")
@click.option(
    "--mode",
    "modes",
    type=click.Choice(MODES),
    multiple=True,
    help="With --bus: show this mode only; may be repeated [all three].",
)
def command(
    seconds: float | None,
    is_forever: bool,
    rate: float | None,
    keep: Path | None,
    is_bus: bool,
    modes: tuple[str, ...],
) -> None:
    """Watch sensors, bus, bridge and Spark at work on this machine.

    Sensors in processes of their own publish; a bridge records them; Spark writes them to Parquet
    and brings windows and alerts back onto the bus. In the end every station's count has to be
    equal, else the exit code is 1. Everything stays on the loopback interface, on ports of its own:
    a bus that you use is not touched. It ends by itself; Ctrl-C ends it at once, and all its
    processes with it.
    """
    if is_bus:
        if rate is not None or keep is not None:
            raise click.UsageError("--rate and --keep are for the demo with Spark, not for --bus")
        if is_forever and len(modes) > 1:
            raise click.UsageError("--forever stays in one mode: give one --mode, or none")
        _show_sharing(seconds or SECONDS_PER_MODE, modes, is_forever)
        return
    if modes:
        raise click.UsageError("--mode is for the demo without Spark: give --bus, too")
    if keep is not None and keep.exists() and any(keep.iterdir()):
        raise click.UsageError(f"{keep} is not empty: --keep needs a folder of its own")
    _check_spark()
    _show_pipeline(seconds or SECONDS, rate or RATE_PER_S, is_forever, keep)


def _check_spark() -> None:
    missing = [each for each in ("pyspark", "pyarrow") if importlib.util.find_spec(each) is None]
    if missing:
        raise click.ClickException(
            f"the demo needs {' and '.join(missing)}: python3 -m pip install 'jsonbus[spark]' "
            "(half a gigabyte, with a Java); jsonbus demo --bus works without"
        )


def _show_pipeline(seconds: float, rate: float, is_forever: bool, keep: Path | None) -> None:
    from jsonbus.demo.counts import verify
    from jsonbus.demo.pipeline_stage import PipelineStage
    from jsonbus.demo.pipeline_view import LineView, LiveView, PipelineView

    view: PipelineView = LiveView() if _has_screen() else LineView(Output())
    view.introduce()
    if keep is not None:
        keep.mkdir(parents=True, exist_ok=True)
    stage = PipelineStage(seconds, rate, view, is_forever=is_forever, keep=keep)
    try:
        with stage:
            stage.run()
    except KeyboardInterrupt:
        view.end(stage.scene)
        note("interrupted: everything has ended, the counts were not compared")
        raise click.exceptions.Exit(0 if is_forever else INTERRUPTED) from None
    except BaseException:
        view.end(stage.scene)
        raise
    view.end(stage.scene)
    checks = verify(stage.scene.counts())
    view.summarize(stage.scene, checks)
    if keep is not None:
        note(f"{keep} has the log of the bridge, the Parquet files and the checkpoints")
    if not all(check.holds for check in checks):
        raise click.exceptions.Exit(FAILED)


def _show_sharing(seconds: float, modes: tuple[str, ...], is_forever: bool) -> None:
    from jsonbus.demo.sharing_view import LineView, LiveView

    view: DemoView = LiveView() if _has_screen() else LineView(Output())
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
    from jsonbus.demo.sharing_stage import Stage

    stage = Stage(mode, seconds, view)
    try:
        view.begin(stage.scene)
        with stage:
            stage.run(is_forever=is_forever)
    finally:
        view.end(stage.scene)
        tallies.append(stage.scene.tally())


def _has_screen() -> bool:
    """Whether a table can change in place."""
    is_dumb = os.environ.get("TERM", "dumb") in ("dumb", "unknown")
    return Output().is_terminal and not is_dumb
