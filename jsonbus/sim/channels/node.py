"""The channels of one simulated node, in one life of it.

`NodeChannels` stands where the real front ends stand: between the core (Ports, Budget, Attempt,
ChannelEnd) and the sockets of tcp.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING

from jsonbus.core.channel import limits
from jsonbus.core.channel.budget import Budget
from jsonbus.core.channel.ports import Ports, make_hello
from jsonbus.core.channel.wire import Refusal
from jsonbus.core.events import Event, NodeIntroduced, NodeJoined, NodeLeft
from jsonbus.core.membership.directory import Place
from jsonbus.sim.channels.connector import ConnectAttempt
from jsonbus.sim.channels.endpoint import Endpoint
from jsonbus.sim.channels.tcp import Socket
from jsonbus.sim.participants import SimNode
from jsonbus.sim.records import Binding

if TYPE_CHECKING:
    from jsonbus.sim.channels.world import WorldChannels


@dataclass(frozen=True, slots=True)
class ChannelBounds:
    """The bounds of every node's channels; a scenario may have tighter ones."""

    channels_max: int = limits.CHANNELS_MAX
    accept_max: int = limits.ACCEPT_MAX
    memory_bytes_max: int = limits.MEMORY_BYTES_MAX
    memory_each_bytes: int = limits.MEMORY_EACH_BYTES


class NodeChannels:
    """One node's channels, in one life."""

    def __init__(self, node: SimNode, world: WorldChannels) -> None:
        self.node = node
        self.world = world
        self.clock = world.clock
        self.is_dead = False
        self.tcp_port: int | None = None
        self.bounds = bounds = world.bounds
        self.ports: Ports[Binding] = Ports(node.core.settings, bounds.channels_max)
        self.budget = Budget(bounds.memory_bytes_max, bounds.memory_each_bytes)
        self.bindings: dict[str, Binding] = {}
        self.endpoints: dict[Endpoint, None] = {}
        self.attempts: dict[ConnectAttempt, None] = {}
        self._waiting: dict[Binding, list[Endpoint]] = {}  # to be accepted

    def local_now(self) -> float:
        return self.node.local(self.clock.now)

    # --- What an application does ---

    def bind(self, port: str, binding: Binding) -> None:
        self.ports.bind(port, binding, exclusive=binding.is_exclusive)
        self.bindings[port] = binding
        self._waiting[binding] = []
        if self.tcp_port is None:
            self.tcp_port = self.world.tcp.listen(self.node.index, self._accept)
            self.node.core.directory.set_channel_port(self.tcp_port, self.local_now())
            self.world.settle(self.node)

    def unbind(self, port: str) -> Binding:
        self.ports.unbind(port)
        binding = self.bindings.pop(port)
        for endpoint in self._waiting.pop(binding):
            endpoint.close()
        return binding

    def accept_all(self) -> None:
        """Accept all channels that wait."""
        for binding, waiting in self._waiting.items():
            while waiting:
                waiting.pop(0).accept(binding.habits)

    def connect(self, attempt: ConnectAttempt) -> None:
        self.attempts[attempt] = None
        attempt.step()

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
        for attempt in list(self.attempts):
            if attempt.who in heard:
                attempt.step()

    def work(self, _: None = None) -> None:
        """Continue whatever had to wait."""
        for endpoint in list(self.endpoints):
            endpoint.work()

    def thaw(self) -> None:
        """Run what became overdue meanwhile."""
        for endpoint in list(self.endpoints):
            endpoint.thaw()
        for attempt in list(self.attempts):
            attempt.step()

    def close(self) -> None:
        """Close the bus: every channel, too, and all attempts."""
        for attempt in list(self.attempts):
            attempt.drop()
        for endpoint in list(self.endpoints):
            endpoint.close()

    def die(self) -> None:
        """End the process."""
        self.is_dead = True
        for attempt in list(self.attempts):
            attempt.drop()
        for endpoint in self.endpoints:
            endpoint.over_at = min(endpoint.over_at, self.clock.now)
        for binding in self.bindings.values():
            binding.until = self.clock.now

    # --- What attempts need ---

    def find(self, who: str) -> list[Place]:
        """Return where they are; this node itself is where it listens."""
        found = self.node.core.directory.find(who, self.local_now())
        host, port = self.node.address[0], self.tcp_port
        return [p._replace(host=host, port=port) if p.is_self else p for p in found]

    def greet(self, attempt: ConnectAttempt, socket: Socket, to: str) -> Endpoint:
        """Say hello."""
        hello = make_hello(self.node.core.settings, to, attempt.port)
        endpoint = self._add(Endpoint(self, socket, hello, attempt))
        # Later: the attempt has to know its endpoint before that can be over.
        self.clock.call_at(self.clock.now, endpoint.work)
        return endpoint

    # --- What endpoints need ---

    def answer(self, endpoint: Endpoint) -> None:
        """Welcome the node that connects, or refuse it."""
        assert endpoint.core.hello is not None
        verdict = self.ports.judge(endpoint.core.hello)
        if not isinstance(verdict, Refusal):
            if len(self._waiting[verdict]) >= self.bounds.accept_max:
                verdict = self.ports.make_busy()
        if isinstance(verdict, Refusal):
            endpoint.core.refuse(verdict)
            return
        endpoint.core.welcome(self.ports.make_welcome())
        self.ports.opened(endpoint.port)
        endpoint.binding = verdict
        if not verdict.accept_s:
            endpoint.accept(verdict.habits)
            return
        self._waiting[verdict].append(endpoint)
        if len(self._waiting[verdict]) == 1:
            self._plan_accept(verdict)

    def ended(self, endpoint: Endpoint) -> None:
        if endpoint.binding is not None:
            self.ports.closed(endpoint.port)

    def forget(self, endpoint: Endpoint) -> None:
        self.endpoints.pop(endpoint, None)

    def note_memory(self, endpoint: Endpoint, complete: int, partial: int) -> bool:
        """Return whether others may go on because of that; it should let them, and goes last."""
        if not self.budget.note(endpoint, complete, partial):
            return False
        if endpoint in self.endpoints:
            del self.endpoints[endpoint]
            self.endpoints[endpoint] = None
        self.clock.call_at(self.clock.now, self.work)
        return True

    def _accept(self, socket: Socket) -> None:
        """Accept a connection, whose hello is still to come."""
        unidentified = sum(e.core.state == "opening" and e.attempt is None for e in self.endpoints)
        if unidentified >= limits.UNIDENTIFIED_MAX:
            socket.close()
        else:
            self._add(Endpoint(self, socket)).work()

    def _add(self, endpoint: Endpoint) -> Endpoint:
        self.endpoints[endpoint] = None
        self.world.endpoints.append(endpoint)
        return endpoint

    def _plan_accept(self, binding: Binding) -> None:
        if binding.accept_s != inf:
            at = self.clock.now + binding.accept_s * (0.5 + self.world.dice.random())
            self.clock.call_at(at, self._accept_one, binding)

    def _accept_one(self, binding: Binding) -> None:
        waiting = self._waiting.get(binding)
        if self.is_dead or not waiting:
            return
        if not self.node.is_frozen:
            waiting.pop(0).accept(binding.habits)
        if waiting:
            self._plan_accept(binding)
