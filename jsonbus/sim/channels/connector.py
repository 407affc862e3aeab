"""An attempt to connect to a port of another node, driven as the front ends drive it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from math import inf
from typing import TYPE_CHECKING

from jsonbus.core.channel.connecting import Ask, Attempt, Dial
from jsonbus.core.membership.directory import Place
from jsonbus.errors import ChannelError
from jsonbus.sim.channels.endpoint import Endpoint
from jsonbus.sim.channels.tcp import Dialing, Socket
from jsonbus.sim.participants import NodeTimer, index_of
from jsonbus.sim.records import Habits

if TYPE_CHECKING:
    from jsonbus.sim.channels.node import NodeChannels


@dataclass(eq=False, repr=False)
class ConnectAttempt:
    """An attempt to open a channel; `error` is why there is none (yet, if it retries)."""

    owner: NodeChannels
    who: str
    port: str
    timeout_s: float
    retry: bool
    habits: Habits
    ended_at: float = inf
    error: ChannelError | None = None
    endpoint: Endpoint | None = None  # once it is open
    near: Endpoint | None = None  # its latest connection, open or not: the end of this node
    is_dropped: bool = False  # its process has ended
    _dialing: Dialing | None = None
    _candidate: Endpoint | None = None

    def __post_init__(self) -> None:
        now = self.owner.local_now()
        self.node = self.owner.node
        self.at = self.owner.clock.now
        self._attempt = Attempt(self.who, self.port, self.timeout_s, now, retry=self.retry)
        self._timer = NodeTimer(self.node, self.owner.clock, self._timer_at, self._handle_timer)
        self.node.seeks += 1
        self.node.core.directory.start_lookup()

    def __repr__(self) -> str:
        return f"<call of {self.node.name} to {self.who}, {self.port!r}: {self.outcome}>"

    @property
    def far(self) -> Endpoint | None:
        """The other end of its latest connection, if somebody has it or had it."""
        return None if self.near is None else self.near.other

    @property
    def is_over(self) -> bool:
        return self.ended_at < inf

    @property
    def outcome(self) -> str:
        if self.endpoint is not None:
            return "connected"
        if self.error is not None and self.is_over:
            return str(getattr(self.error, "reason", "timeout"))
        return "dropped" if self.is_dropped else "under way"

    def answered(self, endpoint: Endpoint) -> None:
        """Handle the answer: the endpoint that said hello is open, or over."""
        if self._candidate is not endpoint:
            return
        self._candidate = None
        now = self.owner.local_now()
        if endpoint.was_opened:
            self._attempt.connected()
            self.endpoint = endpoint
            self._finish()
            endpoint.use(self.habits)
        elif endpoint.core.refusal is not None:
            self._attempt.refused(endpoint.core.refusal, now)
        else:
            self._attempt.dial_failed(endpoint.core.reason, now)
        self.step()

    def drop(self) -> None:
        """Drop the attempt: its process ends."""
        self.is_dropped = True
        self._finish()

    def step(self, now: float | None = None) -> None:
        """Do what the attempt wants, until it waits."""
        if self.node.is_frozen:
            return
        now = self.owner.local_now() if now is None else now
        while not self.is_over:
            step = self._attempt.step(self.owner.find(self.who), now)
            refusal = self._attempt._refusal
            if refusal is not None and refusal is not self.error:
                self.error = refusal
                self.owner.world.tell("attempt_changed", self)
            if step is None:
                break
            if isinstance(step, Ask):
                self.node.core.directory.ask(step.who, now)
                self.owner.world.settle(self.node)
            elif isinstance(step, Dial):
                self._dial(step.place)
            else:
                self.error = step.error
                self._finish()
                if self._dialing is not None:
                    self.owner.world.tcp.cancel(self._dialing)
                if self._candidate is not None:
                    candidate, self._candidate = self._candidate, None
                    candidate.abandon()
        self._timer.arm()

    def _dial(self, place: Place) -> None:
        assert place.host is not None and place.port is not None
        self._dialing = self.owner.world.tcp.dial(
            self.node.index, index_of(place.host), place.port, partial(self._dialed, place.node)
        )

    def _dialed(self, to: str, socket: Socket | None, why: str) -> None:
        self._dialing = None
        if self.is_over or self.owner.is_dead:
            return
        if socket is None:
            self._attempt.dial_failed(why, self.owner.local_now())
            self.step()
        else:
            self._candidate = self.near = self.owner.greet(self, socket, to)

    def _finish(self) -> None:
        self.ended_at = self.owner.clock.now
        self.node.seeks -= 1
        if not self.is_dropped:
            self.node.core.directory.stop_lookup()
        self.owner.attempts.pop(self, None)
        self.owner.world.tell("attempt_changed", self)

    def _timer_at(self) -> float:
        return inf if self.is_over else self._attempt.timer_at()

    def _handle_timer(self, due_at: float) -> None:
        self.step(self.node.local_when_due(self.owner.clock.now, due_at))
