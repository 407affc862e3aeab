"""Checks attempts to open a channel: they end, and what they report is true."""

from __future__ import annotations

from math import inf

from jsonbus.sim.channels.calls import Call
from jsonbus.sim.channels.checkers import Inspector
from jsonbus.sim.participants import Participant
from jsonbus.sim.records import Life

#: Longer than it takes to find a node twice and to connect to it, if nothing is in the way.
FINDING_S = 1.5

ROUNDING_S = 1e-6


class CallChecker(Inspector):
    """Base class: a process that stands still is late, and so is what it reports."""

    def __init__(self) -> None:
        self._thawed_at: dict[Participant, float] = {}

    def happened(self, participant: Participant | None, what: str) -> None:
        if participant is not None and what == "is thawed":
            self._thawed_at[participant] = self.world.clock.now


class CallsEndOnce(CallChecker):
    """Every attempt ends once, with a channel or an error."""

    invariant = "an attempt ends once, with a channel or an error, by its deadline"

    def call_changed(self, call: Call) -> None:
        if not call.is_over:
            return
        if call.endings != 1:
            self.fail(f"{call} has ended {call.endings} times")
        if call.ended_at > self._deadline(call):
            self.fail(f"{call} ended {call.ended_at - call.at:.3f} s after it began")
        if not call.is_dropped and (call.end is None) == (call.error is None) and not call.retry:
            self.fail(f"{call} has ended with {call.end} and {call.error}")

    def inspect(self) -> None:
        now = self.world.clock.now
        for call in self.world.channels.calls:
            if not call.is_over and not call.node.is_frozen and now > self._deadline(call):
                self.fail(f"{call} goes on {now - call.at:.3f} s after it began")

    def _deadline(self, call: Call) -> float:
        thawed_at = self._thawed_at.get(call.node, -inf)
        return max(call.at + call.timeout_s, thawed_at) + ROUNDING_S


class RefusalsAreTrue(CallChecker):
    """Every refusal was true at some instant of the attempt.

    A node may have said something a moment earlier: the travel time of datagrams is allowed for. On
    a network that loses some, nobody can know whether a node is known or gone.
    """

    invariant = "a refusal is true"

    def __init__(self, *, is_calm: bool = True) -> None:
        super().__init__()
        self.is_calm = is_calm  # no datagram is lost

    def call_changed(self, call: Call) -> None:
        if call.error is None or call.end is not None:
            return
        reason = str(getattr(call.error, "reason", "timeout"))
        options = self.world.network.options
        since = call.at - options.delay_max_s - (options.late_max_s if options.late else 0.0)
        lives = [
            life
            for life in self.world.channels.lives
            if call.who in (life.node_id, life.node.name) and life.until >= since
        ]
        is_true = getattr(self, f"_is_{reason}")
        if not is_true(call, lives, since):
            self.fail(f"{call} is told {reason}: {call.error}")

    def _is_unbound(self, call: Call, lives: list[Life], since: float) -> bool:
        return any(not self._is_bound(life, call.port, since) for life in lives)

    def _is_taken(self, call: Call, lives: list[Life], since: float) -> bool:
        nodes = {life.node for life in lives}
        return any(
            binding.node in nodes and binding.port == call.port and binding.is_exclusive
            for binding in self.world.channels.bindings
            if binding.until >= call.at
        ) and bool(self._count_answered(call, lives))

    def _is_busy(self, call: Call, lives: list[Life], since: float) -> bool:
        bounds = self.world.channels.bounds
        ends = self._count_answered(call, lives, any_port=True)
        return ends >= min(bounds.channels_max, bounds.accept_max)

    def _is_ambiguous(self, call: Call, lives: list[Life], since: float) -> bool:
        return len(lives) > 1

    def _is_unknown(self, call: Call, lives: list[Life], since: float) -> bool:
        return not (self.is_calm and any(self._is_there(call, life, since) for life in lives))

    def _is_gone(self, call: Call, lives: list[Life], since: float) -> bool:
        return self._is_unknown(call, lives, since)

    def _is_timeout(self, call: Call, lives: list[Life], since: float) -> bool:
        return call.timeout_s < FINDING_S or self._is_unknown(call, lives, since)

    def _is_bound(self, life: Life, port: str, since: float) -> bool:
        """Return whether the port was bound all the time since then."""
        return any(
            binding.node is life.node
            and binding.port == port
            and binding.since <= since
            and binding.until == inf
            for binding in self.world.channels.bindings
        )

    def _is_there(self, call: Call, life: Life, since: float) -> bool:
        """Return whether both could hear each other all the time since then."""
        network, caller, node = self.world.network, call.node.index, life.node.index
        links = (network.open_since(caller, node), network.open_since(node, caller))
        is_linked = all(at is not None and at <= since for at in links)
        was_awake = self._thawed_at.get(life.node, -inf) <= since
        return life.since <= since and life.until == inf and is_linked and was_awake

    def _count_answered(self, call: Call, lives: list[Life], *, any_port: bool = False) -> int:
        """Count the channels that these nodes' ports had during the attempt."""
        nodes = {life.node for life in lives}
        return sum(
            end.binding is not None
            and end.node in nodes
            and (any_port or end.port == call.port)
            and max(end.over_at, end.accepted_at) >= call.at
            for end in self.world.channels.ends
        )
