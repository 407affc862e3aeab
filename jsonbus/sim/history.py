"""A random history from a seed: chaos, then peace, then every promise must hold.

The plan (plan.py) says how many nodes there are, how bad the network is, and for how long. From it
a history makes a world and all its checkers, and runs in five phases:

1. Populate: production nodes, some of them down, and plain peers.
2. Chaos, some ten to thirty virtual seconds: random actions, one after the other (`_list_actions`).
   Nodes join, subscribe, publish, request, leave, crash and start again; links are cut and mended.
3. Heal: all links are whole, nothing is lost, and somebody is there who answers joiners.
4. Settle: after a lease and a grace all nodes must agree on the truth, then stay quiet.
5. Probe: everybody publishes everything, somebody subscribes late; every message must arrive.

Checkers watch all along; some are armed by a phase, and `finished` judges what took time.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from jsonbus.core.wire.names import SERVED_PREFIX
from jsonbus.sim.channels.chaos import ChannelChaos
from jsonbus.sim.channels.checkers import ChannelPromises
from jsonbus.sim.checkers import Checker
from jsonbus.sim.list_checkers import settling_s
from jsonbus.sim.participants import Participant, SimNode
from jsonbus.sim.plan import Plan, draw_settings
from jsonbus.sim.promises import TOPICS, Promises
from jsonbus.sim.script import Padding, Ref, Stage, Step
from jsonbus.sim.script import ref_to as _ref
from jsonbus.sim.world import World

#: Weight; what is done; whom one is drawn from to do it to, or None for actions on the whole world.
Action = tuple[float, Callable[..., None], Callable[[], Sequence[Any]] | None]

PATTERNS = (*TOPICS, "c/*", "d/**", "*/1")
QUIET_S = 12.0  # several heartbeats, and Trickle's intervals of 0.5 to 4 s
PROBE_S = 1.0
RETAINED_S = 2.0  # for the news of a subscription, and all repeats of a retained value
LARGE_BYTES = (3_000, 20_000)


class History:
    """One history. `run` ends in peace, or raises BrokenInvariantError."""

    def __init__(self, plan: Plan, observers: Sequence[Checker] = ()) -> None:
        self.plan = plan
        self._dice = random.Random(f"{plan.seed}/{plan.mode}/chaos")
        stage = Stage(plan.world_seed, plan.options, promises_of(plan), observers)
        self.world = stage.world
        self.steps: list[Step] = stage.steps  # taken so far
        self._do = stage.do
        self._channels = ChannelChaos(plan, stage) if plan.has_channels else None
        self._cuts: list[Ref] = []
        self._cuts_made = 0
        self._actions = self._list_actions()
        self._weights = [weight for weight, *_ in self._actions]

    def run(self) -> World:
        self._populate()
        self.world.clock.call_at(self._pause(), self._act)
        if self._channels is not None:
            self._channels.begin()
        self.world.clock.run_until(self.plan.chaos_s)
        self._heal()
        if self._channels is not None:
            self._channels.heal()
        self.world.run_for(settling_s(len(self.world.participants)))
        self._do("promises.settled")
        self.world.run_for(QUIET_S)
        self._probe()
        self._do("promises.finished")
        return self.world

    # --- Before and after ---

    def _populate(self) -> None:
        for number in range(self.plan.nodes):
            offset = round(self._dice.uniform(0, 1e6), 3)
            wall_s = self._dice.uniform(-1e4, 1e4)
            # Long names fill a datagram, so that even lists of a few nodes travel in parts.
            is_long = self._dice.random() < 0.3
            node = self._do(
                "world.add_node",
                f"n{number}".ljust(200 if is_long else 1, "."),
                patterns=self._some_patterns(),
                clock_offset_s=offset,
                wall_s=wall_s,
                name=f"n{number}",
                **draw_settings(self.plan, number, self._dice),
            )
            if self._dice.random() < 0.3:  # to be started later
                self._do("world.crash", _ref(node))
        for number in range(self.plan.plain_peers):
            topics = self._dice.sample(TOPICS, k=self._dice.randint(0, 2))
            answers = self._dice.random() < 0.5
            name = f"p{self.plan.nodes + number}"
            self._do("world.add_plain", topics=topics, answers=answers, name=name)

    def _heal(self) -> None:
        """End all faults, and make sure that somebody is there who answers."""
        world = self.world
        self._do("promises.peace")
        self._do("world.heal")
        answering = answering_nodes(world)
        if answering and not any(node.is_up for node in answering):
            self._do("world.start", _ref(answering[0]), self._some_patterns())
        if self._dice.random() < 0.8:  # otherwise whoever is left
            for participant in self._down()[: max(0, 3 - len(world.nodes))]:
                self._start(participant)

    def _probe(self) -> None:
        """Let everybody publish to every topic, one after the other."""
        self._do("promises.probe")
        for node in self.world.nodes:
            for topic in TOPICS:
                # A plain peer that was silent for long understands only single messages, which are
                # usually those that are not reliable.
                is_reliable = not self.plan.plain_peers and self._dice.random() < 0.5
                self._do("world.publish", _ref(node), topic, is_reliable=is_reliable)
            self.world.run_for(0.01)
        self.world.run_for(PROBE_S)
        self._probe_retained()

    def _probe_retained(self) -> None:
        """Retain values, and let somebody subscribe late."""
        nodes = self.world.nodes
        if len(nodes) < 2 or any(node.mode == "basic" for node in nodes):
            return  # a node that wants everything is never late
        self._do("promises.probe_retained")
        late, *others = self._dice.sample(nodes, k=min(4, len(nodes)))
        kept = [f"kept{number}" for number in range(len(others))]
        for number, (node, size) in enumerate(zip(others, (0, 300, 3_000), strict=False)):
            value = (f"r/{number}", Padding(size))
            self._do("world.publish", _ref(node), *value, is_retained=True, name=kept[number])
        self.world.run_for(PROBE_S)
        self._do("world.subscribe", _ref(late), "r/**")
        for name in kept:
            self._do("promises.expect_retained", Ref(_ref(late).name, "sinks", "r/**"), Ref(name))
        self.world.run_for(RETAINED_S)

    # --- Chaos ---

    def _pause(self) -> float:
        return self.world.clock.now + self._dice.expovariate(1 / self.plan.pause_s)

    def _act(self, _: None) -> None:
        self._do("promises.inspect")
        if self.world.clock.now < self.plan.chaos_s:
            (chosen,) = self._dice.choices(self._actions, self._weights)
            action, candidates = chosen[1:]
            if candidates is None:
                action()
            elif found := candidates():
                action(self._dice.choice(found))
            self.world.clock.call_at(min(self._pause(), self.plan.chaos_s), self._act)

    def _list_actions(self) -> list[Action]:
        cuts: list[Action] = [
            (2, partial(self._cut, "world.partition"), None),
            (1.5, partial(self._cut, "world.cut"), None),
            (4, self._mend, lambda: range(len(self._cuts))),
        ]
        return [
            *([] if self.plan.is_harmless else cuts),
            (40, self._publish, self._up),
            (3, self._publish_burst, self._nodes),
            (20, partial(self._publish, is_reliable=True), self._nodes),
            (3, partial(self._publish_burst, is_reliable=True), self._nodes),
            (2, self._publish_large, self._nodes),
            (3, self._publish_retained, self._nodes),
            (10, self._subscribe, self._nodes),
            (7, self._unsubscribe, self._nodes),
            (2, self._serve, self._nodes),
            (5, self._request, self._nodes),
            (9, self._start, self._down),
            (0.7, self._start_many, None),
            (3, partial(self._to, "world.crash"), self._up),
            (0.5, self._crash_many, None),
            (3, partial(self._to, "world.leave"), self._nodes),
            (1, partial(self._to, "world.change_interfaces"), self._nodes),
            (1, partial(self._to, "world.freeze"), self._may_freeze),
            (2, partial(self._to, "world.thaw"), self._frozen),
        ]

    def _to(self, method: str, participant: Participant) -> None:
        self._do(method, _ref(participant))

    def _publish(self, participant: Participant, **flags: Any) -> None:
        padding = Padding(self._dice.choice((0, 0, 10, 300)))
        topic = self._dice.choice(TOPICS)
        self._do("world.publish", _ref(participant), topic, padding, **flags)

    def _publish_burst(self, node: SimNode, **flags: Any) -> None:
        topics = self._dice.choices(TOPICS, k=self._dice.randint(2, 40))
        self._do("world.publish_batch", _ref(node), topics, **flags)

    def _publish_large(self, node: SimNode) -> None:
        """Publish a value that takes several datagrams."""
        padding = Padding(self._dice.choice(LARGE_BYTES))
        is_reliable = self._dice.random() < 0.7
        topic = self._dice.choice(TOPICS)
        self._do("world.publish", _ref(node), topic, padding, is_reliable=is_reliable)

    def _publish_retained(self, node: SimNode) -> None:
        is_reliable = self._dice.random() < 0.5
        topic = self._dice.choice(TOPICS)
        flags: dict[str, Any] = {"is_retained": True, "is_reliable": is_reliable}
        self._do("world.publish", _ref(node), topic, **flags)

    def _subscribe(self, node: SimNode) -> None:
        new = [pattern for pattern in PATTERNS if pattern not in node.sinks]
        used = [pattern for pattern in PATTERNS if pattern in node.sinks]
        if new:
            shares_sink = self._dice.random() < 0.3 and used
            sink = (Ref(_ref(node).name, "sinks", self._dice.choice(used)),) if shares_sink else ()
            self._do("world.subscribe", _ref(node), self._dice.choice(new), *sink)

    def _unsubscribe(self, node: SimNode) -> None:
        if node.sinks:
            pattern = self._dice.choice(list(node.sinks))
            if pattern.startswith(SERVED_PREFIX):
                self._do("world.unserve", _ref(node), pattern.removeprefix(SERVED_PREFIX))
            else:
                self._do("world.unsubscribe", _ref(node), pattern)

    def _serve(self, node: SimNode) -> None:
        topic = self._dice.choice(TOPICS)
        if SERVED_PREFIX + topic not in node.sinks:
            self._do("world.serve", _ref(node), topic)

    def _request(self, node: SimNode) -> None:
        self._do("world.request", _ref(node), self._dice.choice(TOPICS))

    def _start(self, participant: Participant) -> None:
        """Start one, mostly with a new id, as front ends do; often it publishes at once."""
        ref = _ref(participant)
        keeps_id = isinstance(participant, SimNode) and self._dice.random() < 0.3
        node_id = (Ref(ref.name, "node_id"),) if keeps_id else ()
        self._do("world.start", ref, self._some_patterns(), *node_id)
        if self._dice.random() < 0.5:  # it cannot know yet who wants what
            count = 1100 if self._dice.random() < 0.05 else self._dice.randint(1, 10)
            self._do("world.publish_batch", ref, self._dice.choices(TOPICS, k=count))

    def _start_many(self) -> None:
        for participant in self._down():
            self._start(participant)

    def _crash_many(self) -> None:
        up = self._up()
        for participant in self._dice.sample(up, k=self._dice.randint(0, len(up))):
            self._do("world.crash", _ref(participant))

    def _cut(self, method: str) -> None:
        group, rest = self._two_groups()
        self._cuts_made += 1
        cut = Ref(f"cut{self._cuts_made}")
        self._do(method, [*map(_ref, group)], [*map(_ref, rest)], name=cut.name)
        self._cuts.append(cut)

    def _mend(self, number: int) -> None:
        self._do("world.mend", self._cuts.pop(number))

    # --- Choosing ---

    def _up(self) -> list[Participant]:
        return [p for p in self.world.participants if p.is_up and not p.is_frozen]

    def _frozen(self) -> list[SimNode]:
        participants = self.world.participants
        return [p for p in participants if isinstance(p, SimNode) and p.is_frozen]

    def _nodes(self) -> list[SimNode]:
        return self.world.nodes

    def _may_freeze(self) -> list[SimNode]:
        return [] if self.plan.is_harmless else self.world.nodes

    def _down(self) -> list[Participant]:
        return [participant for participant in self.world.participants if not participant.is_up]

    def _some_patterns(self) -> list[str]:
        return self._dice.sample(PATTERNS, k=self._dice.choice((0, 1, 1, 2, 3)))

    def _two_groups(self) -> tuple[list[Participant], list[Participant]]:
        everybody = [participant.index for participant in self.world.participants]
        self._dice.shuffle(everybody)
        size = self._dice.randint(1, max(1, len(everybody) - 1))
        group = set(everybody[:size])
        return (
            [p for p in self.world.participants if p.index in group],
            [p for p in self.world.participants if p.index not in group],
        )


def answering_nodes(world: World) -> list[SimNode]:
    """Return the nodes that answer joiners when they are up."""
    nodes = [p for p in world.participants if isinstance(p, SimNode)]
    return [node for node in nodes if node.mode == "delayed" or node.settings.get("is_master")]


def promises_of(plan: Plan) -> Promises:
    participants = plan.nodes + plan.plain_peers
    channels = None
    if plan.has_channels:
        channels = ChannelPromises(is_lossless=plan.options.is_lossless)
    judged: dict[str, Any] = {"is_calm": plan.is_calm, "judges_plain": plan.is_harmless}
    return Promises(participants, **judged, channels=channels)
