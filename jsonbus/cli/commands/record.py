from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from time import monotonic, time
from typing import Any

import click

import jsonbus
from jsonbus.config import BusSettings
from jsonbus.errors import JsonBusError
from jsonbus.recording import Losses, RecordingWriter
from jsonbus.recording.formats import FORMATS

from .. import signals
from ..command import BusCommand, note
from ..exit_codes import TIMED_OUT
from ..lib.names import PATTERN
from ..lib.numbers import counted
from ..lib.observer import observer_settings
from ..lib.parameters import Figure, flag, option
from ..lib.traffic_progress import Figures, TrafficProgress, show_seconds

#: Messages queued for the disk: some milliseconds of a flood.
MAILBOX_MAX = 10_000

#: A crash of this process loses at most what came in this time.
FLUSH_S = 0.5

#: Time to write at the end what was already received.
DRAIN_S = 10.0


@click.command(
    "record",
    cls=BusCommand,
    epilog="""\b
Examples:
  jsonbus record run.jsonl                     everything, until Ctrl-C
  jsonbus record run.mcap 'sensors/**' door    for Foxglove and PlotJuggler
  jsonbus record --duration 60 run.jsonl.gz
  jsonbus record --passive run.jsonl           only what is sent for others anyway
  jsonbus record --rotate-size 100M --keep 10 run.jsonl.gz
                                               run.00000.jsonl.gz, …: the last gigabyte
""",
)
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@click.argument("patterns", nargs=-1, metavar="[PATTERN]...", type=PATTERN)
@option("--format", "Format to write, whatever the name of FILE.", type=click.Choice(FORMATS))
@flag("--force", "Overwrite FILE if it exists.")
@flag("--passive", "Record only what is sent for others anyway.")
@option(
    "-d --duration SECONDS", "End after this time; exit code 3 if fewer than --count messages came."
)
@option("-c --count N", "End after N messages.")
@option("--max-size SIZE bytes_max", "End before the files exceed this size (k, M, G).")
@option(
    "--rotate-size SIZE rotate_bytes", "Begin a new, numbered file before one exceeds this size."
)
@option(
    "--rotate-every SECONDS rotate_s",
    "Begin a new, numbered file after this time.",
    type=Figure(min=0, min_open=True),
)
@option("--keep N", "Keep only the last N of the numbered files.")
def command(
    settings: BusSettings,
    file: Path,
    patterns: tuple[str, ...],
    passive: bool,
    duration: float | None,
    count: int | None,
    bytes_max: int | None,
    **options: Any,
) -> None:
    """Record messages into a file: JSON lines or MCAP.

    The name of FILE decides the format: .jsonl, a JSON object per line as `jsonbus sub` prints it
    into a pipe; .jsonl.gz, the same compressed; or .mcap. Without PATTERN everything is recorded.
    `jsonbus replay FILE` publishes it again. A recorder that is killed loses at most half a second.
    With --rotate-size or --rotate-every the files are numbered before the suffix: run.00000.jsonl;
    a recorder that is started again continues after the last one.
    """
    if str(file) == "-":
        raise click.UsageError(
            "use `jsonbus sub PATTERN...` to print the same lines to standard output"
        )
    wanted = [jsonbus.check_pattern(each) for each in patterns or ("**",)]
    limits = (count, duration, bytes_max)
    if passive:
        settings = observer_settings(settings, "leave --passive out")
    is_endless = all(each is None for each in limits)
    with (
        signals.until_interrupted(is_usual=is_endless),
        jsonbus.Bus(**settings) as bus,
        RecordingWriter(file, count_max=count, bytes_max=bytes_max, **options) as writer,
    ):
        recorder = _Recorder(bus, writer, wanted, limits, is_passive=passive)
        how = "passively " if passive else ""
        try:
            note(f"recording {', '.join(wanted)} {how}to {writer.paths[-1]}; Ctrl-C ends")
            with TrafficProgress("recording", recorder.figures):
                recorder.run()
        finally:
            try:
                recorder.end()
                writer.close()
            finally:
                recorder.report()
    if count is not None and writer.messages < count:
        raise click.exceptions.Exit(TIMED_OUT)


