"""An attempt to open a channel, driven as the real front ends drive it."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from jsonbus.core.channel.connecting import Ask, Attempt, Dial
from jsonbus.core.membership.directory import Place
from jsonbus.errors import ChannelError
from jsonbus.sim.channels.ends import SimEnd
from jsonbus.sim.channels.sockets import Socket
from jsonbus.sim.channels.streams import Dialing
from jsonbus.sim.records import Habits

if TYPE_CHECKING:
    from jsonbus.sim.channels.node_channels import NodeChannels


class Call:
    """An attempt to open a channel; `error` is why there is none (yet, if it retries)."""

    def __init__(
        self,
        owner: NodeChannels,
        who: str,
        port: str,
        timeout_s: float,
        *,
        retry: bool,
        habits: Habits,
    ) -> None:
        self.owner = owner
        self.node = owner.node
        self.who = who
        self.port = port
        self.timeout_s = timeout_s
        self.retry = retry
        self.habits = habits
        self.at = owner.around.clock.now
        self.endings = 0  # how often it has ended
        self.ended_at = inf
        self.error: ChannelError | None = None
        self.end: SimEnd | None = None
        self.is_dropped = False  # its process has ended
        self.dials = 0
        self._attempt = Attempt(who, port, timeout_s, owner.local_now(), retry=retry)
        self._place: Place | None = None
        self._dialing: Dialing | None = None
        self._candidate: SimEnd | None = None
        self._armed_at = inf
        self.node.seeks += 1
        self.node.core.directory.start_lookup()

    def __repr__(self) -> str:
        return f"<call of {self.node.name} to {self.who}, {self.port!r}: {self.outcome}>"

    @property
    def is_over(self) -> bool:
        return self.ended_at < inf

    @property
    def outcome(self) -> str:
        if self.end is not None:
            return "connected"
        if self.error is not None and self.is_over:
            return str(getattr(self.error, "reason", "timeout"))
        return "dropped" if self.is_dropped else "under way"

    def step(self, _: None = None) -> None:
        """Do what the attempt wants, until it waits."""
        self._step(self.owner.local_now())

    def answered(self, end: SimEnd) -> None:
        """Handle the answer: the end that said hello is open, or over."""
        if self._candidate is not end:
            return
        self._candidate = None
        now = self.owner.local_now()
        if end.was_opened:
            self._attempt.connected()
            self.end = end
            self._finish()
            end.use(self.habits)
        elif end.core.refusal is not None:
            self._attempt.refused(end.core.refusal, now)
        else:
            self._attempt.dial_failed(end.core.reason, now)
        self.step()

    def drop(self) -> None:
        """Drop the attempt: its process ends."""
        self.is_dropped = True
        self._finish()

    def _step(self, now: float) -> None:
        if self.node.is_frozen:
            return
        while not self.is_over:
            step = self._attempt.step(self.owner.places(self.who), now)
            refusal = self._attempt._refusal
            if refusal is not None and refusal is not self.error:
                self.error = refusal
                self._tell()
            if step is None:
                break
            if isinstance(step, Ask):
                self.node.core.directory.ask(step.who, now)
                self.owner.around.settle(self.node)
            elif isinstance(step, Dial):
                self.dials += 1
                self._place = step.place
                self._dialing = self.owner.dial(step.place, self._dialed)
            else:
                self.error = step.error
                self._finish()
                self._hang_up()
        self._arm()

    def _dialed(self, socket: Socket | None, why: str) -> None:
        self._dialing = None
        if self.is_over or self.owner.is_dead:
            return
        assert self._place is not None
        if socket is None:
            self._attempt.dial_failed(why, self.owner.local_now())
            self.step()
        else:
            self._candidate = self.owner.greet(self, socket, self._place.node)

    def _hang_up(self) -> None:
        if self._dialing is not None:
            self._dialing.cancel()
        if self._candidate is not None:
            candidate, self._candidate = self._candidate, None
            candidate.abandon()

    def _finish(self) -> None:
        self.endings += 1
        self.ended_at = self.owner.around.clock.now
        self.node.seeks -= 1
        if not self.is_dropped:
            self.node.core.directory.stop_lookup()
        self.owner.calls.pop(self, None)
        self._tell()

    def _tell(self) -> None:
        for changed in self.owner.around.tell_call_changed:
            changed(self)

    def _arm(self) -> None:
        at = self._attempt.timer_at() - self.node.clock_offset_s
        if not self.is_over and at < self._armed_at:
            self._armed_at = max(at, self.owner.around.clock.now)
            self.owner.around.clock.call_at(self._armed_at, self._wake)

    def _wake(self, _: None) -> None:
        now = self.owner.around.clock.now
        if now != self._armed_at:
            return
        self._armed_at = inf
        if self.is_over or self.node.is_frozen:
            return
        due_at = self._attempt.timer_at()
        if due_at - self.node.clock_offset_s <= now:
            self._step(self.node.local_when_due(now, due_at))
        self._arm()
