"""The channels of one simulated node, in one life of it.

`NodeChannels` stands where the real front ends stand: between the core (Ports, Budget, Attempt,
ChannelEnd) and the sockets of streams.py. What a scenario does is in channels/world.py.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from math import inf

from jsonbus.core.channel.budget import Budget
from jsonbus.core.channel.limits import (
    ACCEPT_MAX,
    CHANNELS_MAX,
    MEMORY_BYTES_MAX,
    MEMORY_EACH_BYTES,
    STRANGERS_MAX,
)
from jsonbus.core.channel.ports import Ports, make_hello
from jsonbus.core.channel.wire import Refusal
from jsonbus.core.events import Event, NodeIntroduced, NodeJoined, NodeLeft
from jsonbus.core.membership.directory import Place
from jsonbus.sim.channels.calls import Call
from jsonbus.sim.channels.ends import SimEnd
from jsonbus.sim.channels.sockets import Socket
from jsonbus.sim.channels.streams import Dialing, Streams
from jsonbus.sim.clock import Clock
from jsonbus.sim.participants import SimNode, index_of
from jsonbus.sim.records import Binding


@dataclass(frozen=True, slots=True)
class ChannelBounds:
    """The bounds of every node's channels; a scenario may have tighter ones."""

    channels_max: int = CHANNELS_MAX
    accept_max: int = ACCEPT_MAX
    memory_bytes_max: int = MEMORY_BYTES_MAX
    memory_each_bytes: int = MEMORY_EACH_BYTES


class Around:
    """What all channels of a world have in common: time, sockets, dice, and checkers."""

    def __init__(
        self,
        clock: Clock,
        streams: Streams,
        rng: random.Random,
        settle: Callable[[SimNode], None],
    ) -> None:
        self.clock = clock
        self.streams = streams
        self.dice = rng
        self.settle = settle
        self.bounds = ChannelBounds()
        self.tell_took: list[Callable[..., None]] = []
        self.tell_end_changed: list[Callable[..., None]] = []
        self.tell_end_touched: list[Callable[..., None]] = []
        self.tell_call_changed: list[Callable[..., None]] = []
        self.ends: list[SimEnd] = []  # all that ever existed


