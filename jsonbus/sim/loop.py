"""Where core, virtual clock and simulated network meet, as in the `loop.py` of sync and aio.

The loop hands datagrams to the nodes, sends what they want sent, and calls them when their timers
are due. After every call into a node it looks once at the node's outbox and timer, which is all
that a call can have changed; after a datagram only if the node says that it stirred something.

A datagram is decoded once and then handed to every receiver as the same frame, in order of
arrival, without an event per receiver (clock.py says how). A timer that moves to later keeps its
event: that event finds the node not yet due and waits again. A timer that moves to earlier gets a
second event, and the first one finds that it is no longer expected.

Checkers are told what happens through the hooks that they override (checkers.py); a hook that
nobody overrides costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf

from jsonbus.core.events import Event
from jsonbus.core.rpc.requests import Request
from jsonbus.core.wire.decode import decode
from jsonbus.core.wire.frames import ListFrame, PresenceFrame
from jsonbus.sim.checkers import Checker
from jsonbus.sim.clock import Clock
from jsonbus.sim.network import Network
from jsonbus.sim.participants import Participant, SimNode
from jsonbus.sim.records import Flight, Sink


class Loop:
    """Drives the participants of one world."""

    def __init__(self, clock: Clock, network: Network, checkers: Sequence[Checker]) -> None:
        self.participants: list[Participant] = []
        self._clock = clock
        self._network = network
        self._receivers: list[int] = []  # indexes of those that are up
        self._tell_sent = hooks(checkers, "sent")
        self._tell_delivered = hooks(checkers, "delivered")
        self._tell_touched = hooks(checkers, "touched")
        self._tell_told = hooks(checkers, "told")
        #: Called with what a node that looks up others hears of them.
        self.on_news: Callable[[SimNode, list[Event]], None] | None = None

    def bring_up(self, participant: Participant) -> None:
        assert not participant.is_up
        participant.is_up = True
        participant.started_at = self._clock.now
        participant.wake_at = inf
        self._receivers.append(participant.index)

    def take_down(self, participant: Participant) -> None:
        assert participant.is_up
        participant.is_up = False
        participant.stopped_at = self._clock.now
        self._receivers.remove(participant.index)

    def settle(self, participant: Participant) -> None:
        """After any call into a participant: send its output, and note when to wake it."""
        now = self._clock.now
        for data in participant.output(now):
            self._send(participant, data)
        at = participant.timer_at()
        if at is not None and at < participant.wake_at:
            participant.wake_at = max(at, now)
            self._clock.call_at(participant.wake_at, self._wake, participant)
        self._touch(participant)

    def fetch(self, receiver: Participant, flight: Flight | None) -> None:
        """Take what a node has for its application, and answer requests."""
        if not isinstance(receiver, SimNode):
            return
        for sink, messages in receiver.core.take_deliveries():
            assert isinstance(sink, Sink)
            for delivered in self._tell_delivered:
                delivered(sink, messages, flight)
            for message in messages:
                if isinstance(message, Request):
                    now = receiver.local(self._clock.now)
                    receiver.core.requests.reply(message, message.value, None, now)

    def freeze(self, node: SimNode) -> None:
        """Stop a process: its timers are ignored until it is thawed."""
        node.is_frozen = True

    def thaw(self, node: SimNode) -> None:
        """Let a process go on; what was due meanwhile is overdue now."""
        node.is_frozen = False
        node.wake_at = inf

    def _touch(self, participant: Participant) -> None:
        for touched in self._tell_touched:
            touched(participant)

    def _wake(self, participant: Participant) -> None:
        now = self._clock.now
        if now != participant.wake_at or not participant.is_up or participant.is_frozen:
            return
        participant.wake_at = inf
        at = participant.timer_at()
        if at is not None and at > now:  # the timer has moved to later
            participant.wake_at = at
            self._clock.call_at(at, self._wake, participant)
            return
        participant.handle_timer(now)
        self.fetch(participant, None)  # what waited for something that is given up now
        self._drain_events(participant)
        self.settle(participant)

    def _send(self, sender: Participant, data: bytes) -> None:
        frame = decode(data)  # a node that sends unreadable bytes has a bug: let it raise
        for sent in self._tell_sent:
            sent(sender, frame, data)
        arrivals = self._network.arrivals(sender.index, self._receivers, self._clock.now)
        if arrivals:
            has_messages = not isinstance(frame, PresenceFrame | ListFrame)
            flight = Flight(data, frame, sender.index, sender.address, has_messages, arrivals)
            self._clock.call_at(arrivals[0][0], self._land, flight)

    def _land(self, flight: Flight) -> None:
        """Hand the datagram to the receivers that are next."""
        arrivals = flight.arrivals
        at, index = arrivals[flight.landed]
        while True:
            receiver = self.participants[index]
            if receiver.is_up:
                receiver.receive(flight, at)
                if flight.has_messages:
                    self.fetch(receiver, flight)
                if self._tell_told or receiver.seeks:
                    self._drain_events(receiver)
                if receiver.take_attention():
                    self.fetch(receiver, flight)  # a list may report that somebody is gone
                    self.settle(receiver)
                elif self._tell_touched:
                    self._touch(receiver)
            flight.landed += 1
            if flight.landed == len(arrivals):
                return
            at, index = arrivals[flight.landed]
            if not self._clock.advance(at):
                self._clock.call_at(at, self._land, flight)
                return

    def _drain_events(self, participant: Participant) -> None:
        if not isinstance(participant, SimNode):
            return
        events = participant.core.take_events()
        for event in events:
            for told in self._tell_told:
                told(participant, event)
        if events and participant.seeks and self.on_news is not None:
            self.on_news(participant, events)


def hooks(checkers: Sequence[Checker], name: str) -> list[Callable[..., None]]:
    """Return the checkers' methods of that name, without the empty ones of the base class."""
    empty = getattr(Checker, name)
    return [getattr(c, name) for c in checkers if getattr(type(c), name) is not empty]
