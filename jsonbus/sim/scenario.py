"""A random history from a seed: chaos, then peace, then everything must be well.

Seed and mode decide everything: how many nodes, of which kinds, how bad the network, and what
happens when. For some ten or thirty virtual seconds nodes join, subscribe, publish, ask, leave,
crash alone or together and start again, links are cut in both or in one direction and mended, and
plain peers say their part. All along, the checkers watch. Then the network is made whole, and after
a lease and a grace all nodes must agree on the truth, stay quiet, and deliver every message.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import TypeVar

from jsonbus.core.wire.names import SERVED_PREFIX
from jsonbus.sim.channels.chaos import ChannelChaos
from jsonbus.sim.checkers import (
    Checker,
    DatagramsAreSound,
    DeliveriesAreTrue,
    HoldIsBounded,
    NothingIsForgotten,
    PublishersKeepOrder,
    RepliesAreTrue,
)
from jsonbus.sim.group_checkers import (
    AllAgree,
    JoinersAreServed,
    NobodyStorms,
    ProbesArrive,
    QuietGroupsAreQuiet,
)
from jsonbus.sim.list_checkers import (
    NothingIsWasted,
    NothingIsWithheld,
    VersionsNeverGoBack,
    settling_s,
)
from jsonbus.sim.network import Cut, NetworkOptions
from jsonbus.sim.participants import Participant, SimNode
from jsonbus.sim.plan import Plan, draw_settings
from jsonbus.sim.reliable_checkers import (
    BuffersAreBounded,
    ReliableIsExact,
    RetainedIsGivenOnce,
)
from jsonbus.sim.world import World

Choice = TypeVar("Choice")

TOPICS = ("a", "b", "c/1", "c/2", "d/x/y")
PATTERNS = (*TOPICS, "c/*", "d/**", "*/1")
QUIET_S = 12.0  # several heartbeats, and Trickle's intervals of 0.5 to 4 s
PROBE_S = 1.0
RETAINED_S = 2.0  # for the news of a subscription, and all repeats of a retained value
LARGE_BYTES = (3_000, 20_000)
CALM_JOIN_S = 1.0  # several times the longest share delay
FOUL_JOIN_S = 10.0


class Chaos:
    """One history. `run` ends in peace, or raises BrokenInvariantError."""

    def __init__(self, plan: Plan, observers: Sequence[Checker] = ()) -> None:
        self.plan = plan
        self._dice = random.Random(f"{plan.seed}/{plan.mode}/chaos")
        settling = settling_s(plan.nodes + plan.plain_peers)
        self._withheld = NothingIsWithheld(is_calm=plan.is_calm, judges_plain=plan.is_harmless)
        self._quiet = QuietGroupsAreQuiet()
        self._storms = NobodyStorms()
        self._agree = AllAgree()
        self._probes = ProbesArrive(judges_plain=plan.is_harmless)
        self._reliable = ReliableIsExact()
        self._retained = RetainedIsGivenOnce()
        checkers = (
            *observers,
            DatagramsAreSound(),
            DeliveriesAreTrue(),
            PublishersKeepOrder(),
            HoldIsBounded(),
            NothingIsForgotten(),
            RepliesAreTrue(),
            VersionsNeverGoBack(),
            self._withheld,
            NothingIsWasted(),
            JoinersAreServed(CALM_JOIN_S if plan.is_calm else FOUL_JOIN_S, settling),
            self._quiet,
            self._storms,
            self._agree,
            self._probes,
            self._reliable,
            BuffersAreBounded(),
            self._retained,
        )
        self._channels = ChannelChaos(plan) if plan.has_channels else None
        if self._channels is not None:
            checkers += self._channels.checkers
        self.world = World(f"{plan.seed}/{plan.mode}", plan.options, checkers)
        self._cuts: list[tuple[Cut, ...]] = []
        actions = self._actions()
        self._doings = [doing for doing, _ in actions]
        self._weights = [weight for _, weight in actions]

    def run(self) -> World:
        self._populate()
        self.world.clock.call_at(self._pause(), self._act)
        if self._channels is not None:
            self._channels.begin(self.world)
        self.world.clock.run_until(self.plan.chaos_s)
        self._heal()
        if self._channels is not None:
            self._channels.heal()
        self.world.run_for(settling_s(len(self.world.participants)))
        self._agree.finished()
        self._quiet.quiet_since = self.world.clock.now
        self.world.run_for(QUIET_S)
        self._probe()
        for checker in self.world.checkers:
            checker.finished()
        return self.world

    # --- Before and after ---

    def _populate(self) -> None:
        for number in range(self.plan.nodes):
            offset = round(self._dice.uniform(0, 1e6), 3)
            wall_s = self._dice.uniform(-1e4, 1e4)
            # Long names fill a datagram, so that even lists of a few nodes travel in parts.
            is_long = self._dice.random() < 0.3
            node = self.world.add_node(
                f"n{number}".ljust(200 if is_long else 1, "."),
                patterns=self._some_patterns(),
                clock_offset_s=offset,
                wall_s=wall_s,
                **draw_settings(self.plan, number, self._dice),
            )
            if self._dice.random() < 0.3:  # to be started later
                self.world.crash(node)
        for _ in range(self.plan.plain_peers):
            topics = self._dice.sample(TOPICS, k=self._dice.randint(0, 2))
            self.world.add_plain(topics=topics, answers=self._dice.random() < 0.5)

    def _heal(self) -> None:
        """End all faults, and make sure that somebody is there who answers."""
        world = self.world
        world.note(None, "peace: all links are whole, nothing is lost")
        self._storms.is_armed = True
        self._reliable.healed_at = world.clock.now
        for node in self._frozen():
            world.thaw(node)
        world.network.mend_all(world.clock.now)
        world.network.options = NetworkOptions(loops_back=self.plan.options.loops_back)
        answering = [
            p
            for p in world.participants
            if isinstance(p, SimNode) and (p.mode == "delayed" or p.settings.get("is_master"))
        ]
        if answering and not any(node.is_up for node in answering):
            world.start(answering[0], self._some_patterns())
        if self._dice.random() < 0.8:  # otherwise whoever is left
            for participant in self._down()[: max(0, 3 - len(world.nodes))]:
                self._start_one(participant)

    def _probe(self) -> None:
        """Let everybody publish to every topic, one after the other."""
        self.world.note(None, "probes: everybody publishes everything")
        self._probes.is_armed = True
        for node in self.world.nodes:
            for topic in TOPICS:
                # A plain peer that was silent for long understands only single messages, which are
                # usually those that are not reliable.
                is_reliable = not self.plan.plain_peers and self._dice.random() < 0.5
                self.world.publish(node, topic, is_reliable=is_reliable)
            self.world.run_for(0.01)
        self.world.run_for(PROBE_S)
        self._probe_retained()

    def _probe_retained(self) -> None:
        """Retain values, and let somebody subscribe late."""
        nodes = self.world.nodes
        if len(nodes) < 2 or any(node.mode == "basic" for node in nodes):
            return  # a node that wants everything is never late
        self.world.note(None, "probes: somebody subscribes late to what others retain")
        late, *others = self._dice.sample(nodes, k=min(4, len(nodes)))
        kept = [
            self.world.publish(node, f"r/{number}", "x" * size, is_retained=True)
            for number, (node, size) in enumerate(zip(others, (0, 300, 3_000), strict=False))
        ]
        self.world.run_for(PROBE_S)
        self.world.subscribe(late, "r/**")
        for publication in kept:
            self._retained.expect(late.sinks["r/**"], publication)
        self.world.run_for(RETAINED_S)

    # --- Chaos ---

    def _pause(self) -> float:
        return self.world.clock.now + self._dice.expovariate(1 / self.plan.pause_s)

    def _act(self, _: None) -> None:
        self._withheld.inspect(TOPICS)
        if self.world.clock.now < self.plan.chaos_s:
            (doing,) = self._dice.choices(self._doings, self._weights)
            doing()
            self.world.clock.call_at(min(self._pause(), self.plan.chaos_s), self._act)

    def _actions(self) -> list[tuple[Callable[[], None], float]]:
        """Return what may happen, with weights."""
        cuts = [(self._partition, 2), (self._cut_one_way, 1.5), (self._mend, 4)]
        return [
            *([] if self.plan.is_harmless else cuts),
            (self._publish, 40),
            (self._publish_burst, 3),
            (self._publish_reliable, 20),
            (self._publish_reliable_burst, 3),
            (self._publish_large, 2),
            (self._publish_retained, 3),
            (self._subscribe, 10),
            (self._unsubscribe, 7),
            (self._serve, 2),
            (self._request, 5),
            (self._start, 9),
            (self._start_many, 0.7),
            (self._crash, 3),
            (self._crash_many, 0.5),
            (self._leave, 3),
            (self._change_interfaces, 1),
            (self._freeze, 1),
            (self._thaw, 2),
        ]

    def _publish(self) -> None:
        if (participant := self._one_of(self._up())) is not None:
            padding = "x" * self._dice.choice((0, 0, 10, 300))
            self.world.publish(participant, self._dice.choice(TOPICS), padding)

    def _publish_burst(self) -> None:
        if (node := self._one_of(self.world.nodes)) is not None:
            self.world.publish_batch(node, self._dice.choices(TOPICS, k=self._dice.randint(2, 40)))

    def _publish_reliable(self) -> None:
        if (node := self._one_of(self.world.nodes)) is not None:
            padding = "x" * self._dice.choice((0, 0, 10, 300))
            topic = self._dice.choice(TOPICS)
            self.world.publish(node, topic, padding, is_reliable=True)

    def _publish_reliable_burst(self) -> None:
        if (node := self._one_of(self.world.nodes)) is not None:
            topics = self._dice.choices(TOPICS, k=self._dice.randint(2, 40))
            self.world.publish_batch(node, topics, is_reliable=True)

    def _publish_large(self) -> None:
        """Publish a value that takes several datagrams."""
        if (node := self._one_of(self.world.nodes)) is not None:
            padding = "x" * self._dice.choice(LARGE_BYTES)
            is_reliable = self._dice.random() < 0.7
            self.world.publish(node, self._dice.choice(TOPICS), padding, is_reliable=is_reliable)

    def _publish_retained(self) -> None:
        if (node := self._one_of(self.world.nodes)) is not None:
            is_reliable = self._dice.random() < 0.5
            topic = self._dice.choice(TOPICS)
            self.world.publish(node, topic, is_retained=True, is_reliable=is_reliable)

    def _subscribe(self) -> None:
        if (node := self._one_of(self.world.nodes)) is not None:
            new = [pattern for pattern in PATTERNS if pattern not in node.sinks]
            used = [node.sinks[pattern] for pattern in PATTERNS if pattern in node.sinks]
            if new:
                sink = self._one_of(used) if self._dice.random() < 0.3 else None
                self.world.subscribe(node, self._dice.choice(new), sink)

    def _unsubscribe(self) -> None:
        if (node := self._one_of(self.world.nodes)) is not None:
            pattern = self._one_of(list(node.sinks))
            if pattern is not None and pattern.startswith(SERVED_PREFIX):
                self.world.unserve(node, pattern.removeprefix(SERVED_PREFIX))
            elif pattern is not None:
                self.world.unsubscribe(node, pattern)

    def _serve(self) -> None:
        if (node := self._one_of(self.world.nodes)) is not None:
            topic = self._dice.choice(TOPICS)
            if SERVED_PREFIX + topic not in node.sinks:
                self.world.serve(node, topic)

    def _request(self) -> None:
        if (node := self._one_of(self.world.nodes)) is not None:
            self.world.request(node, self._dice.choice(TOPICS))

    def _start(self) -> None:
        """Start somebody who is down."""
        if (participant := self._one_of(self._down())) is not None:
            self._start_one(participant)

    def _start_many(self) -> None:
        for participant in self._down():
            self._start_one(participant)

    def _start_one(self, participant: Participant) -> None:
        """Start one, mostly with a new id, as front ends do; often it publishes at once."""
        node_id = None
        if isinstance(participant, SimNode) and self._dice.random() < 0.3:
            node_id = participant.node_id
        self.world.start(participant, self._some_patterns(), node_id)
        if self._dice.random() < 0.5:  # it cannot know yet who wants what
            count = 1100 if self._dice.random() < 0.05 else self._dice.randint(1, 10)
            self.world.publish_batch(participant, self._dice.choices(TOPICS, k=count))

    def _crash(self) -> None:
        if (participant := self._one_of(self._up())) is not None:
            self.world.crash(participant)

    def _crash_many(self) -> None:
        up = self._up()
        for participant in self._dice.sample(up, k=self._dice.randint(0, len(up))):
            self.world.crash(participant)

    def _leave(self) -> None:
        if (node := self._one_of(self.world.nodes)) is not None:
            self.world.leave(node)

    def _partition(self) -> None:
        group, rest = self._two_groups()
        self.world.note(None, f"partition: {group} | {rest}")
        self._cuts.append(self.world.network.partition(group, rest))

    def _cut_one_way(self) -> None:
        group, rest = self._two_groups()
        self.world.note(None, f"cut: nothing passes from {group} to {rest}")
        self._cuts.append((self.world.network.cut(group, rest),))

    def _mend(self) -> None:
        if self._cuts:
            self.world.note(None, "a cut is mended")
            for cut in self._cuts.pop(self._dice.randrange(len(self._cuts))):
                self.world.network.mend(cut, self.world.clock.now)

    def _change_interfaces(self) -> None:
        if (node := self._one_of(self.world.nodes)) is not None:
            self.world.change_interfaces(node)

    def _freeze(self) -> None:
        if not self.plan.is_harmless and (node := self._one_of(self.world.nodes)) is not None:
            self.world.freeze(node)

    def _thaw(self) -> None:
        if (node := self._one_of(self._frozen())) is not None:
            self.world.thaw(node)

    # --- Choosing ---

    def _up(self) -> list[Participant]:
        return [p for p in self.world.participants if p.is_up and not p.is_frozen]

    def _frozen(self) -> list[SimNode]:
        participants = self.world.participants
        return [p for p in participants if isinstance(p, SimNode) and p.is_frozen]

    def _down(self) -> list[Participant]:
        return [participant for participant in self.world.participants if not participant.is_up]

    def _one_of(self, choices: Sequence[Choice]) -> Choice | None:
        return self._dice.choice(choices) if choices else None

    def _some_patterns(self) -> list[str]:
        return self._dice.sample(PATTERNS, k=self._dice.choice((0, 1, 1, 2, 3)))

    def _two_groups(self) -> tuple[list[int], list[int]]:
        everybody = [participant.index for participant in self.world.participants]
        self._dice.shuffle(everybody)
        size = self._dice.randint(1, max(1, len(everybody) - 1))
        return sorted(everybody[:size]), sorted(everybody[size:])
