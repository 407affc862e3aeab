"""Channels in a simulated world: a scenario binds and connects here, and the truth is recorded."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from jsonbus.core.channel.ports import check_port
from jsonbus.core.events import Event
from jsonbus.sim.channels.calls import Call
from jsonbus.sim.channels.ends import SimEnd
from jsonbus.sim.channels.node_channels import Around, ChannelBounds, NodeChannels
from jsonbus.sim.channels.streams import Streams
from jsonbus.sim.checkers import Checker
from jsonbus.sim.clock import Clock
from jsonbus.sim.loop import Loop, hooks
from jsonbus.sim.participants import SimNode
from jsonbus.sim.records import Binding, Habits, Life


class WorldChannels:
    """All nodes' channels, and their history."""

    def __init__(
        self,
        loop: Loop,
        clock: Clock,
        streams: Streams,
        rng: random.Random,
        checkers: Sequence[Checker],
        note: Callable[[SimNode, str], None],
    ) -> None:
        self.streams = streams
        self.calls: list[Call] = []
        self.bindings: list[Binding] = []
        self.lives: list[Life] = []
        self._clock = clock
        self._note = note
        self._around = around = Around(clock, streams, rng, loop.settle)
        around.tell_took = hooks(checkers, "took")
        around.tell_end_changed = hooks(checkers, "end_changed")
        around.tell_end_touched = hooks(checkers, "end_touched")
        around.tell_call_changed = hooks(checkers, "call_changed")
        self._nodes: dict[SimNode, NodeChannels] = {}
        self._present: dict[SimNode, Life] = {}
        loop.on_news = self.hear

    @property
    def ends(self) -> list[SimEnd]:
        """All ends that ever existed."""
        return self._around.ends

    @property
    def bounds(self) -> ChannelBounds:
        return self._around.bounds

    @bounds.setter
    def bounds(self, bounds: ChannelBounds) -> None:
        """Bounds for lives that begin later."""
        self._around.bounds = bounds

    def of(self, node: SimNode) -> NodeChannels:
        """Return the channels of its present life."""
        channels = self._nodes.get(node)
        if channels is None:
            channels = self._nodes[node] = NodeChannels(node, self._around)
        return channels

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
        self._note(node, f"binds {port!r}{', exclusive' if exclusive else ''}")
        port = check_port(port)
        now = self._clock.now
        binding = Binding(node, port, exclusive, now, habits or Habits(), accept_s)
        self.of(node).bind(port, binding)
        self.bindings.append(binding)
        return binding

    def unbind(self, node: SimNode, port: str = "door") -> None:
        self._note(node, f"unbinds {port!r}")
        self.of(node).unbind(port).until = self._clock.now

    def connect(
        self,
        node: SimNode,
        who: str,
        port: str = "door",
        *,
        timeout_s: float = 5.0,
        retry: bool = False,
        habits: Habits | None = None,
    ) -> Call:
        self._note(node, f"calls {who}, {port!r}{', with retry' if retry else ''}")
        owner = self.of(node)
        call = Call(owner, who, port, timeout_s, retry=retry, habits=habits or Habits())
        self.calls.append(call)
        owner.connect(call)
        return call

    def open_ends(self) -> list[SimEnd]:
        """Return the ends that an application has and can still use."""
        return [end for end in self.ends if end.core.state == "open" and not end.is_dead]

    # --- What the world tells ---

    def started(self, node: SimNode) -> None:
        self.streams.revive(node.index)
        life = self._present[node] = Life(node, node.node_id, self._clock.now)
        self.lives.append(life)

    def leaving(self, node: SimNode) -> None:
        if node in self._nodes:
            self._nodes[node].close()

    def stopped(self, node: SimNode, *, with_host: bool) -> None:
        self._present.pop(node).until = self._clock.now
        channels = self._nodes.pop(node, None)
        if channels is not None:
            channels.die()
        if with_host:
            self.streams.fail_host(node.index)
        else:
            self.streams.end_process(node.index)

    def thawed(self, node: SimNode) -> None:
        if node in self._nodes:
            self._nodes[node].thaw()

    def hear(self, node: SimNode, events: list[Event]) -> None:
        """Pass on what the node heard of others."""
        self._nodes[node].hear(events)