class NodeChannels:
    """One node's channels, in one life."""

    def __init__(self, node: SimNode, around: Around) -> None:
        self.node = node
        self.around = around
        self.is_dead = False
        self.tcp_port: int | None = None
        self.bounds = bounds = around.bounds
        self.ports: Ports[Binding] = Ports(node.core.settings, bounds.channels_max)
        self.budget = Budget(bounds.memory_bytes_max, bounds.memory_each_bytes)
        self.bindings: dict[str, Binding] = {}
        self.ends: dict[SimEnd, None] = {}
        self.calls: dict[Call, None] = {}
        self._waiting: dict[Binding, list[SimEnd]] = {}  # to be accepted

    def local_now(self) -> float:
        return self.node.local(self.around.clock.now)

    # --- What an application does ---

    def bind(self, port: str, binding: Binding) -> None:
        self.ports.bind(port, binding, exclusive=binding.is_exclusive)
        self.bindings[port] = binding
        self._waiting[binding] = []
        if self.tcp_port is None:
            self.tcp_port = self.around.streams.listen(self.node.index, self._accept)
            self.node.core.directory.set_channel_port(self.tcp_port, self.local_now())
            self.around.settle(self.node)

    def unbind(self, port: str) -> Binding:
        self.ports.unbind(port)
        binding = self.bindings.pop(port)
        for end in self._waiting.pop(binding):
            end.close()
        return binding

    def accept_all(self) -> None:
        """Accept all channels that wait."""
        for binding, waiting in self._waiting.items():
            while waiting:
                waiting.pop(0).accept(binding.habits)

    def connect(self, call: Call) -> None:
        self.calls[call] = None
        call.step()

    def hear(self, events: list[Event]) -> None:
        """Let attempts look again: others came, left, or announced their addresses.

        Only attempts: finding a node by its name means looking through all of them.
        """
        heard: set[str] = set()
        for event in events:
            if isinstance(event, NodeIntroduced):
                peer = self.node.core._roster.peers.get(event.node)
                heard |= {event.node, peer.name if peer is not None else event.node}
            elif isinstance(event, NodeJoined | NodeLeft):
                heard |= {event.node, event.name}
        for call in list(self.calls):
            if call.who in heard:
                call.step()

    def work(self, _: None = None) -> None:
        """Continue whatever had to wait."""
        for end in list(self.ends):
            end.work()

    def thaw(self) -> None:
        """Run what became overdue meanwhile."""
        for end in list(self.ends):
            end.thaw()
        for call in list(self.calls):
            call.step()

    def close(self) -> None:
        """Close the bus: every channel, too, and all attempts."""
        for call in list(self.calls):
            call.drop()
        for end in list(self.ends):
            end.close()

    def die(self) -> None:
        """End the process."""
        self.is_dead = True
        for call in list(self.calls):
            call.drop()
        for end in self.ends:
            end.over_at = min(end.over_at, self.around.clock.now)
        for binding in self.bindings.values():
            binding.until = self.around.clock.now

    # --- What calls need ---

    def places(self, who: str) -> list[Place]:
        """Return where they are; this node itself is where it listens."""
        found = self.node.core.directory.find(who, self.local_now())
        host = self.node.address[0]
        return [
            place._replace(host=host, port=self.tcp_port) if place.is_self else place
            for place in found
        ]

    def dial(self, place: Place, done: Callable[[Socket | None, str], None]) -> Dialing:
        assert place.host is not None and place.port is not None
        return self.around.streams.dial(self.node.index, index_of(place.host), place.port, done)

    def greet(self, call: Call, socket: Socket, to: str) -> SimEnd:
        """Say hello."""
        hello = make_hello(self.node.core.settings, to, call.port)
        end = self._add(SimEnd(self, socket, hello, call))
        # Later: the attempt has to know its end before that can be over.
        self.around.clock.call_at(self.around.clock.now, end.work)
        return end

    # --- What ends need ---

    def answer(self, end: SimEnd) -> None:
        """Welcome a caller, or refuse it."""
        assert end.core.hello is not None
        verdict = self.ports.judge(end.core.hello)
        if not isinstance(verdict, Refusal):
            if len(self._waiting[verdict]) >= self.bounds.accept_max:
                verdict = self.ports.make_busy()
        if isinstance(verdict, Refusal):
            end.core.refuse(verdict)
            return
        end.core.welcome(self.ports.make_welcome())
        self.ports.opened(end.port)
        end.binding = verdict
        if not verdict.accept_s:
            end.accept(verdict.habits)
            return
        self._waiting[verdict].append(end)
        if len(self._waiting[verdict]) == 1:
            self._plan_accept(verdict)

    def ended(self, end: SimEnd) -> None:
        if end.binding is not None:
            self.ports.closed(end.port)

    def forget(self, end: SimEnd) -> None:
        self.ends.pop(end, None)

    def note_memory(self, end: SimEnd, complete: int, partial: int) -> bool:
        """Return whether others may go on because of that; it should let them, and goes last."""
        if not self.budget.note(end, complete, partial):
            return False
        if end in self.ends:
            del self.ends[end]
            self.ends[end] = None
        self.around.clock.call_at(self.around.clock.now, self.work)
        return True

    def _accept(self, socket: Socket) -> None:
        """Accept a connection, whose hello is still to come."""
        strangers = sum(end.core.state == "opening" and end.call is None for end in self.ends)
        if strangers >= STRANGERS_MAX:
            socket.close()
            return
        self._add(SimEnd(self, socket, None, None)).work()

    def _add(self, end: SimEnd) -> SimEnd:
        self.ends[end] = None
        self.around.ends.append(end)
        return end

    def _plan_accept(self, binding: Binding) -> None:
        if binding.accept_s != inf:
            at = self.around.clock.now + binding.accept_s * (0.5 + self.around.dice.random())
            self.around.clock.call_at(at, self._accept_one, binding)

    def _accept_one(self, binding: Binding) -> None:
        waiting = self._waiting.get(binding)
        if self.is_dead or not waiting:
            return
        if not self.node.is_frozen:
            waiting.pop(0).accept(binding.habits)
        if waiting:
            self._plan_accept(binding)
