"""`jsonbus demo`: watch the product at work on this machine."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import click

from jsonbus.config import MODES

from .. import signals
from ..command import note
from ..exit_codes import FAILED
from ..lib.parameters import flag, option

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
  jsonbus demo --seconds 20 --rate 5000        shorter, with more readings
  jsonbus demo --keep data                     keep what it recorded in data
  jsonbus demo --bus                           without Spark: who gets what in the three modes
  jsonbus demo --bus --mode master
""",
)
@option(
    "-s --seconds SECONDS",
    f"How long to run once everything has started [{SECONDS:g}]; with --bus, per mode "
    f"[{SECONDS_PER_MODE:g}].",
    bounds=(1, 3600),
)
@flag("--forever is_forever", "Run until Ctrl-C; with --bus, in one mode [delayed].")
@option(
    "--rate PER_SECOND",
    f"Readings per second, of all sensors together [{RATE_PER_S:g}].",
    bounds=(50, 100_000),
)
@option(
    "--keep FOLDER", "Keep the bridge's log, the Parquet files and the checkpoints in this folder."
)
@flag("--bus is_bus", "Show how nodes learn who wants what; without Spark.")
@option(
    "--mode modes",
    "With --bus: show only this mode; may be repeated [all three].",
    type=click.Choice(MODES),
    multiple=True,
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

    Sensors publish, each in its own process; a bridge records them; Spark writes them to Parquet
    and publishes windows and alerts on the bus. At the end the counts of all stations must be
    equal, else the exit code is 1. Everything stays on the loopback interface, on free ports: a bus
    that you use is not touched. Ctrl-C ends it at once, with all its processes.
    """
    if is_bus:
        if rate is not None or keep is not None:
            raise click.UsageError("--rate and --keep are for the demo with Spark, not for --bus")
        if is_forever and len(modes) > 1:
            raise click.UsageError("--forever stays in one mode: give one --mode, or none")
    elif modes:
        raise click.UsageError("--mode is for the demo without Spark: add --bus")
    elif keep is not None and keep.exists() and any(keep.iterdir()):
        raise click.UsageError(f"{keep} is not empty: --keep needs a new or empty folder")
    else:
        _check_spark()

    from jsonbus.demo.processes import DemoError

    try:
        with signals.until_interrupted(is_usual=is_forever):
            if is_bus:
                _show_bus(seconds or SECONDS_PER_MODE, modes, is_forever)
            else:
                _show_pipeline(seconds or SECONDS, rate or RATE_PER_S, is_forever, keep)
    except DemoError as error:
        raise click.ClickException(str(error)) from error


def _check_spark() -> None:
    missing = [each for each in ("pyspark", "pyarrow") if importlib.util.find_spec(each) is None]
    if missing:
        raise click.ClickException(
            f"the demo needs {' and '.join(missing)}: python3 -m pip install 'jsonbus[spark]' "
            "(half a gigabyte, with a Java); jsonbus demo --bus works without"
        )


def _show_bus(seconds: float, modes: tuple[str, ...], is_forever: bool) -> None:
    from jsonbus.demo.bus_show import show_bus
    from jsonbus.demo.view import View

    modes = modes or (("delayed",) if is_forever else MODES)
    show_bus(modes, seconds, View(), signals.check, is_forever=is_forever)


def _show_pipeline(seconds: float, rate: float, is_forever: bool, keep: Path | None) -> None:
    from jsonbus.demo.pipeline_show import show_pipeline
    from jsonbus.demo.view import View

    if keep is not None:
        keep.mkdir(parents=True, exist_ok=True)
    try:
        is_equal = show_pipeline(
            seconds, rate, View(), signals.check, is_forever=is_forever, keep=keep
        )
    except KeyboardInterrupt:
        note("interrupted: all processes have ended; the counts were not compared")
        raise
    if keep is not None:
        note(f"{keep} has the log of the bridge, the Parquet files and the checkpoints")
    if not is_equal:
        raise click.exceptions.Exit(FAILED)
