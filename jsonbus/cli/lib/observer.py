"""Joins the bus to observe it: for `top`, `hz` and `bw`, and in part for `record --passive`.

Observing changes nothing. A passive subscription asks for nothing, so it sees only what is sent for
other nodes; `--subscribe` makes it an ordinary one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from time import monotonic

import click

import jsonbus
from jsonbus import config
from jsonbus.config import BusSettings
from jsonbus.survey import Asking

from ..command import note
from .names import PATTERN
from .parameters import Function, flag, show_address

#: Messages queued while a screen is drawn: a second of the fastest bus.
MAILBOX_MESSAGES_MAX = 100_000

#: After this time without a message, the likely reason is shown.
SILENCE_S = 2.0

#: The default pattern.
EVERYTHING = "**"


def observer_options(function: Function) -> Function:
    """Add the argument and the option that all observing commands have."""
    function = flag(
        "--subscribe is_subscribing",
        "Subscribe, so that topics nobody else wants are sent, too, and lost messages of "
        "reliable topics are sent again.",
    )(function)
    return click.argument("patterns", nargs=-1, metavar="[PATTERN]...", type=PATTERN)(function)


class Observer:
    """A bus that is observed."""

    def __init__(
        self,
        bus: jsonbus.Bus,
        patterns: Sequence[str],
        take: Callable[[list[jsonbus.Message]], None],
        *,
        is_subscribing: bool,
    ) -> None:
        self.bus = bus
        self.patterns = tuple(patterns) or (EVERYTHING,)
        self.is_subscribing = is_subscribing
        self._is_silence_reported = False
        self._asking = Asking()
        self._subscription = bus.subscribe(
            self.patterns,
            take,
            in_batches=True,
            maxsize=MAILBOX_MESSAGES_MAX,
            passive=not is_subscribing,
        )

    @property
    def address(self) -> str:
        """Group and port of the bus; the name of one that is sealed."""
        address = show_address(self.bus.config.group, self.bus.config.port)
        return address if self.bus.sealed is None else f"{address} (sealed: {self.bus.sealed})"

    def nodes(self) -> list[jsonbus.NodeInfo]:
        """Return the nodes, and ask them for their totals, which a later call will contain."""
        nodes = self.bus.nodes()
        if self._asking.is_due(monotonic(), len(nodes)):
            self.bus.ping(timeout=0.0)
        return nodes

    @property
    def dropped(self) -> int:
        """Number of messages that came faster than they could be counted."""
        return self._subscription.dropped

    @property
    def silence(self) -> str:
        """The likely reason why nothing is seen."""
        what = "nothing flows"
        if self.patterns != (EVERYTHING,):
            what += f" that matches {', '.join(self.patterns)}"
        if self.is_subscribing:
            return f"{what}: nobody publishes"
        return f"{what}: nobody publishes, or nobody wants it; --subscribe asks for it"

    def report_silence(self) -> None:
        """Print that reason on standard error, once."""
        if not self._is_silence_reported:
            self._is_silence_reported = True
            note(self.silence)

    def report_losses(self) -> None:
        """Report at the end how many messages were not counted."""
        if self.dropped:
            note(f"{self.dropped:,} messages were not counted: they came too fast for this machine")


@contextmanager
def open_observer(
    settings: BusSettings,
    patterns: Sequence[str],
    take: Callable[[list[jsonbus.Message]], None],
    *,
    is_subscribing: bool,
) -> Iterator[Observer]:
    """Join the bus; `take` is called with messages in a thread of the bus."""
    for pattern in patterns:
        jsonbus.check_pattern(pattern)
    if not is_subscribing:
        settings = observer_settings(settings, "give --subscribe")
    with jsonbus.Bus(**settings) as bus:
        yield Observer(bus, patterns, take, is_subscribing=is_subscribing)


def observer_settings(settings: BusSettings, remedy: str) -> BusSettings:
    """Return the settings without mode basic.

    A node in mode basic gets everything, so all others would send what nobody wants; in the other
    modes it hears basic nodes just as well. `--mode basic` is therefore refused with a remedy. If
    only the environment asks for basic, as on a bus that is basic, mode delayed is used.
    """
    if config.load(**settings).mode != "basic":
        return settings
    if "mode" in settings:
        raise click.UsageError(
            "a node in mode basic makes all others send everything, which changes what there is "
            f"to see: leave out --mode basic, or {remedy} if you want that"
        )
    return {**settings, "mode": "delayed"}
