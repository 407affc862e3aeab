"""The channels of a random history: who binds, connects, sends, takes and closes, and when.

It runs beside everything else that happens in the history (history.py), with separate dice. What it
does are steps (script.py), too; they call the third attempt to connect call3, and the ends of its
channel call3.near and call3.far.

After the faults have ended, nobody connects any more, and all applications take what comes: soon
everything that was sent must have been taken. Then all channels are closed, and nothing may be left
of them.
"""

from __future__ import annotations

import random
from math import inf
from typing import Any

from jsonbus.core.channel.limits import MEMORY_BYTES_MAX, MEMORY_EACH_BYTES, SILENCE_S
from jsonbus.sim.channels.checkers import find_untaken
from jsonbus.sim.channels.connector import ConnectAttempt
from jsonbus.sim.channels.endpoint import Endpoint
from jsonbus.sim.channels.node import ChannelBounds
from jsonbus.sim.participants import SimNode
from jsonbus.sim.plan import Plan
from jsonbus.sim.records import Habits
from jsonbus.sim.script import Ref, Stage, ref_to

PORTS = ("door", "7", "mail")
TIMEOUTS_S = (0.3, 1.0, 3.0, 8.0)
#: After the faults: silence has been noticed.
NOTICED_S = SILENCE_S + 2.0


class ChannelChaos:
    """What happens to the channels of one history."""

    def __init__(self, plan: Plan, stage: Stage) -> None:
        self.world = stage.world
        self._plan = plan
        self._do = stage.do
        self._dice = random.Random(f"{plan.seed}/{plan.mode}/channels")
        self._names: dict[ConnectAttempt, str] = {}  # of attempts, in steps
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

    def begin(self) -> None:
        usual = (MEMORY_BYTES_MAX, MEMORY_EACH_BYTES)
        memory = self._dice.choice((usual, usual, (100_000, 8_000)))
        channels_max = self._dice.choice((3, 1000, 1000))
        accept_max = self._dice.choice((2, 128))
        bounds = ChannelBounds(channels_max, accept_max, *memory)
        self._do("world.channels.limit", bounds)
        for _ in self.world.nodes:
            self._bind()
        self.world.clock.call_at(self._pause(), self._act)

    def heal(self) -> None:
        """End all faults."""
        self._do("world.channels.take_all")
        self.world.clock.call_at(self.world.clock.now + NOTICED_S, self._end)

    def _end(self, _: None) -> None:
        """Close everything, as soon as everything has arrived."""
        if any(find_untaken(self.world.channels)):
            self.world.clock.call_at(self.world.clock.now + 1.0, self._end)
        else:
            self._do("world.channels.close_all")

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
            self._do(
                "world.channels.bind",
                ref_to(node),
                port,
                exclusive=self._dice.random() < 0.3,
                accept_s=self._dice.choice((0.0, 0.0, 0.0, 0.2, inf)),
                habits=self._draw_habits(),
            )

    def _unbind(self) -> None:
        node = self._draw_node()
        bound = list(self.world.channels.of(node).bindings)
        if bound:
            self._do("world.channels.unbind", ref_to(node), self._dice.choice(bound))

    def _connect(self) -> None:
        self._connect_to(self._draw_target(), self._dice.choice(PORTS))

    def _connect_many(self) -> None:
        who, port = self._draw_target(), self._dice.choice(PORTS)
        for _ in range(self._dice.randint(2, 20)):
            self._connect_to(who, port)

    def _connect_to(self, who: Any, port: str) -> None:
        name = f"call{len(self._names) + 1}"
        attempt = self._do(
            "world.channels.connect",
            ref_to(self._draw_node()),
            who,
            port,
            timeout_s=self._dice.choice(TIMEOUTS_S),
            retry=self._dice.random() < 0.4,
            habits=self._draw_habits(),
            name=name,
        )
        self._names[attempt] = name

    def _close(self) -> None:
        if (end := self._draw_open()) is not None:
            self._to(end, "close")

    def _close_both(self) -> None:
        if (end := self._draw_open()) is not None:
            self._to(end, "close")
            if (other := end.other) in self.world.channels.open_endpoints():
                self._to(other, "close")

    def _change_habits(self) -> None:
        if (end := self._draw_open()) is not None:
            self._to(end, "use", self._draw_habits())

    def _to(self, end: Endpoint, method: str, *arguments: Any) -> None:
        """Let the application of an end do something."""
        self._do(f"{self._place_of(end)}.{method}", *arguments)

    def _place_of(self, end: Endpoint) -> str | None:
        """Return what steps call it; None if its attempt has made another connection since."""
        attempt = end.attempt or (end.other.attempt if end.other else None)
        assert attempt is not None, end
        side = "near" if end is attempt.near else "far" if end is attempt.far else None
        return side and f"{self._names[attempt]}.{side}"

    def _crash_host(self) -> None:
        self._do("world.crash", ref_to(self._draw_node()), with_host=True)

    def _draw_node(self) -> SimNode:
        return self._dice.choice(self.world.nodes)

    def _draw_target(self) -> str | Ref:
        """Return somebody by name or id, up or down; now and then a name that nobody has."""
        if self._dice.random() < 0.05:
            return "nobody"
        everybody = [p for p in self.world.participants if isinstance(p, SimNode)]
        node = self._draw_node() if self._dice.random() < 0.8 else self._dice.choice(everybody)
        return Ref(ref_to(node).name, "name" if self._dice.random() < 0.5 else "node_id")

    def _draw_open(self) -> Endpoint | None:
        ends = [e for e in self.world.channels.open_endpoints() if not e.node.is_frozen]
        found = [end for end in ends if self._place_of(end)]
        return self._dice.choice(found) if found else None

    def _draw_habits(self) -> Habits:
        return Habits(
            messages=self._dice.choice((0, 1, 5, 20, 100)),
            bytes_max=self._dice.choice((100, 3_000, 40_000, 200_000)),
            send_s=self._dice.choice((0.0, 0.0, 0.02, 0.5)),
            take_s=self._dice.choice((0.0, 0.0, 0.0, 0.02, 0.5, inf)),
            closes=self._dice.random() < 0.4,
        )
