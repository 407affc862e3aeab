from __future__ import annotations

import sys
from collections.abc import Callable
from time import monotonic
from typing import Any

import click

import jsonbus
from jsonbus.config import BusSettings
from jsonbus.errors import ChannelRefusedError, ChannelTimeoutError, JsonBusError

from .. import signals
from ..command import BusCommand, is_quiet, note
from ..exit_codes import FAILED, TIMED_OUT
from ..lib.channel_copy import ChannelFailed, Copier, Input, Meter, NoInput
from ..lib.output import Output
from ..lib.parameters import Function, flag, option
from ..lib.values import printable

#: Refusals that trying again cannot change.
FINAL = ("ambiguous", "version")

CONVENTION = """\b
A side whose standard input has ended sends an empty message of bytes, and goes
on receiving; when both have done so, the channel is closed. Programs at the
other end do the same: in Python, channel.send(b"").
"""


def _copying_options(command: Function) -> Function:
    command = click.option(
        "--progress/--no-progress",
        default=None,
        help="Show a progress bar, with --raw [on a terminal, if it takes long].",
    )(command)
    return flag("--raw is_raw", "Copy bytes, for example a file, instead of JSON lines.")(command)


@click.group("channel")
def command() -> None:
    """Connect standard input and output to another node.

    One side listens at a port, which is any name; the other opens a channel to it. Each side copies
    its standard input to the other's standard output, in order and without loss: exit code 0 means
    that everything arrived, both ways.
    """


@command.command(
    "listen",
    cls=BusCommand,
    epilog=f"""\b
Examples:
  jsonbus channel listen chat                  JSON lines, both ways
  jsonbus channel listen files --raw > copy.png < /dev/null
  jsonbus channel listen files --raw < picture.png > /dev/null
  jsonbus channel listen log --keep >> log.jsonl

{CONVENTION}""",
)
@click.argument("port_name", metavar="PORT")  # --port is the bus's
@_copying_options
@option("-t --timeout SECONDS", "Wait this long for a connection; exit code 3 if none comes.")
@flag("--keep", "Accept one channel after the other, until Ctrl-C; standard input is not read.")
def listen(
    settings: BusSettings,
    port_name: str,
    is_raw: bool,
    progress: bool | None,
    timeout: float | None,
    keep: bool,
) -> None:
    """Accept a channel to a port of this node.

    Accepts one channel, copies standard input to it and the channel to standard output, as JSON
    lines or as bytes, and ends with it. Meanwhile other connections are refused: the port is taken.
    """
    _check_progress(progress, is_raw)
    output = Output()
    taken = failed = 0
    with (
        signals.until_interrupted(is_usual=keep and timeout is None) as ending,
        jsonbus.Bus(**settings) as bus,
    ):
        binding = bus.bind(port_name, exclusive=True)
        what = "channels" if keep else "a channel"
        note(f"{bus.name} takes {what} to {printable(port_name)}; Ctrl-C ends")
        if not keep:
            channel = _wait(binding.accept, timeout)
            source = Input(is_raw=is_raw)
            _copy(channel, source, output, progress, is_raw=is_raw, closing=binding.close)
            return
        while True:
            ending.is_usual = timeout is None
            try:
                channel = _wait(binding.accept, timeout)
            except ChannelTimeoutError:
                if not taken:
                    raise
                break
            ending.is_usual = False
            taken += 1
            try:
                _copy(channel, NoInput(), output, progress, is_raw=is_raw)
            except (ChannelFailed, JsonBusError) as error:
                note(str(error))  # the next one may succeed
                failed += 1
    if failed:
        raise click.exceptions.Exit(FAILED)


@command.command(
    "open",
    cls=BusCommand,
    epilog=f"""\b
Examples:
  jsonbus channel open garage chat             JSON lines, both ways
  jsonbus channel open garage files --raw < picture.png
  jsonbus channel open garage files --raw > copy.png < /dev/null
  echo '{{"a":1,"b":2}}' | jsonbus channel open desk add
  jsonbus channel open garage files --retry --timeout 60

{CONVENTION}""",
)
@click.argument("node")
@click.argument("port_name", metavar="PORT")  # --port is the bus's
@_copying_options
@option("-t --timeout SECONDS", "Give up connecting after this time, with exit code 3.", 5.0)
@flag("--retry", "Until then, wait for the node, for the port, or for the port to become free.")
def open_(
    settings: BusSettings,
    node: str,
    port_name: str,
    is_raw: bool,
    progress: bool | None,
    timeout: float,
    retry: bool,
) -> None:
    """Open a channel to a port of another node.

    NODE is its name or its id. Copies standard input to the channel and the channel to standard
    output, as JSON lines or as bytes, until the inputs of both sides have ended; a terminal counts
    as ended once the other side has. If there is no such node, or it refuses the channel, the
    reason is printed and the exit code is 1.
    """
    _check_progress(progress, is_raw)
    source, output = Input(is_raw=is_raw), Output()
    with jsonbus.Bus(**settings) as bus:
        try:
            channel = bus.connect(node, port_name, timeout=timeout, retry=retry)
        except ChannelRefusedError as error:
            if retry and error.reason not in FINAL:
                raise _TimedOut(error, timeout) from None
            raise
        _copy(channel, source, output, progress, is_raw=is_raw)


class _TimedOut(click.ClickException):
    exit_code = TIMED_OUT

    def __init__(self, last: ChannelRefusedError, timeout_s: float) -> None:
        cause = str(last).partition(": ")[0]  # what follows is advice: to try again
        super().__init__(f"no channel within {timeout_s:g} s: {cause}")


def _check_progress(progress: bool | None, is_raw: bool) -> None:
    if progress and not is_raw:
        raise click.UsageError("--progress counts bytes: use it with --raw")


def _wait(accept: Callable[[float], Any], timeout_s: float | None) -> jsonbus.Channel:
    """Return the channel of the next connection. Raises ChannelTimeoutError."""
    deadline = None if timeout_s is None else monotonic() + timeout_s
    while True:
        wait_s = signals.CHECK_S
        if deadline is not None:
            wait_s = max(0.0, min(wait_s, deadline - monotonic()))
        try:
            channel: jsonbus.Channel = accept(wait_s)
            return channel
        except ChannelTimeoutError as error:
            signals.check()
            if timeout_s is not None and deadline is not None and monotonic() >= deadline:
                raise ChannelTimeoutError(error.node, error.port, error.what, timeout_s) from None


def _copy(
    channel: jsonbus.Channel,
    source: Input,
    output: Output,
    progress: bool | None,
    *,
    is_raw: bool,
    closing: Callable[[], None] = lambda: None,
) -> None:
    name = printable(channel.name)
    note(f"connected to {name}")
    meter = _make_meter(source, output, progress, is_raw=is_raw)
    try:
        Copier(channel, source, output, meter, is_raw=is_raw, closing=closing).run()
    finally:
        meter.stop()
    if meter.sent:
        note(f"{name} got {meter.sent:,} bytes")
    if meter.received:
        note(f"{meter.received:,} bytes came from {name}")
    if source.refused:
        raise click.exceptions.Exit(FAILED)


def _make_meter(source: Input, output: Output, progress: bool | None, *, is_raw: bool) -> Meter:
    is_screen = sys.stderr.isatty()
    if not (is_raw and is_screen and not is_quiet() if progress is None else progress):
        return Meter()
    # Imported only if it is shown: it takes as long as all other imports together.
    from ..lib.copy_progress import ProgressMeter

    return ProgressMeter(
        source.size_bytes,
        at_once=progress is True,
        gives_way=is_screen and output.is_terminal,
    )
