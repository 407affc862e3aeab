from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Iterable, Iterator
from datetime import datetime
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import click

import jsonbus
from jsonbus.config import BusSettings
from jsonbus.errors import InvalidTopicError, LocalError
from jsonbus.recording import Player, Recording
from jsonbus.recording.player import select
from jsonbus.recording.reader import Timed

from .. import signals
from ..command import BusCommand, note, wait_until_sure
from ..exit_codes import FAILED, TIMED_OUT
from ..lib.numbers import counted
from ..lib.parameters import flag, option, repeated
from ..lib.staying import stay_if_asked
from ..lib.traffic_progress import Figures, TrafficProgress, show_seconds
from ..lib.values import printable

#: Records that cannot be replayed and are reported one by one.
TROUBLES_TOLD_MAX = 10

#: --wait waits for a subscriber of one of the first messages, this many.
MESSAGES_WAITED_FOR = 1_000

#: How often to check whether there is one.
LOOK_S = 0.02

#: How long another thread, such as the one that shows figures, may keep the interpreter while a
#: message is due. The default of Python is 5 ms.
SWITCH_S = 0.0005

#: A larger delay is mentioned in the summary.
LAG_TOLD_S = 0.05


def read_speed(text: str | float) -> float:
    """Return the factor of the recorded speed; infinity is as fast as possible."""
    if text == "max":
        return math.inf
    try:
        speed = float(text)
    except ValueError:
        speed = math.nan
    if not (speed > 0 and math.isfinite(speed)):
        raise click.BadParameter(f"{text!r} is not a speed: use 0.5, 1, 10 or max")
    return speed


def read_moment(text: str) -> tuple[float, bool]:
    """Return a moment: seconds since the first message (True), or since 1970 (False)."""
    try:
        seconds = float(text)
        if math.isfinite(seconds) and seconds >= 0:
            return seconds, True
    except ValueError:
        pass
    try:
        return datetime.fromisoformat(text).timestamp(), False
    except (ValueError, OverflowError, OSError):
        raise click.BadParameter(
            f"{text!r} is not a time: use seconds since the beginning, or 2026-11-18T15:04:05"
        ) from None


@click.command(
    "replay",
    cls=BusCommand,
    epilog="""\b
Examples:
  jsonbus replay run.jsonl                     at the recorded speed; also numbered files
  jsonbus replay --speed 10 --topic 'sensors/**' run.mcap
  jsonbus replay --loop --topic-prefix test run.jsonl
  jsonbus replay --start 60 --end 90 run.jsonl.gz
  jsonbus replay --speed max --reliable --wait 10 run.mcap
""",
)
@click.argument(
    "files", nargs=-1, required=True, metavar="FILE...", type=click.Path(path_type=Path)
)
@repeated("--topic PATTERN patterns", "Replay only these topics; may be repeated.")
@option(
    "-s --speed FACTOR",
    "Replay faster or slower by this factor; max: as fast as the bus accepts it [1].",
    1.0,
    type=read_speed,
    show_default=False,
)
@option("--start WHEN", "Leave out messages before this moment.", type=read_moment)
@option("--end WHEN", "Leave out messages from this moment on.", type=read_moment)
@flag("--loop", "Repeat until Ctrl-C.")
@option("--times N", "Replay N times.")
@option("--topic-prefix LEVELS", "Put this before all topics.", "", show_default=False)
@flag("--retain", "Retain all values while this command runs, not only those that were retained.")
@flag("--stay", "Stay on the bus afterwards, until Ctrl-C, for retained values and repairs.")
@option(
    "-w --wait SECONDS",
    "Wait this long for a subscriber first; exit code 3 if none comes.",
)
def command(
    settings: BusSettings,
    files: tuple[Path, ...],
    patterns: tuple[str, ...],
    speed: float,
    start: tuple[float, bool] | None,
    end: tuple[float, bool] | None,
    loop: bool,
    times: int | None,
    topic_prefix: str,
    retain: bool,
    stay: bool,
    wait: float | None,
) -> None:
    """Publish recorded messages, at their times.

    Messages are published at the intervals at which the recorder received them; several FILEs are
    replayed side by side. A FILE that does not exist stands for its numbered files. WHEN is in
    seconds since the first message, or a date and time. A replay that falls behind catches up and
    leaves nothing out.

    This node is the publisher of all messages. Values that were retained, and those that followed
    to the same topic, are retained until this command ends. Reliable messages are repaired until
    0.3 s after the last one, or with --stay until Ctrl-C. A value that nobody subscribes to is not
    sent. Records that cannot be read or published are reported, and make the exit code 1; a
    recording without an end, because its recorder was killed, does not.
    """
    if loop and stay:
        raise click.UsageError("--loop never ends: --stay has no effect with it")
    if loop and times is not None:
        raise click.UsageError("--loop and --times exclude each other: leave out one")
    for each in patterns:
        jsonbus.check_pattern(each)
    start_at, is_start_counted = start or (-math.inf, False)
    end_at, is_end_counted = end or (math.inf, False)
    replay = _Replay(
        files,
        patterns=patterns,
        start=start_at,
        end=end_at,
        is_from_beginning=(is_start_counted, is_end_counted),
    )
    with signals.until_interrupted(is_usual=loop) as ending, jsonbus.Bus(**settings) as bus:
        player = Player(
            bus.publish,
            speed=speed,
            topic_prefix=topic_prefix,
            retain=retain,
            check=signals.check,
            on_refused=replay.refuse,
        )
        wait_until_sure(bus)
        if wait is not None and not replay.wait_for_subscriber(bus, player, wait):
            note(f"nobody subscribed to any of it within {wait:g} s")
            raise click.exceptions.Exit(TIMED_OUT)
        replay.play(bus, player, itertools.count() if loop else range(times or 1))
        stay_if_asked(bus, ending, stay=stay)
    if replay.troubles:
        raise click.exceptions.Exit(FAILED)