class _Recorder:
    """Passes messages from the bus to the writer, and reports losses.

    The mailbox blocks when it is full: while the disk is slow, messages stay in the buffer of the
    kernel, and reliable ones are asked for again, instead of being dropped here.
    """

    def __init__(
        self,
        bus: jsonbus.Bus,
        writer: RecordingWriter,
        patterns: Sequence[str],
        limits: tuple[int | None, float | None, int | None],
        *,
        is_passive: bool,
    ) -> None:
        #: Messages, seconds and bytes after which the recording ends.
        self._limits = limits
        self._bus = bus
        self._writer = writer
        self._changed = threading.Event()  # the writer is full, or failed
        self._told = Losses(0.0, 0, 0, 0)
        self._losses = self._told
        self._began_at = monotonic()
        self._seconds = 0.0
        self._subscription = bus.subscribe(
            patterns,
            self._take,
            maxsize=MAILBOX_MAX,
            overflow="block",
            in_batches=True,
            passive=is_passive,
        )

    def run(self) -> None:
        """Record until a limit is reached. Raises KeyboardInterrupt or RecordingError."""
        duration = self._limits[1]
        deadline = None if duration is None else self._began_at + duration
        while not self._changed.is_set():
            wait_s = FLUSH_S if deadline is None else min(FLUSH_S, deadline - monotonic())
            if wait_s <= 0:
                return
            self._changed.wait(wait_s)
            signals.check()
            self._writer.flush()
            self._note_losses()
        if self._writer.failure is not None:
            raise self._writer.failure

    def end(self) -> None:
        """Take no more messages, but write those that were received."""
        subscription, writer = self._subscription, self._writer
        for pattern in subscription.patterns:
            subscription.remove_pattern(pattern)
        deadline = monotonic() + DRAIN_S
        while subscription.pending or subscription.is_handling:
            if writer.is_full or writer.failure is not None or monotonic() > deadline:
                break
            self._changed.wait(0.005)
        self._seconds = monotonic() - self._began_at
        if not writer.is_full:
            subscription.close()
        if writer.failure is None:
            self._note_losses()
        else:
            self._losses = self._count_losses()

    def figures(self) -> Figures:
        """Return the figures for the progress line."""
        writer = self._writer
        parts = (writer.messages, monotonic() - self._began_at, writer.bytes)
        shares = [part / whole for part, whole in zip(parts, self._limits, strict=True) if whole]
        losses = self._losses
        named = {"lost": losses.lost, "dropped": losses.dropped}
        named["datagrams dropped by the kernel"] = losses.kernel_drops
        troubles = [f"{count:,} {name}" for name, count in named.items() if count]
        return Figures(
            writer.messages,
            writer.bytes,
            max(shares) if shares else None,
            facts=[show_seconds(monotonic() - self._began_at), *(() if troubles else ("0 lost",))],
            troubles=troubles,
        )

    def report(self) -> None:
        """Print the last line: what is in the recording, and what is missing."""
        from rich.filesize import decimal

        writer, losses = self._writer, self._losses
        place = str(writer.paths[0])
        if len(writer.paths) > 1:
            place += f" to {writer.paths[-1].name}"
        if writer.deleted:
            files = "file" if writer.deleted == 1 else "files"
            place += f", {writer.deleted:,} older {files} deleted"
        unwritten = f"{writer.unwritten:,} received, but not written" if writer.unwritten else ""
        told = ", ".join(filter(None, (losses.tell(), unwritten))) or "nothing was lost"
        messages = counted(writer.written, "message")
        size = decimal(writer.bytes)
        note(f"recorded {messages}, {size}, in {self._seconds:.1f} s: {place}; {told}")

    def _take(self, messages: list[jsonbus.Message]) -> None:
        """Write messages. Runs in a thread of the bus."""
        writer = self._writer
        if writer.is_full:
            return
        try:
            writer.write(messages)
        except JsonBusError:
            if writer.failure is None:
                raise  # a bug; logged
            self._changed.set()
        if writer.is_full:
            self._changed.set()

    def _count_losses(self) -> Losses:
        stats = self._bus.stats()
        return Losses(
            time(),
            max(0, stats["messages_lost"]),
            stats["messages_given_up"],
            self._subscription.dropped,
            stats["kernel_drops"],
        )

    def _note_losses(self) -> None:
        """Note losses in the recording, too, when there are more of them."""
        self._losses = losses = self._count_losses()
        if losses.counts != self._told.counts:
            self._told = losses
            self._writer.note_losses(losses)
