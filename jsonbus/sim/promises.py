"""All promises of a history, and what its phases tell them.

A history and a scenario cut out of one (shrink.py) use it alike: the checkers watch from the
beginning, and each phase arms or judges some of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import TYPE_CHECKING

from jsonbus.sim import (
    checkers,
    group_checkers,
    growth_checkers,
    list_checkers,
    reliable_checkers,
)
from jsonbus.sim.channels.checkers import ChannelPromises
from jsonbus.sim.checkers import Checker
from jsonbus.sim.list_checkers import settling_s
from jsonbus.sim.records import Publication, Sink

if TYPE_CHECKING:
    from jsonbus.sim.sealed.checkers import SealedPromises

TOPICS = ("a", "b", "c/1", "c/2", "d/x/y")
CALM_JOIN_S = 1.0  # several times the longest share delay
FOUL_JOIN_S = 10.0
PLAYED_LATE_S = 10.0  # what was said before a node came, and an attacker plays to it


class Promises:
    """The checkers of a world with so many participants, in a network that is calm or not."""

    def __init__(
        self,
        participants: int,
        *,
        is_calm: bool,
        judges_plain: bool,
        channels: ChannelPromises | None = None,
        is_sealed: bool = False,
        is_patient: bool = False,
    ) -> None:
        self._channels = channels
        self._sealed = _sealed_promises() if is_sealed else None
        self._withheld = list_checkers.NothingIsWithheld(is_calm=is_calm, judges_plain=judges_plain)
        self._quiet = group_checkers.QuietGroupsAreQuiet()
        self._storms = group_checkers.NobodyStorms()
        self._agree = group_checkers.AllAgree()
        self._probes = group_checkers.ProbesArrive(judges_plain=judges_plain)
        self._reliable = reliable_checkers.ReliableIsExact()
        self._retained = reliable_checkers.RetainedIsGivenOnce()
        self._growth = (growth_checkers.TablesStayBounded(), growth_checkers.VersionsAreEarned())
        join_s = CALM_JOIN_S if is_calm else FOUL_JOIN_S
        self.checkers: tuple[Checker, ...] = (
            *(channels.checkers if channels else ()),
            *(self._sealed.checkers if self._sealed else ()),
            checkers.DatagramsAreSound(),
            checkers.DeliveriesAreTrue(),
            checkers.PublishersKeepOrder(),
            checkers.HoldIsBounded(),
            checkers.NothingIsForgotten(),
            checkers.RepliesAreTrue(),
            *(() if is_patient else self._timely(join_s, settling_s(participants), is_sealed)),
            self._quiet,
            self._storms,
            self._agree,
            self._probes,
            self._reliable,
            reliable_checkers.BuffersAreBounded(),
            self._retained,
            *self._growth,
        )

    def _timely(self, join_s: float, settling_s: float, is_sealed: bool) -> tuple[Checker, ...]:
        """Return the promises that allow for little more delay than networks cause."""
        return (
            list_checkers.VersionsNeverGoBack(),
            self._withheld,
            list_checkers.NothingIsWasted(PLAYED_LATE_S if is_sealed else 0.0),
            group_checkers.JoinersAreServed(join_s, settling_s),
        )

    def inspect(self, topics: Sequence[str] = TOPICS) -> None:
        """Judge what every node would withhold of these topics now, and what it keeps."""
        if self._withheld in self.checkers:
            self._withheld.inspect(topics)
        for checker in self._growth:
            checker.inspect()
        if self._sealed:
            self._sealed.inspect()

    def peace(self) -> None:
        """The faults end now."""
        self._storms.is_armed = True
        self._reliable.healed_at = self._reliable.world.clock.now
        if self._channels:
            self._channels.peace()

    def settled(self) -> None:
        """All must agree now, and stay quiet."""
        if self._sealed:
            self._sealed.settled()
        self._agree.finished()
        self._quiet.quiet_since = self._quiet.world.clock.now

    def probe(self) -> None:
        """What is published from now on must arrive."""
        self._probes.world.note(None, "probes: everybody publishes everything")
        self._probes.is_armed = True

    def probe_retained(self) -> None:
        """Somebody will subscribe late, which ends the quiet."""
        self._quiet.world.note(None, "probes: somebody subscribes late to what others retain")
        self._quiet.quiet_since = inf

    def expect_retained(self, sink: Sink, publication: Publication) -> None:
        self._retained.expect(sink, publication)

    def finished(self) -> None:
        """The history is over: judge what took time."""
        for checker in self._agree.world.checkers:
            checker.finished()


def _sealed_promises() -> SealedPromises:
    from jsonbus.sim.sealed.checkers import SealedPromises  # with cryptography

    return SealedPromises()