class _Replay:
    """Plays the messages that `select` yields with the keywords `wanted`.

    Reports records that were not replayed: in the first pass, the first ones one by one.
    """

    def __init__(self, files: tuple[Path, ...], **wanted: Any) -> None:
        self.troubles = 0
        self._recording = Recording(*files, on_trouble=self._tell)
        self._wanted = wanted
        self._is_first_pass = False
        self._skipped_before = 0  # in the passes that are over

    def wait_for_subscriber(self, bus: jsonbus.Bus, player: Player, wait_s: float) -> bool:
        """Wait for a subscriber of one of the first messages, and return False if none comes."""
        first = itertools.islice(self._select(), MESSAGES_WAITED_FOR)
        # Topics that cannot be published are left out here: playing reports them.
        topics = list(filter(_is_topic, dict.fromkeys(player.topic_of(each) for _, each in first)))
        deadline = monotonic() + wait_s
        while topics and not any(bus.has_subscribers(each) for each in topics):
            signals.check()
            if monotonic() >= deadline:
                return False
            sleep(LOOK_S)
        return True

    def play(self, bus: jsonbus.Bus, player: Player, passes: Iterable[int]) -> None:
        """Play the recording once per pass, and report."""
        began_at = monotonic()
        is_over = False
        sys.setswitchinterval(SWITCH_S)
        try:
            with TrafficProgress("replaying", lambda: self._figures(player)):
                for number in passes:
                    self._is_first_pass = number == 0
                    if number:
                        self._skipped_before += self._recording.skipped
                    if not player.play(self._select()):
                        break  # nothing to play: it would loop for ever
                if not bus.flush():
                    raise click.ClickException("the network did not accept everything in time")
            is_over = True
        finally:
            if is_over or player.played:  # else an error says why nothing was
                self._report(player, monotonic() - began_at)

    def refuse(self, message: jsonbus.Message, error: LocalError) -> None:
        self._tell(f"a message of {message.received_at:.6f} is not published: {error}")

    def _select(self) -> Iterator[Timed]:
        return select(self._recording.timed(), **self._wanted)

    def _tell(self, text: str) -> None:
        if not self._is_first_pass:
            return
        self.troubles += 1
        if self.troubles <= TROUBLES_TOLD_MAX:
            note(printable(text))
        elif self.troubles == TROUBLES_TOLD_MAX + 1:
            note("…")

    def _left_out(self, player: Player) -> int:
        """Return how many records were not replayed, in all passes."""
        return self._skipped_before + self._recording.skipped + player.refused

    def _figures(self, player: Player) -> Figures:
        position, size = self._recording.position, self._recording.size
        facts = [f"at {show_seconds(player.position_s)}"]
        warnings: list[str] = []
        late = f"{player.lag_s * 1e3:,.1f} ms late"
        (warnings if player.lag_s > LAG_TOLD_S else facts).append(late)
        if left_out := self._left_out(player):
            warnings.append(f"{left_out:,} left out")
        fraction = min(1.0, position / size) if size else None
        return Figures(player.played - player.refused, None, fraction, facts, warnings)

    def _report(self, player: Player, seconds: float) -> None:
        recording = self._recording
        count = player.played - player.refused
        text = f"replayed {counted(count, 'message')} in {seconds:.1f} s"
        if player.lag_s_max > LAG_TOLD_S:
            text += f", at most {player.lag_s_max:.2f} s late"
        note(text)
        if unwanted := player.unwanted:
            topics = [printable(each) for each in player.unwanted_topics]
            named = ", ".join(topics[:-1] + ["…"] if len(topics) > 3 else topics)
            note(f"{unwanted:,} of {count:,} values were not sent: nobody subscribes to {named}")
        if left_out := self._left_out(player):
            note(f"{counted(left_out, 'record')} could not be replayed")
        for path in recording.torn:
            note(f"{path} has no end: its recorder was killed, or is still recording")
        # The files of a series contain one growing sum.
        since = ", counted since its recorder began" if len(recording.losses) > 1 else ""
        for path, losses in recording.losses.items():
            if told := losses.tell():
                note(f"{path} is not complete: {told}{since}")


def _is_topic(name: str) -> bool:
    try:
        jsonbus.check_topic(name)
    except InvalidTopicError:
        return False
    return True
