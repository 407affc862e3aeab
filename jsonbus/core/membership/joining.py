"""Whether this node may rely on its list: joining, sure or doubting.

    joining ──agreed, or silence──► sure ──mismatch, unknown or silent node, new network──► doubting
       │                             ▲                                                         │
       └──neither within 1.5 s───────┼──────────────────► doubting ────────agreed, or alone────┘

- **joining**: announcing itself. Messages that no node is known to want are queued.
- **sure**: messages that no node is known to want are not sent.
- **doubting**: everything is sent, which is wasteful and safe. Nothing is queued in this state, so
  doubt may come and go in an instant.

A node is *settled* once it is past joining: only then does it answer joiners: a thousand nodes that
start together would otherwise all answer each other. Agreement counts only of a node that has been
sure before (`settled` on the wire): two nodes that lack the same entries agree on that.

Agreement is a digest equal to this node's own. Silence is half a second after the second
announcement in which no settled node was heard. In doubt, silence counts only for a node that
knows of no other, and lasts a lease: a group that said something else a moment ago is not refuted
by saying nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from jsonbus.core.limits import ANNOUNCE_REPEATS_S, JOIN_S_MAX, SILENCE_S

JOINING = "joining"
SURE = "sure"
DOUBTING = "doubting"


class Joining:
    """The state, and when to announce next. `lease_s` returns that of the group as it is known."""

    def __init__(self, lease_s: Callable[[], float]) -> None:
        self._lease_s = lease_s
        self.state = JOINING
        self.reason = "not opened yet"
        #: Whether this node was sure before, and so may confirm the lists of others.
        self.was_sure = False
        self.announce_at = math.inf
        #: Whether another joiner knows of nodes that this one does not.
        self.is_lacking = False
        self._heard_at = -math.inf
        self._begun_at = 0.0
        self._announced = 0
        self._awaits_silence = False
        self._asked = 0  # announcements since waiting for silence began
        self._asked_at = 0.0
        self._repeats: tuple[float, ...] = ()
        self._silent_at = math.inf
        self._give_up_at = math.inf

    @property
    def is_settled(self) -> bool:
        return self.state != JOINING

    @property
    def is_calm(self) -> bool:
        """Whether the node is sure, with no announcement or decision pending."""
        return self.state == SURE and self.timer_at() == math.inf

    def start(self, now: float) -> None:
        """Join: announce now, and repeat until another node agrees."""
        self.state, self.reason = JOINING, "waiting for the list of another node"
        self._give_up_at = now + JOIN_S_MAX
        self._announce_from(now, now)
        self._await_silence(now)

    def settle(self, reason: str) -> None:
        """Become sure without asking other nodes."""
        self._be_sure(reason)
        self._awaits_silence = False
        self.announce_at = self._silent_at = self._give_up_at = math.inf

    def announce_change(self, now: float, at: float) -> None:
        """Announce the changed own entry at that instant, and repeat until another node agrees."""
        if self.announce_at != math.inf and self._announced == 0:
            return  # an announcement is about to be sent, and will hold the newest entry
        self._announce_from(now, at)

    def hear_settled(self, now: float) -> None:
        """A settled or unknown node was heard: there is no silence."""
        self._heard_at = now
        if self.state == JOINING:
            self._awaits_silence = False
            self._silent_at = math.inf
        elif self.state == DOUBTING and self._silent_at != math.inf:
            self._silent_at = now + self._lease_s()

    def agree(self) -> bool:
        """A settled node has the same list. Returns True if that changed the state."""
        self._awaits_silence = False
        self.confirm()
        self._silent_at = self._give_up_at = math.inf
        if self.state == SURE:
            return False
        self._be_sure("another node has the same list")
        return True

    def confirm(self) -> None:
        """Another node has this node's entry: stop repeating it."""
        if self._announced and not self._awaits_silence:
            self.announce_at = math.inf

    def doubt(self, now: float, reason: str, *, announces: bool = False) -> bool:
        """Send everything from now on; `announces`: ask the others. True if the state changed."""
        if self.state == JOINING:
            return False
        changed = self.state != DOUBTING
        if changed:
            self.state, self.reason = DOUBTING, reason
        if announces and not self._awaits_silence:
            self._announce_from(now, now)
            self._await_silence(now)
        return changed

    def distrust_silence(self, now: float) -> None:
        """This node slept, or its network changed: that it heard nobody until now proves nothing.

        Without this, a node that fell asleep while joining would wake up as the first of the bus.
        """
        if self.state == DOUBTING and self._silent_at != math.inf:
            self.hear_settled(now)  # as if somebody had been heard
        elif self.state == JOINING and self._awaits_silence:
            self._silent_at = math.inf
            self._announce_from(now, now)
            self._await_silence(now)

    def timer_at(self) -> float:
        return min(self.announce_at, self._silent_at, self._give_up_at)

    def take_announcement(self, due: float) -> bool:
        """Return True if it is time to announce, and plan the next announcement."""
        if self.announce_at > due:
            return False
        self._announced += 1
        self._asked += 1
        if self._asked == 2 and self._awaits_silence:
            # Two announcements in a row may be lost together: silence counts from when the second
            # would have come by itself.
            self._silent_at = max(due, self._asked_at + ANNOUNCE_REPEATS_S[0]) + SILENCE_S
            if self.state == DOUBTING:
                self._silent_at = max(self._silent_at, self._heard_at + self._lease_s())
        if self._repeats:
            self.announce_at = self._begun_at + self._repeats[0]
            self._repeats = self._repeats[1:]
        else:
            self.announce_at = math.inf
        return True

    def take_verdict(self, due: float, is_alone: bool) -> bool:
        """Return True if waiting has ended, in silence or without an answer, and set the state."""
        if self._silent_at <= due:
            self._silent_at = math.inf
            self._awaits_silence = False
            if not self.was_sure:
                self._give_up_at = math.inf
                if self.is_lacking:
                    return self._doubt_unsettled(due, "another joiner knows more")
                self._be_sure("nobody answered: this node is the first")
                return True
            if self.state == DOUBTING and is_alone:
                self._be_sure("nobody else is here")
                return True
        if self._give_up_at <= due:
            self._give_up_at = math.inf
            if self.state == JOINING:
                return self._doubt_unsettled(due, "other nodes are here, but none answered")
        return False

    def _be_sure(self, reason: str) -> None:
        self.state, self.reason = SURE, reason
        self.was_sure = True

    def _doubt_unsettled(self, now: float, reason: str) -> bool:
        """Stop holding messages, but wait on: for a settled node that agrees, or for silence."""
        was_joining = self.state == JOINING
        self.is_lacking = False  # until another joiner says so again
        self.state, self.reason = DOUBTING, reason
        self._silent_at = now + self._lease_s()
        return was_joining

    def _announce_from(self, now: float, at: float) -> None:
        self._begun_at = now
        self._announced = 0
        self._repeats = ANNOUNCE_REPEATS_S
        self.announce_at = at

    def _await_silence(self, now: float) -> None:
        self._awaits_silence = True
        self._asked = 0
        self._asked_at = now
