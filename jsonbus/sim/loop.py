"""Hands datagrams and timers to the participants, as `loop.py` of sync and aio does for one node.

On a sealed bus, what a node sends is sealed first, and every receiver opens it for itself.

After every call into a participant the loop looks once at its outbox and timer, which is all that a
call can have changed; after a datagram only if the node says that it needs attention.

A datagram is decoded once and then handed to every receiver as the same frame, in order of
arrival, without an event per receiver (clock.py says how). A timer that moves to later keeps its
event: that event finds the node not yet due and waits again. A timer that moves to earlier gets a
second event, and the first one finds that it is no longer expected.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf
from typing import TYPE_CHECKING

from jsonbus.core.events import Event
from jsonbus.core.rpc.requests import Request
from jsonbus.core.wire.decode import decode
from jsonbus.core.wire.frames import ListFrame, PresenceFrame
from jsonbus.sim.checkers import Checker, Observers
from jsonbus.sim.clock import Clock
from jsonbus.sim.network import Arrival, Network
from jsonbus.sim.participants import Participant, SimNode
from jsonbus.sim.records import Flight, SealedFlight, Sink

if TYPE_CHECKING:
    from jsonbus.sim.sealed.bus import SealedBus


class Loop:
    """Drives the participants of one world, and tells its checkers what happens."""

    #: Called with what a node that looks up others hears of them; set by the world's channels.
    on_news: Callable[[SimNode, list[Event]], None]
    #: Set by a sealed world.
    sealed: SealedBus | None = None

    def __init__(self, clock: Clock, network: Network, checkers: Sequence[Checker]) -> None:
        self.clock = clock
        self.network = network
        self.participants: list[Participant] = []
        self._receivers: list[int] = []  # indexes of those that are up
        observers = Observers(checkers)
        self.tell = observers.tell
        self._tells_events = observers.follow("told")
        self._tells_passes = observers.follow("passed")

    def bring_up(self, participant: Participant) -> None:
        assert not participant.is_up
        participant.is_up = True
        participant.started_at = self.clock.now
        participant.first_heard_at = inf
        participant.wake_at = inf
        self._receivers.append(participant.index)

    def take_down(self, participant: Participant) -> None:
        assert participant.is_up
        participant.is_up = False
        participant.stopped_at = self.clock.now
        self._receivers.remove(participant.index)

    def settle(self, participant: Participant) -> None:
        """After any call into a participant: send its output, and note when to wake it."""
        now = self.clock.now
        for data in participant.output(now):
            self._send(participant, data)
        at = participant.timer_at()
        if at is not None and at < participant.wake_at:
            participant.wake_at = max(at, now)
            self.clock.call_at(participant.wake_at, self._wake, participant)
        self.tell("touched", participant)

    def fetch(self, receiver: Participant, flight: Flight | None) -> None:
        """Take what a node has for its application, and answer requests."""
        if not isinstance(receiver, SimNode):
            return
        for sink, messages in receiver.core.take_deliveries():
            assert isinstance(sink, Sink)
            self.tell("delivered", sink, messages, flight)
            for message in messages:
                if isinstance(message, Request):
                    now = receiver.local(self.clock.now)
                    if receiver.core.requests.begin(message, now):
                        receiver.core.requests.reply(message, message.value, None, now)

    def _wake(self, participant: Participant) -> None:
        now = self.clock.now
        if now != participant.wake_at or not participant.is_up or participant.is_frozen:
            return
        participant.wake_at = inf
        at = participant.timer_at()
        if at is not None and at > now:  # the timer has moved to later
            participant.wake_at = at
            self.clock.call_at(at, self._wake, participant)
            return
        participant.handle_timer(now)
        self.fetch(participant, None)  # what waited for something that is given up now
        self._drain_events(participant)
        self.settle(participant)

    def inject(self, flight: SealedFlight) -> None:
        """Let something arrive that no participant sent."""
        if flight.arrivals:
            self.clock.call_at(flight.arrivals[0][0], self._land, flight)

    def _send(self, sender: Participant, data: bytes) -> None:
        frame = decode(data)  # a node that sends unreadable bytes has a bug: let it raise
        self.tell("sent", sender, frame, data)
        if self.sealed is not None:
            assert isinstance(sender, SimNode)
            for sealed in self.sealed.seal(sender, data):
                self.inject(SealedFlight(sealed, sender.address, sender, self._arrivals(sender)))
            return
        arrivals = self._arrivals(sender)
        if arrivals:
            has_messages = not isinstance(frame, PresenceFrame | ListFrame)
            flight = Flight(data, frame, sender.address, has_messages, arrivals)
            self.clock.call_at(arrivals[0][0], self._land, flight)

    def _arrivals(self, sender: Participant) -> list[Arrival]:
        return self.network.arrivals(sender.index, self._receivers, self.clock.now)

    def _land(self, flight: Flight | SealedFlight) -> None:
        """Hand the datagram to the receivers that are next."""
        arrivals = flight.arrivals
        at, index = arrivals[flight.landed]
        while True:
            receiver = self.participants[index]
            if receiver.is_up:
                found = flight if isinstance(flight, Flight) else self._open(receiver, flight)
                if found is not None:
                    self._hand_over(receiver, found, at)
            flight.landed += 1
            if flight.landed == len(arrivals):
                return
            at, index = arrivals[flight.landed]
            if not self.clock.advance(at):
                self.clock.call_at(at, self._land, flight)
                return

    def _open(self, receiver: Participant, flight: SealedFlight) -> Flight | None:
        assert self.sealed is not None and isinstance(receiver, SimNode)
        return self.sealed.open(receiver, flight)

    def _hand_over(self, receiver: Participant, flight: Flight, at: float) -> None:
        if receiver.first_heard_at == inf and receiver.address != flight.address:
            receiver.first_heard_at = at
        receiver.receive(flight, at)
        if flight.has_messages:
            self.fetch(receiver, flight)
        if self._tells_events or receiver.seeks:
            self._drain_events(receiver)
        if receiver.take_attention():
            self.fetch(receiver, flight)  # a list may report that somebody is gone
            self.settle(receiver)
        elif self._tells_passes:
            self.tell("passed", receiver)

    def _drain_events(self, participant: Participant) -> None:
        if not isinstance(participant, SimNode):
            return
        events = participant.core.take_events()
        for event in events:
            self.tell("told", participant, event)
        if events and participant.seeks:
            self.on_news(participant, events)
