"""What happens in the chaos of a random history: actions drawn from dice, one after the other.

Every family of histories (plan.py) has a class with its actions and their weights:

- `Chaos`: a dozen nodes at most, to which everything happens;
- `LargeChaos`: many nodes in groups, each group behind a switch. A switch that dies separates its
  group from all others; either the group still hears itself, or each of its nodes is alone. A group
  may lose its power, too, and comes back within a moment;
- `LongChaos`: few nodes and an hour, in which nodes restart every few seconds.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from jsonbus.core.wire.names import SERVED_PREFIX
from jsonbus.sim.participants import Participant, SimNode
from jsonbus.sim.plan import Plan
from jsonbus.sim.promises import TOPICS
from jsonbus.sim.script import Padding, Ref, Stage, ref_to

#: Weight; what is done; whom one is drawn from to do it to, or None for actions on the whole world.
Action = tuple[float, Callable[..., None], Callable[[], Sequence[Any]] | None]

LARGE_BYTES = (3_000, 20_000)

#: In groups so large that not everybody can be asked for everything each time.
INSPECTED_TOPICS = 3
LARGE_PROBES = 8
POWER_LOST_S = 3.0  # on average

#: Nodes of a long history that never restart.
RESIDENTS = 2


class Chaos:
    """What happens in a history of the family "small", and what other families have in common."""

    topics: Sequence[str] = TOPICS
    patterns: Sequence[str] = (*TOPICS, "c/*", "d/**", "*/1")

    def __init__(self, plan: Plan, stage: Stage, dice: random.Random) -> None:
        self.plan = plan
        self.world = stage.world
        self._do = stage.do
        self._dice = dice
        self._cuts: list[Ref] = []
        self._cuts_made = 0
        self._actions = self._list_actions()
        self._weights = [weight for weight, *_ in self._actions]

    def begin(self) -> None:
        self.world.clock.call_at(self._pause(), self._act)

    def _pause(self) -> float:
        return self.world.clock.now + self._dice.expovariate(1 / self.plan.pause_s)

    def _act(self, _: None) -> None:
        self._inspect()
        if self.world.clock.now < self.plan.chaos_s:
            (chosen,) = self._dice.choices(self._actions, self._weights)
            action, candidates = chosen[1:]
            if candidates is None:
                action()
            elif found := candidates():
                action(self._dice.choice(found))
            self.world.clock.call_at(min(self._pause(), self.plan.chaos_s), self._act)

    def _inspect(self) -> None:
        self._do("promises.inspect")

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
            (9, self.start, self.down),
            (0.7, self._start_many, None),
            (3, partial(self._to, "world.crash"), self._up),
            (0.5, self._crash_many, None),
            (3, partial(self._to, "world.leave"), self._nodes),
            (1, partial(self._to, "world.change_interfaces"), self._nodes),
            (1, partial(self._to, "world.freeze"), self._may_freeze),
            (2, partial(self._to, "world.thaw"), self._frozen),
        ]

    def _to(self, method: str, participant: Participant) -> None:
        self._do(method, ref_to(participant))

    def _publish(self, participant: Participant, **flags: Any) -> None:
        padding = Padding(self._dice.choice((0, 0, 10, 300)))
        topic = self._dice.choice(self.topics)
        self._do("world.publish", ref_to(participant), topic, padding, **flags)

    def _publish_burst(self, node: SimNode, **flags: Any) -> None:
        topics = self._dice.choices(self.topics, k=self._dice.randint(2, 40))
        self._do("world.publish_batch", ref_to(node), topics, **flags)

    def _publish_large(self, node: SimNode) -> None:
        """Publish a value that takes several datagrams."""
        padding = Padding(self._dice.choice(LARGE_BYTES))
        is_reliable = self._dice.random() < 0.7
        topic = self._dice.choice(self.topics)
        self._do("world.publish", ref_to(node), topic, padding, is_reliable=is_reliable)

    def _publish_retained(self, node: SimNode) -> None:
        is_reliable = self._dice.random() < 0.5
        topic = self._dice.choice(self.topics)
        flags: dict[str, Any] = {"is_retained": True, "is_reliable": is_reliable}
        self._do("world.publish", ref_to(node), topic, **flags)

    def _subscribe(self, node: SimNode) -> None:
        new = [pattern for pattern in self.patterns if pattern not in node.sinks]
        used = [pattern for pattern in self.patterns if pattern in node.sinks]
        if new:
            shares_sink = self._dice.random() < 0.3 and used
            sink = (
                (Ref(ref_to(node).name, "sinks", self._dice.choice(used)),) if shares_sink else ()
            )
            self._do("world.subscribe", ref_to(node), self._dice.choice(new), *sink)

    def _unsubscribe(self, node: SimNode) -> None:
        if node.sinks:
            pattern = self._dice.choice(list(node.sinks))
            if pattern.startswith(SERVED_PREFIX):
                self._do("world.unserve", ref_to(node), pattern.removeprefix(SERVED_PREFIX))
            else:
                self._do("world.unsubscribe", ref_to(node), pattern)

    def _serve(self, node: SimNode) -> None:
        topic = self._dice.choice(self.topics)
        if SERVED_PREFIX + topic not in node.sinks:
            self._do("world.serve", ref_to(node), topic)

    def _request(self, node: SimNode) -> None:
        self._do("world.request", ref_to(node), self._dice.choice(self.topics))

    def start(self, participant: Participant) -> None:
        """Start one, mostly with a new id, as front ends do; often it publishes at once."""
        them = ref_to(participant)
        keeps_id = isinstance(participant, SimNode) and self._dice.random() < 0.3
        node_id = (Ref(them.name, "node_id"),) if keeps_id else ()
        self._do("world.start", them, self.some_patterns(), *node_id)
        if self._dice.random() < 0.5:  # it cannot know yet who wants what
            count = 1100 if self._dice.random() < 0.05 else self._dice.randint(1, 10)
            self._do("world.publish_batch", them, self._dice.choices(self.topics, k=count))

    def _start_many(self) -> None:
        for participant in self.down():
            self.start(participant)

    def _crash_many(self) -> None:
        up = self._up()
        for participant in self._dice.sample(up, k=self._dice.randint(0, len(up))):
            self._do("world.crash", ref_to(participant))

    def _cut(self, method: str) -> None:
        group, rest = self._two_groups()
        self._cuts_made += 1
        cut = Ref(f"cut{self._cuts_made}")
        self._do(method, [*map(ref_to, group)], [*map(ref_to, rest)], name=cut.name)
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

    def down(self) -> list[Participant]:
        return [participant for participant in self.world.participants if not participant.is_up]

    def some_patterns(self) -> list[str]:
        return self._dice.sample(self.patterns, k=self._dice.choice((0, 1, 1, 2, 3)))

    def _two_groups(self) -> tuple[list[Participant], list[Participant]]:
        everybody = [participant.index for participant in self.world.participants]
        self._dice.shuffle(everybody)
        size = self._dice.randint(1, max(1, len(everybody) - 1))
        group = set(everybody[:size])
        return (
            [p for p in self.world.participants if p.index in group],
            [p for p in self.world.participants if p.index not in group],
        )

    # --- The probes at the end ---

    def probing_nodes(self) -> Sequence[SimNode]:
        return self.world.nodes

    def probed_topics(self) -> Sequence[str]:
        return self.topics


class LargeChaos(Chaos):
    """Many nodes in groups, each behind a switch."""

    def __init__(self, plan: Plan, stage: Stage, dice: random.Random) -> None:
        # So many topics that of most of them a few nodes know, and of some nobody.
        self.topics = (*TOPICS, *(f"room/{number}" for number in range(plan.nodes)))
        self.patterns = (*self.topics, "c/*", "d/**")
        self._switches = dice.randint(4, 10)
        self._dead: dict[int, Ref] = {}  # cuts, by switch
        super().__init__(plan, stage, dice)

    def _list_actions(self) -> list[Action]:
        return [
            (2, self._kill_switch, lambda: sorted({*range(self._switches)} - {*self._dead})),
            (2, self._revive_switch, lambda: list(self._dead)),
            (0.6, self._lose_power, lambda: range(self._switches)),
            (0.7, partial(self._cut, "world.cut"), None),
            (2, self._mend, lambda: range(len(self._cuts))),
            (30, self._publish, self._up),
            (2, self._publish_burst, self._nodes),
            (15, partial(self._publish, is_reliable=True), self._nodes),
            (2, partial(self._publish_burst, is_reliable=True), self._nodes),
            (1, self._publish_large, self._nodes),
            (3, self._publish_retained, self._nodes),
            (10, self._subscribe, self._nodes),
            (8, self._unsubscribe, self._nodes),
            (2, self._serve, self._nodes),
            (4, self._request, self._nodes),
            (12, self.start, self.down),
            (0.4, self._start_many, None),
            (4, partial(self._to, "world.crash"), self._up),
            (4, partial(self._to, "world.leave"), self._nodes),
            (1, partial(self._to, "world.change_interfaces"), self._nodes),
            (1, partial(self._to, "world.freeze"), self._may_freeze),
            (2, partial(self._to, "world.thaw"), self._frozen),
        ]

    def _inspect(self) -> None:
        self._do("promises.inspect", self._dice.sample(self.topics, k=INSPECTED_TOPICS))

    def _kill_switch(self, switch: int) -> None:
        group = self._behind(switch)
        hears_itself = self._dice.random() < 0.5
        everybody = self.world.participants
        rest = [p for p in everybody if p not in set(group)] if hears_itself else everybody
        self._cuts_made += 1
        cut = self._dead[switch] = Ref(f"cut{self._cuts_made}")
        self._do("world.partition", [*map(ref_to, group)], [*map(ref_to, rest)], name=cut.name)

    def _revive_switch(self, switch: int) -> None:
        self._do("world.mend", self._dead.pop(switch))

    def _lose_power(self, switch: int) -> None:
        """Crash all nodes of the group; they start together once the power is back."""
        group = [p for p in self._behind(switch) if p.is_up and not p.is_frozen]
        for participant in group:
            self._do("world.crash", ref_to(participant))
        back_at = self.world.clock.now + self._dice.expovariate(1 / POWER_LOST_S)
        if back_at < self.plan.chaos_s:
            self.world.clock.call_at(back_at, self._restore_power, group)

    def _restore_power(self, group: Sequence[Participant]) -> None:
        for participant in group:
            if not participant.is_up:
                self.start(participant)

    def _behind(self, switch: int) -> list[Participant]:
        return [p for p in self.world.participants if p.index % self._switches == switch]

    def probing_nodes(self) -> Sequence[SimNode]:
        nodes = self.world.nodes
        return self._dice.sample(nodes, k=min(LARGE_PROBES, len(nodes)))

    def probed_topics(self) -> Sequence[str]:
        return self._dice.sample(self.topics, k=LARGE_PROBES)


class LongChaos(Chaos):
    """Few nodes, for an hour. All but two restart every few seconds."""

    def _list_actions(self) -> list[Action]:
        cuts: list[Action] = [
            (1, partial(self._cut, "world.partition"), None),
            (0.5, partial(self._cut, "world.cut"), None),
            (4, self._mend, lambda: range(len(self._cuts))),
        ]
        return [
            *([] if self.plan.is_harmless else cuts),
            (45, self._restart, self._passers_by),
            (10, self.start, self.down),
            (30, self._publish, self._up),
            (15, partial(self._publish, is_reliable=True), self._nodes),
            (1, partial(self._publish_burst, is_reliable=True), self._nodes),
            (1, self._publish_large, self._nodes),
            (5, self._publish_retained, self._nodes),
            (10, self._subscribe, self._nodes),
            (7, self._unsubscribe, self._nodes),
            (3, self._serve, self._nodes),
            (8, self._request, self._nodes),
            (1, partial(self._to, "world.change_interfaces"), self._nodes),
            (0.5, partial(self._to, "world.freeze"), self._may_freeze),
            (3, partial(self._to, "world.thaw"), self._frozen),
        ]

    def _passers_by(self) -> list[SimNode]:
        """Return the nodes that restart; the others stay and meet all of them."""
        return [node for node in self.world.nodes if node.index >= RESIDENTS]

    def _restart(self, node: SimNode) -> None:
        self._to(self._dice.choice(("world.crash", "world.leave")), node)
        if self._dice.random() < 0.7:
            self.start(node)  # at once, as a supervisor does


CHAOS: dict[str, type[Chaos]] = {"small": Chaos, "large": LargeChaos, "long": LongChaos}
