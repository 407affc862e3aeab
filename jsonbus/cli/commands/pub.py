from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from time import monotonic, sleep

import click

import jsonbus
from jsonbus.config import BusSettings
from jsonbus.errors import LocalError

from .. import signals
from ..command import ValueCommand, note, wait_until_sure
from ..exit_codes import FAILED, TIMED_OUT
from ..lib.input_lines import LineReader, Pair
from ..lib.names import TOPIC
from ..lib.parameters import flag, option
from ..lib.staying import stay_if_asked
from ..lib.values import parse_argument

#: Topics named when values were not sent; `jsonbus explain` says more.
TOPICS_NAMED_MAX = 3

#: Topics whose subscribers were waited for; lines may bring ever more of them.
TOPICS_REMEMBERED_MAX = 100_000


@click.command(
    "pub",
    cls=ValueCommand,
    epilog="""\b
Examples:
  jsonbus pub sensors/kitchen '{"temp": 21.5}'
  jsonbus pub --text door open                 the same as jsonbus pub door '"open"'
  jsonbus pub --wait 10 door 1                 wait for a subscriber first
  jsonbus pub --retain --stay door '"open"'    also for later subscribers, until Ctrl-C
  jsonbus pub --retain --stay door             the same with every line you type
  jsonbus pub --reliable --count 100 door 1    lost ones are sent again
  jsonbus pub --rate 2 clock null              twice a second, until Ctrl-C
  seq 100 | jsonbus pub --rate 50 numbers      one value a line
  jsonbus sub '**' | jsonbus pub --port 2417   copy everything to another bus
""",
)
@click.argument("topic", required=False, type=TOPIC)
@click.argument("value", required=False)
@option("-c --count N", "Publish VALUE N times, or N lines.")
@option(
    "-r --rate PER_SECOND", "Publish this many a second; VALUE is repeated until Ctrl-C or --count."
)
@option(
    "-w --wait SECONDS", "Wait this long for a subscriber of each topic; exit code 3 if none comes."
)
@flag(
    "--retain",
    "Keep the last value for later subscribers, while this command runs; null ends that.",
)
@flag("--stay", "Stay on the bus afterwards, until Ctrl-C, for retained values and repairs.")
@flag("--text is_text", "VALUE, or each line, is text, not JSON.")
def command(
    settings: BusSettings,
    topic: str | None,
    value: str | None,
    count: int | None,
    rate: float | None,
    wait: float | None,
    retain: bool,
    stay: bool,
    is_text: bool,
) -> None:
    """Publish a value, or the lines of standard input.

    VALUE is JSON. Without it, or with -, every line of standard input is a value. A line that
    `jsonbus sub` printed is published to its own topic, other lines to TOPIC. Without TOPIC, every
    line must be such an object: {"topic": ..., "value": ...}.

    A value that nobody subscribes to is not sent. This is reported on standard error and is not a
    failure. Lines that cannot be published are reported, too, and make the exit code 1.

    A value is retained by the node that published it: with --retain alone it ends with this
    command, with --stay it remains until Ctrl-C. --retain applies to every line, including those
    that `jsonbus sub` printed.
    """
    lines = None
    is_endless = False
    if value is None or value == "-":
        lines = LineReader(None if topic == "-" else topic, is_text=is_text)
        pairs: Iterator[Pair] = itertools.islice(lines, count)
    else:
        assert topic is not None  # click fills TOPIC first
        pair = (topic, parse_argument(value, is_text=is_text))
        is_endless = count is None and rate is not None
        pairs = itertools.repeat(pair) if is_endless else itertools.repeat(pair, count or 1)

    publisher = _Publisher(wait, lines, retain=retain)
    with signals.until_interrupted(is_usual=is_endless) as ending, jsonbus.Bus(**settings) as bus:
        wait_until_sure(bus)
        try:
            for each_topic, each_value in _paced(pairs, rate):
                publisher.publish(bus, each_topic, each_value)
            if not bus.flush():
                raise click.ClickException("the network did not accept everything in time")
            stay_if_asked(bus, ending, stay=stay)
        finally:
            publisher.report()
    if publisher.has_no_subscriber:
        raise click.exceptions.Exit(TIMED_OUT)
    if lines is not None and lines.refused:
        raise click.exceptions.Exit(FAILED)


class _Publisher:
    """Publishes, and remembers what to report at the end."""

    def __init__(self, wait_s: float | None, lines: LineReader | None, *, retain: bool) -> None:
        self.has_no_subscriber = False
        self._wait_s = wait_s
        self._lines = lines
        self._retain = retain
        self._waited_for: set[str] = set()
        self._published = 0
        self._unwanted = 0
        self._unwanted_topics: list[str] = []
        #: A topic for which null ended nothing.
        self._unretained: str | None = None

    def publish(self, bus: jsonbus.Bus, topic: str, value: object) -> None:
        try:
            if self._wait_s is not None:
                self._wait_for_subscriber(bus, topic, self._wait_s)
            is_end = self._retain and value is None and self._unretained is None
            retained = bus.stats()["values_retained"] if is_end else 0
            if not bus.publish(topic, value, retain=self._retain):
                self._note_unwanted(topic)
            if is_end and bus.stats()["values_retained"] == retained:
                self._unretained = topic
            self._published += 1
        except LocalError as error:
            if self._lines is None:
                raise
            self._lines.refuse(str(error))  # the next line may be right

    def report(self) -> None:
        if self._unretained is not None:
            note(
                f"null ended nothing under {self._unretained}: only the node that retains a value "
                "can end it"
            )
        if not self._unwanted:
            return
        topics = ", ".join(self._unwanted_topics[:TOPICS_NAMED_MAX])
        if len(self._unwanted_topics) > TOPICS_NAMED_MAX:
            topics += ", …"
        if self._published == 1:
            note(f"nobody subscribes to {topics}: nothing was sent")
        else:
            note(
                f"{self._unwanted:,} of {self._published:,} values were not sent: "
                f"nobody subscribes to {topics}"
            )

    def _note_unwanted(self, topic: str) -> None:
        self._unwanted += 1
        # One more than are named, to show that there are more.
        if len(self._unwanted_topics) <= TOPICS_NAMED_MAX and topic not in self._unwanted_topics:
            self._unwanted_topics.append(topic)

    def _wait_for_subscriber(self, bus: jsonbus.Bus, topic: str, wait_s: float) -> None:
        if topic in self._waited_for:
            return
        if len(self._waited_for) >= TOPICS_REMEMBERED_MAX:
            self._waited_for.clear()  # with that many topics, some are waited for twice
        self._waited_for.add(topic)
        if not bus.wait_for_subscribers(topic, timeout=wait_s):
            self.has_no_subscriber = True
            note(f"nobody subscribed to {topic} within {wait_s:g} s")


def _paced(pairs: Iterable[Pair], rate: float | None) -> Iterator[Pair]:
    """Yield the pairs at this rate, counted from the first one: delays do not add up."""
    if rate is None:
        yield from pairs
        return
    due_at = monotonic()
    for pair in pairs:
        # A delay of more than a second is not made up for by a burst.
        due_at = max(due_at, monotonic() - 1.0)
        sleep(max(0.0, due_at - monotonic()))
        yield pair
        due_at += 1.0 / rate
