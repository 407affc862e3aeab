"""Channels in a simulated world: what a scenario does with them, and the record of it."""

from __future__ import annotations

import random
from collections.abc import Callable

from jsonbus.core.channel.ports import check_port
from jsonbus.core.events import Event
from jsonbus.sim.channels.connector import ConnectAttempt
from jsonbus.sim.channels.endpoint import Endpoint
from jsonbus.sim.channels.node import ChannelBounds, NodeChannels
from jsonbus.sim.channels.tcp import Tcp
from jsonbus.sim.loop import Loop
from jsonbus.sim.participants import SimNode
from jsonbus.sim.records import Binding, Habits, Life


class WorldChannels:
    """All nodes' channels, and their history; `bounds` hold for lives that begin later."""

    def __init__(self, loop: Loop, make_dice: Callable[[str], random.Random]) -> None:
        self.clock = loop.clock
        self.settle = loop.settle
        self.tell = loop.tell
        self.tcp = Tcp(loop.clock, loop.network, make_dice("streams"))
        self.dice = make_dice("channels")
        self.bounds = ChannelBounds()
        self.attempts: list[ConnectAttempt] = []
        self.endpoints: list[Endpoint] = []
        self.bindings: list[Binding] = []
        self.lives: list[Life] = []
        self._nodes: dict[SimNode, NodeChannels] = {}
        self._present: dict[SimNode, Life] = {}
        loop.on_news = self._hear

    def of(self, node: SimNode) -> NodeChannels:
        """Return the channels of its present life."""
        if node not in self._nodes:
            self._nodes[node] = NodeChannels(node, self)
        return self._nodes[node]

    # --- What a scenario does ---

    def bind(
        self,
        node: SimNode,
        port: str = "door",
        *,
        exclusive: bool = False,
        accept_s: float = 0.0,
        habits: Habits | None = None,
    ) -> Binding:
        self.tell("happened", node, f"binds {port!r}{', exclusive' if exclusive else ''}")
        port = check_port(port)
        binding = Binding(node, port, exclusive, self.clock.now, habits or Habits(), accept_s)
        self.of(node).bind(port, binding)
        self.bindings.append(binding)
        return binding

    def unbind(self, node: SimNode, port: str = "door") -> None:
        self.tell("happened", node, f"unbinds {port!r}")
        self.of(node).unbind(port).until = self.clock.now

    def connect(
        self,
        node: SimNode,
        who: str,
        port: str = "door",
        *,
        timeout_s: float = 5.0,
        retry: bool = False,
        habits: Habits | None = None,
    ) -> ConnectAttempt:
        self.tell("happened", node, f"calls {who}, {port!r}{', with retry' if retry else ''}")
        owner, habits = self.of(node), habits or Habits()
        attempt = ConnectAttempt(owner, who, port, timeout_s, retry, habits)
        self.attempts.append(attempt)
        owner.connect(attempt)
        return attempt

    def limit(self, bounds: ChannelBounds) -> None:
        """Set the bounds of lives that begin later, or have not used a channel yet."""
        self.bounds = bounds

    def take_all(self) -> None:
        """Let all applications accept and take whatever comes, from now on."""
        for binding in self.bindings:
            binding.habits, binding.accept_s = Habits(), 0.0
        for attempt in self.attempts:
            attempt.habits = Habits()
        for node in sorted(self._nodes, key=lambda node: node.index):
            self._nodes[node].accept_all()
        for endpoint in self.endpoints:
            if not endpoint.is_dead:
                endpoint.take_all()

    def close_all(self) -> None:
        """Close every end that there is."""
        self.tell("happened", None, "all channels are closed")
        for endpoint in self.endpoints:
            if not endpoint.is_dead:
                endpoint.close()

    def open_endpoints(self) -> list[Endpoint]:
        """Return the endpoints that an application has and can still use."""
        return [each for each in self.endpoints if each.core.state == "open" and not each.is_dead]

    # --- What the world reports ---

    def started(self, node: SimNode) -> None:
        self.tcp.revive(node.index)
        life = self._present[node] = Life(node, node.node_id, self.clock.now)
        self.lives.append(life)

    def leaving(self, node: SimNode) -> None:
        if node in self._nodes:
            self._nodes[node].close()

    def stopped(self, node: SimNode, *, with_host: bool) -> None:
        self._present.pop(node).until = self.clock.now
        if node in self._nodes:
            self._nodes.pop(node).die()
        if with_host:
            self.tcp.fail_host(node.index)
        else:
            self.tcp.end_process(node.index)

    def thawed(self, node: SimNode) -> None:
        if node in self._nodes:
            self._nodes[node].thaw()

    def _hear(self, node: SimNode, events: list[Event]) -> None:
        self._nodes[node].hear(events)
