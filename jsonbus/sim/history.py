"""A random history from a seed: chaos, then peace, then every promise must hold.

The plan (plan.py) says how many nodes there are, how bad the network is, and for how long. From it
a history makes a world and all its checkers, and runs in five phases:

1. Populate: production nodes, some of them down, and plain peers.
2. Chaos, some ten to thirty virtual seconds, or an hour: random actions, one after the other
   (chaos.py). Nodes join, subscribe, publish, request, leave, crash and start again; links are cut
   and mended.
3. Heal: all links are whole, nothing is lost, and somebody is there who answers joiners.
4. Settle: after a lease and a grace all nodes must agree on the truth, then stay quiet.
5. Probe: everybody (of many nodes, some) publishes everything, somebody subscribes late; every
   message must arrive.

Checkers watch all along; some are armed by a phase, and `finished` judges what took time.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TYPE_CHECKING

from jsonbus.sim.channels.chaos import ChannelChaos
from jsonbus.sim.channels.checkers import ChannelPromises
from jsonbus.sim.chaos import CHAOS
from jsonbus.sim.checkers import Checker
from jsonbus.sim.list_checkers import settling_s
from jsonbus.sim.participants import SimNode
from jsonbus.sim.plan import Plan, draw_sealed_clock, draw_settings
from jsonbus.sim.promises import Promises
from jsonbus.sim.script import Padding, Ref, Stage, Step, ref_to
from jsonbus.sim.world import World

if TYPE_CHECKING:
    from jsonbus.sim.sealed.attacks import Attacks

QUIET_S = 12.0  # several heartbeats, and Trickle's intervals of 0.5 to 4 s
CHANNELS_QUIET_S = 25.0  # channels that were cut off have noticed it, and all were closed
#: After that time, the last recordings of nodes that are gone cannot be played to anybody, and
#: clocks that differ have been found out.
SEALED_SETTLING_S = 65.0
PROBE_S = 1.0
RETAINED_S = 2.0  # for the news of a subscription, and all repeats of a retained value


class History:
    """One history. `run` ends in peace, or raises BrokenInvariantError."""

    def __init__(self, plan: Plan, observers: Sequence[Checker] = ()) -> None:
        self.plan = plan
        self._dice = random.Random(f"{plan.world_seed}/chaos")
        promises = promises_of(plan)
        stage = Stage(plan.world_seed, plan.options, promises, observers, is_sealed=plan.is_sealed)
        self.world = stage.world
        self.steps: list[Step] = stage.steps  # taken so far
        self._do = stage.do
        self._channels = ChannelChaos(plan, stage) if plan.has_channels else None
        self._chaos = CHAOS[plan.family](plan, stage, self._dice)
        self._attacks = _attacks(plan, stage) if plan.is_sealed else None

    def run(self) -> World:
        self._populate()
        self._chaos.begin()
        if self._channels is not None:
            self._channels.begin()
        if self._attacks is not None:
            self._attacks.begin()
        self.world.clock.run_until(self.plan.chaos_s)
        self._heal()
        if self._channels is not None:
            self._channels.heal()
        self.world.run_for(settling_s(len(self.world.participants)))
        if self.plan.is_sealed:
            self.world.run_for(SEALED_SETTLING_S)
        self._do("promises.settled")
        self.world.run_for(QUIET_S if self._channels is None else CHANNELS_QUIET_S)
        self._probe()
        self._do("promises.finished")
        return self.world

    # --- Before and after ---

    def _populate(self) -> None:
        for number in range(self.plan.nodes):
            offset = round(self._dice.uniform(0, 1e6), 3)
            wall_s = self._dice.uniform(-1e4, 1e4)
            if self.plan.is_sealed:
                wall_s = draw_sealed_clock(self.plan, number)
            # Long names fill a datagram, so that even lists of a few nodes travel in parts.
            is_long = self._dice.random() < 0.3
            node = self._do(
                "world.add_node",
                f"n{number}".ljust(200 if is_long else 1, "."),
                patterns=self._chaos.some_patterns(),
                clock_offset_s=offset,
                wall_s=wall_s,
                name=f"n{number}",
                **draw_settings(self.plan, number, self._dice),
            )
            if self._dice.random() < 0.3:  # to be started later
                self._do("world.crash", ref_to(node))
        for number in range(self.plan.plain_peers):
            topics = self._dice.sample(self._chaos.topics, k=self._dice.randint(0, 2))
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
            self._do("world.start", ref_to(answering[0]), self._chaos.some_patterns())
        if self._dice.random() < 0.8:  # otherwise whoever is left
            for participant in self._chaos.down()[: max(0, 3 - len(world.nodes))]:
                self._chaos.start(participant)

    def _probe(self) -> None:
        """Let everybody publish to every topic, one after the other."""
        self._do("promises.probe")
        for node in self._chaos.probing_nodes():
            for topic in self._chaos.probed_topics():
                # A plain peer that was silent for long understands only single messages, which are
                # usually those that are not reliable.
                is_reliable = not self.plan.plain_peers and self._dice.random() < 0.5
                self._do("world.publish", ref_to(node), topic, is_reliable=is_reliable)
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
            self._do("world.publish", ref_to(node), *value, is_retained=True, name=kept[number])
        self.world.run_for(PROBE_S)
        self._do("world.subscribe", ref_to(late), "r/**")
        for name in kept:
            self._do("promises.expect_retained", Ref(ref_to(late).name, "sinks", "r/**"), Ref(name))
        self.world.run_for(RETAINED_S)


def answering_nodes(world: World) -> list[SimNode]:
    """Return the nodes that answer joiners when they are up."""
    nodes = [p for p in world.participants if isinstance(p, SimNode)]
    return [node for node in nodes if node.mode == "delayed" or node.settings.get("is_master")]


def promises_of(plan: Plan) -> Promises:
    participants = plan.nodes + plan.plain_peers
    channels = ChannelPromises(is_lossless=plan.options.is_lossless) if plan.has_channels else None
    return Promises(
        participants,
        is_calm=plan.is_calm,
        judges_plain=plan.is_harmless,
        channels=channels,
        is_sealed=plan.is_sealed,
        is_patient=plan.is_patient,
    )


def _attacks(plan: Plan, stage: Stage) -> Attacks:
    from jsonbus.sim.sealed.attacks import Attacks  # with cryptography

    return Attacks(plan, stage)
