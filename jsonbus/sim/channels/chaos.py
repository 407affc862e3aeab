"""The channels of a random history: who binds, connects, sends, takes and closes, and when.

It runs beside everything else that happens in the history (history.py), with separate dice. After
the faults have ended, nobody connects any more, and all applications take what comes: soon
everything that was sent must have been taken. Then all channels are closed, and nothing may be left
of them.
"""

from __future__ import annotations

import random
from math import inf

from jsonbus.core.channel.limits import MEMORY_BYTES_MAX, MEMORY_EACH_BYTES, SILENCE_S
from jsonbus.sim.channels.checkers import EverythingArrives, channel_checkers
from jsonbus.sim.channels.endpoint import Endpoint
from jsonbus.sim.channels.node import ChannelBounds
from jsonbus.sim.participants import SimNode
from jsonbus.sim.plan import Plan
from jsonbus.sim.records import Habits
from jsonbus.sim.world import World

PORTS = ("door", "7", "mail")
TIMEOUTS_S = (0.3, 1.0, 3.0, 8.0)
#: After the faults: silence has been noticed, and everything sent has been taken, even one message
#: after the other.
NOTICED_S = SILENCE_S + 2.0
ARRIVAL_S = 20.0


class ChannelChaos:
    """What happens to the channels of one history."""

    world: World

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._dice = random.Random(f"{plan.seed}/{plan.mode}/channels")
        self._arrives = EverythingArrives()
        is_lossless = not (plan.options.loss or plan.options.bursts)
        self.checkers = (*channel_checkers(is_calm=is_lossless), self._arrives)
        self._actions = {
            self._bind: 30,
            self._unbind: 3,
            self._connect: 30,
            self._connect_many: 1.5,
            self._close: 5,
            self._close_both: 2,
            self._change_habits: 3,
            self._crash_host: 0.7,
        }

    def begin(self, world: World) -> None:
        self.world = world
        usual = (MEMORY_BYTES_MAX, MEMORY_EACH_BYTES)
        memory = self._dice.choice((usual, usual, (100_000, 8_000)))
        channels_max = self._dice.choice((3, 1000, 1000))
        accept_max = self._dice.choice((2, 128))
        world.channels.bounds = ChannelBounds(channels_max, accept_max, *memory)
        for _ in world.nodes:
            self._bind()
        world.clock.call_at(self._pause(), self._act)

    def heal(self) -> None:
        """End all faults."""
        self._pacify()
        now = self.world.clock.now
        self._arrives.arrives_by = now + ARRIVAL_S
        self.world.clock.call_at(now + NOTICED_S, self._end)

    def _pacify(self) -> None:
        channels = self.world.channels
        for binding in channels.bindings:
            binding.habits, binding.accept_s = Habits(), 0.0
        for attempt in channels.attempts:
            attempt.habits = Habits()
        for node in self.world.nodes:
            channels.of(node).accept_all()
        for endpoint in channels.endpoints:
            if not endpoint.is_dead:
                left = endpoint.left
                endpoint.use(Habits(bytes_max=endpoint.habits.bytes_max))
                endpoint.left = left
                endpoint.work()

    def _end(self, _: None) -> None:
        """Close everything, as soon as everything has arrived."""
        if any(self._arrives.find()):
            self.world.clock.call_at(self.world.clock.now + 1.0, self._end)
            return
        self._arrives.arrives_by = inf
        self.world.note(None, "all channels are closed")
        for endpoint in self.world.channels.endpoints:
            if not endpoint.is_dead:
                endpoint.close()

    def _pause(self) -> float:
        return self.world.clock.now + self._dice.expovariate(1 / self._plan.pause_s)

    def _act(self, _: None) -> None:
        if self.world.clock.now < self._plan.chaos_s:
            (action,) = self._dice.choices(list(self._actions), list(self._actions.values()))
            if self.world.nodes:
                action()
            self.world.clock.call_at(self._pause(), self._act)

    def _bind(self) -> None:
        node, port = self._draw_node(), self._dice.choice(PORTS)
        if port not in self.world.channels.of(node).bindings:
            self.world.channels.bind(
                node,
                port,
                exclusive=self._dice.random() < 0.3,
                accept_s=self._dice.choice((0.0, 0.0, 0.0, 0.2, inf)),
                habits=self._draw_habits(),
            )

    def _unbind(self) -> None:
        node = self._draw_node()
        bound = list(self.world.channels.of(node).bindings)
        if bound:
            self.world.channels.unbind(node, self._dice.choice(bound))

    def _connect(self) -> None:
        self._connect_to(self._draw_target(), self._dice.choice(PORTS))

    def _connect_many(self) -> None:
        who, port = self._draw_target(), self._dice.choice(PORTS)
        for _ in range(self._dice.randint(2, 20)):
            self._connect_to(who, port)

    def _connect_to(self, who: str, port: str) -> None:
        self.world.channels.connect(
            self._draw_node(),
            who,
            port,
            timeout_s=self._dice.choice(TIMEOUTS_S),
            retry=self._dice.random() < 0.4,
            habits=self._draw_habits(),
        )

    def _close(self) -> None:
        if (endpoint := self._draw_open()) is not None:
            endpoint.close()

    def _close_both(self) -> None:
        if (endpoint := self._draw_open()) is not None:
            endpoint.close()
            if endpoint.other in self.world.channels.open_endpoints():
                endpoint.other.close()

    def _change_habits(self) -> None:
        if (endpoint := self._draw_open()) is not None:
            endpoint.use(self._draw_habits())

    def _crash_host(self) -> None:
        self.world.crash(self._draw_node(), with_host=True)

    def _draw_node(self) -> SimNode:
        return self._dice.choice(self.world.nodes)

    def _draw_target(self) -> str:
        """Return somebody by name or id, up or down; now and then a name that nobody has."""
        if self._dice.random() < 0.05:
            return "nobody"
        everybody = [p for p in self.world.participants if isinstance(p, SimNode)]
        node = self._draw_node() if self._dice.random() < 0.8 else self._dice.choice(everybody)
        return node.name if self._dice.random() < 0.5 else node.node_id

    def _draw_open(self) -> Endpoint | None:
        endpoints = [e for e in self.world.channels.open_endpoints() if not e.node.is_frozen]
        return self._dice.choice(endpoints) if endpoints else None

    def _draw_habits(self) -> Habits:
        return Habits(
            messages=self._dice.choice((0, 1, 5, 20, 100)),
            bytes_max=self._dice.choice((100, 3_000, 40_000, 200_000)),
            send_s=self._dice.choice((0.0, 0.0, 0.02, 0.5)),
            take_s=self._dice.choice((0.0, 0.0, 0.0, 0.02, 0.5, inf)),
            closes=self._dice.random() < 0.4,
        )
