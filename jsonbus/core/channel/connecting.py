"""From a name to a connection: one attempt to reach a port of another node.

    finding ──► dialing ──► done          what is known of a node may be old: if its address does
       ▲          │  │                    not answer, or another node does, it is asked once more
       └──────────┘  └──► resting ──► finding …    with retry, after a refusal

Its owner calls `step` at the beginning, after each of the `…ed` methods, when a node introduced
itself, joined or left, and at `timer_at`; and does what `step` returns, until that is None:

    Ask     ask the group for the node
    Dial    connect to that place and say hello; report the outcome by one of the methods
    Fail    give up: the error for whoever wanted the channel
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from jsonbus.core.channel.limits import ASK_AFTER_S, FIND_S, RETRY_MAX_S, RETRY_MIN_S
from jsonbus.core.channel.wire import Refusal
from jsonbus.core.membership.directory import Place
from jsonbus.errors import ChannelError, ChannelRefusedError, ChannelTimeoutError

FINDING, DIALING, RESTING, DONE = "finding", "dialing", "resting", "done"

#: Reasons that may change in a moment.
RETRIED = frozenset({"unknown", "unbound", "taken", "gone", "busy"})


class Ask(NamedTuple):
    """Ask who that is."""

    who: str


class Dial(NamedTuple):
    """Connect to that place."""

    place: Place


class Fail(NamedTuple):
    """Give up: there will be no channel."""

    error: ChannelError


Step = Ask | Dial | Fail


class Attempt:
    """See the head of this file. `who` is an id or a name."""

    def __init__(self, who: str, port: str, timeout_s: float, now: float, *, retry: bool) -> None:
        self.state = FINDING
        self._who = who
        self._port = port
        self._timeout_s = timeout_s
        self._deadline = now + timeout_s
        self._retries = retry
        self._name = who  # what to call the node in errors
        self._refusal: ChannelRefusedError | None = None  # the last one
        self._rests_until = math.inf
        self._known: list[
            Place
        ] = []  # places of the node, at the last step of a search; without times
        self._pause_s = RETRY_MIN_S
        self._must_ask = False  # what is known has proved wrong
        self._detail = ""  # why the last place did not answer
        self._is_fresh = False  # the dialed place was announced because this attempt had asked
        self._begun_at = now
        self._asked = 0
        self._asked_at = math.inf  # first, in this search
        self._failure: ChannelError | None = None  # not reported yet

    def step(self, places: Sequence[Place], now: float) -> Step | None:
        """Return what to do next, given what is known of the node; None: wait."""
        if self.state == DONE:
            return self._take_failure()
        known = [place._replace(introduced_at=0.0, answered_at=0.0) for place in places]
        # A node that announces the same again is no news: it does so whenever somebody asks for it,
        # and all pausing attempts would try again because one of them did.
        if self.state == RESTING and now < self._deadline:
            if now >= self._rests_until or known != self._known:
                self._find(now)
        if self.state == FINDING:
            self._known = known
        step = self._step_finding(places, now) if self.state == FINDING else None
        if step is not None:
            return step
        if now >= self._deadline and self.state != DONE:
            self._end(self._refusal or self._make_timeout())
        return self._take_failure()

    def timer_at(self) -> float:
        """Return when to call `step` next, at the latest."""
        if self.state == FINDING:
            ask_at = math.inf
            if self._asked < len(ASK_AFTER_S):
                ask_at = self._begun_at + ASK_AFTER_S[self._asked]
            return min(ask_at, self._begun_at + FIND_S, self._deadline)
        if self.state == RESTING:
            return min(self._rests_until, self._deadline)
        return self._deadline if self.state == DIALING else math.inf

    def dial_failed(self, detail: str, now: float) -> None:
        """Note that nobody answers at that place, or that the connection ended."""
        if self.state != DIALING:
            return  # it has ended meanwhile
        self._detail = detail
        if self._is_fresh:
            self._refuse("gone", now, detail)
        else:
            self._find(now)

    def refused(self, refusal: Refusal, now: float) -> None:
        """Note that the node there refused."""
        if refusal.reason == "gone":
            self.dial_failed(refusal.detail, now)
            return
        if self.state != DIALING:
            return
        self._name = refusal.name or self._name
        self._refuse(refusal.reason, now, refusal.detail)

    def connected(self) -> None:
        """Note that the node there said welcome."""
        self.state = DONE

    def _step_finding(self, places: Sequence[Place], now: float) -> Step | None:
        if len(places) > 1:
            # One of them may have crashed, and another have begun under its name: the live one
            # answers, or has joined since.
            here = [each for each in places if each.is_self or each.introduced_at >= self._asked_at]
            if len(here) > 1:
                ids = tuple(place.node for place in here)
                self._end(ChannelRefusedError(self._who, self._port, "ambiguous", nodes=ids))
                return None
            if now < self._begun_at + FIND_S:
                return self._ask(now)
            if not here:
                self._refuse("gone", now)
                return None
            places = here
        place = places[0] if places else None
        if place is not None:
            self._name = place.name or place.node
            self._is_fresh = place.introduced_at >= self._asked_at or place.is_self
            if place.port is not None and (self._is_fresh or not self._must_ask):
                self.state = DIALING
                return Dial(place)
            # Only an answer proves that nothing is bound: anything else may be older than the
            # question, such as what the node announced when it joined.
            if self._has_answered(place):
                self._refuse("unbound", now)
                return None
        if now >= self._begun_at + FIND_S:
            self._refuse("unknown" if place is None else "gone", now, self._detail)
            return None
        return self._ask(now)

    def _has_answered(self, place: Place) -> bool:
        return place.is_self or place.answered_at >= self._asked_at

    def _ask(self, now: float) -> Ask | None:
        """Ask, if it is time to."""
        if self._asked == len(ASK_AFTER_S) or now < self._begun_at + ASK_AFTER_S[self._asked]:
            return None
        self._asked += 1
        self._asked_at = min(self._asked_at, now)
        return Ask(self._who)

    def _find(self, now: float) -> None:
        """Look for the node again: what was known of it is wrong."""
        self.state = FINDING
        self._must_ask = True
        self._begun_at = now
        self._asked = 0
        self._asked_at = math.inf

    def _refuse(self, reason: str, now: float, detail: str = "") -> None:
        refusal = ChannelRefusedError(self._name, self._port, reason, detail)
        if not (self._retries and reason in RETRIED and now < self._deadline):
            self._end(refusal)
            return
        self.state = RESTING
        self._refusal = refusal
        self._rests_until = now + self._pause_s
        self._pause_s = min(2 * self._pause_s, RETRY_MAX_S)

    def _end(self, error: ChannelError) -> None:
        self.state = DONE
        self._failure = error

    def _take_failure(self) -> Fail | None:
        failure, self._failure = self._failure, None
        return None if failure is None else Fail(failure)

    def _make_timeout(self) -> ChannelTimeoutError:
        return ChannelTimeoutError(
            self._name, self._port, f"{self._name} did not answer", self._timeout_s
        )
