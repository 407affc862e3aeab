"""A simulated world: participants, clock, network and checkers; everything is decided by one seed.

Its methods are what can happen to the participants: they join, subscribe, publish, crash, leave.
The world records the truth (records.py) as it happens, for checkers to compare with what the nodes
believe. loop.py carries datagrams and timers to the nodes; channels are in channels/world.py.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from math import inf
from typing import TYPE_CHECKING, Any

from jsonbus.core.membership.subscription_list import FrozenList
from jsonbus.core.node import Node
from jsonbus.core.routing.matching import matches
from jsonbus.core.wire.names import SERVED_PREFIX
from jsonbus.sim.channels.world import WorldChannels
from jsonbus.sim.checkers import Checker
from jsonbus.sim.clock import Clock
from jsonbus.sim.loop import Loop
from jsonbus.sim.network import Cut, Network, NetworkOptions
from jsonbus.sim.participants import Participant, PlainPeer, SimNode
from jsonbus.sim.records import Inquiry, Publication, Sink, Wish

if TYPE_CHECKING:
    from jsonbus.sim.sealed.bus import SealedBus

#: Wishes are kept for this long after they ended: much longer than any node of a checked world may
#: take them for true. From so many on, those that ended earlier are dropped.
WISHES_KEPT_S = 60.0
WISHES_MIN = 256

_ID_LETTERS = "abcdefghijklmnopqrstuvwxyz234567"


class World:
    """Participants, clock and network. One seed, one history."""

    def __init__(
        self,
        seed: object,
        options: NetworkOptions | None = None,
        checkers: Sequence[Checker] = (),
        *,
        is_sealed: bool = False,
    ) -> None:
        self.seed = seed
        self.clock = Clock()
        self.network = Network(options or NetworkOptions(), self.dice("network"))
        self.checkers = tuple(checkers)
        self._loop = Loop(self.clock, self.network, self.checkers)
        self.participants = self._loop.participants
        #: Those of now, and those that ended a while ago; all of plain peers, whose topics others
        #: repeat for ever.
        self.wishes: list[Wish] = []
        self._wishes_max = WISHES_MIN
        self.publications: list[Publication] = []
        self.inquiries: list[Inquiry] = []
        self._frozen: dict[SimNode, tuple[float, Cut, Cut]] = {}
        self._ids = self.dice("ids")
        self.channels = WorldChannels(self._loop, self.dice)
        self._sealed = self._seal() if is_sealed else None
        for checker in checkers:
            checker.watch(self)

    def _seal(self) -> SealedBus:
        from jsonbus.sim.sealed.bus import SealedBus  # with cryptography

        loop = self._loop
        found = SealedBus(loop.clock, loop.network, self.dice, loop.tell)
        found.attacker.inject = loop.inject
        loop.sealed = found
        return found

    @property
    def sealed(self) -> SealedBus:
        """Sealers, openers and the attacker of a sealed world."""
        assert self._sealed is not None
        return self._sealed

    def dice(self, purpose: str) -> random.Random:
        """Return a separate generator for each purpose: drawing for one never disturbs another."""
        return random.Random(f"{self.seed}/{purpose}")

    @property
    def nodes(self) -> list[SimNode]:
        """The production nodes that are up and not frozen."""
        return [
            participant
            for participant in self.participants
            if isinstance(participant, SimNode) and participant.is_up and not participant.is_frozen
        ]

    def wanted_by(self, topic: str) -> list[Wish]:
        """Return the wishes of those who want the topic now."""
        return [w for w in self.wishes if w.until == inf and matches(w.pattern, topic)]

    def note(self, participant: Participant | None, what: str) -> None:
        """Record that something is about to be done to a participant or to the network."""
        self._loop.tell("happened", participant, what)

    # --- Participants come and go ---

    def add_node(
        self,
        name: str = "",
        *,
        patterns: Sequence[str] = (),
        clock_offset_s: float = 0.0,
        wall_s: float = 0.0,
        **settings: Any,
    ) -> SimNode:
        """Add a node with these settings."""
        node = self._make_node(name, clock_offset_s, wall_s, settings)
        self.start(node, patterns)
        return node

    def add_plain(
        self, name: str = "", topics: Sequence[str] = (), answers: bool = True
    ) -> PlainPeer:
        """Add a node of the first implementation."""
        assert self._sealed is None, "plain peers have no key"
        index = len(self.participants)
        peer = PlainPeer(index, name or f"p{index}", topics, self.dice(f"plain {index}"), answers)
        self.participants.append(peer)
        self.start(peer)
        return peer

    def add_agreed_group(
        self,
        count: int,
        patterns_of: Callable[[int], Sequence[str]],
        settings_of: Callable[[int], dict[str, Any]] = lambda number: {},
    ) -> list[SimNode]:
        """Add `count` nodes that have long agreed; they use one list in memory."""
        group = [self._make_node("", 0.0, 0.0, settings_of(number)) for number in range(count)]
        for number, node in enumerate(group):
            self._boot(node, None)
            for pattern in patterns_of(number):
                self._subscribe(node, pattern, None)
        agreed = FrozenList(node.core.own_entry() for node in group)
        for node in group:
            node.core.open_converged(node.local(self.clock.now), agreed)
            self._loop.settle(node)
        return group

    def start(
        self, participant: Participant, patterns: Sequence[str] = (), node_id: str | None = None
    ) -> None:
        """Start a participant (again): a new incarnation, and a new id unless one is given."""
        wanted = ", ".join(patterns) or "nothing yet"
        self.note(participant, f"joins, {participant.kind}, wants {wanted}")
        if isinstance(participant, PlainPeer):
            self._loop.bring_up(participant)
            participant.boot()
            for topic in participant.topics:
                self._wish(participant, topic)
        else:
            self._boot(participant, node_id)
            for pattern in patterns:
                self._subscribe(participant, pattern, None)
            participant.core.open(participant.local(self.clock.now))
        self._loop.settle(participant)

    def crash(self, participant: Participant, *, with_host: bool = False) -> None:
        """End a participant without telling anybody. (A plain peer never says goodbye anyway.)

        Its kernel still closes its connections, unless its host failed, too.
        """
        self.note(participant, "crashes with its host" if with_host else "crashes")
        self._take_down(participant, with_host=with_host)

    def leave(self, node: SimNode) -> None:
        """Say goodbye and end."""
        with self._acting(node, "leaves") as now:
            self.channels.leaving(node)
            node.core.close(now)
        self._take_down(node)

    def _make_node(
        self, name: str, clock_offset_s: float, wall_s: float, settings: dict[str, Any]
    ) -> SimNode:
        index = len(self.participants)
        node = SimNode(index, name or f"n{index}", settings, clock_offset_s, wall_s)
        self.participants.append(node)
        return node

    def _take_down(self, participant: Participant, *, with_host: bool = False) -> None:
        self._loop.take_down(participant)
        if isinstance(participant, SimNode):
            if self._sealed is not None:
                self._sealed.stopped(participant)
            self.channels.stopped(participant, with_host=with_host)
        for wish in self.wishes:
            if wish.participant is participant:
                wish.until = min(wish.until, self.clock.now)

    def _boot(self, node: SimNode, node_id: str | None) -> None:
        self._loop.bring_up(node)
        node_id = node_id or "".join(self._ids.choices(_ID_LETTERS, k=12))
        node.boot(node_id, self.dice(f"node {node.index} {self.clock.now}"), self.clock.now)
        self.channels.started(node)
        if self._sealed is not None:
            self._sealed.started(node)

    # --- What an application does ---

    def publish(
        self, participant: Participant, topic: str, padding: str = "", **flags: bool
    ) -> Publication:
        """Publish a value that names this publication; flags are those of `Node.publish`."""
        return self.publish_batch(participant, [topic], padding, **flags)[0]

    def publish_batch(
        self, participant: Participant, topics: Sequence[str], padding: str = "", **flags: bool
    ) -> list[Publication]:
        """Publish to one topic after the other before anything is sent."""
        publications = [self._publish(participant, topic, padding, flags) for topic in topics]
        self._loop.fetch(participant, None)
        self._loop.settle(participant)
        return publications

    def _publish(
        self, participant: Participant, topic: str, padding: str, flags: dict[str, bool]
    ) -> Publication:
        number = len(self.publications)
        value: dict[str, Any] = {"number": number}
        if padding:
            value["padding"] = padding
        publication = Publication(number, participant, topic, self.clock.now, "plain")
        self.publications.append(publication)
        if isinstance(participant, PlainPeer):
            assert not flags, "a plain peer has no reliable or retained messages"
            participant.publish(topic, value)
        else:
            publication.state = participant.core.state
            publication.is_reliable = flags.get("is_reliable", False)
            publication.is_retained = flags.get("is_retained", False)
            publication.accepted = participant.core.publish(
                topic, value, participant.local(self.clock.now), **flags
            )
        self._loop.tell("published", publication)
        return publication

    def subscribe(self, node: SimNode, pattern: str, sink: Sink | None = None) -> None:
        """Subscribe to a new pattern, with a new sink unless one is given."""
        with self._acting(node, f"subscribes to {pattern}"):
            self._subscribe(node, pattern, sink)
            self._loop.fetch(node, None)  # retained values that are here already

    def unsubscribe(self, node: SimNode, pattern: str) -> None:
        with self._acting(node, f"unsubscribes from {pattern}") as now:
            sink = node.sinks.pop(pattern)
            sink.patterns.remove(pattern)
            assert node.core.unsubscribe(pattern, sink, now)
            self._end_wish(node, pattern)

    def serve(self, node: SimNode, topic: str) -> None:
        """Answer requests to the topic with their value."""
        with self._acting(node, f"serves {topic}") as now:
            pattern = SERVED_PREFIX + topic
            sink = node.sinks[pattern] = Sink(node, [pattern])
            node.core.requests.serve(topic, sink, now)
            self._wish(node, pattern)

    def unserve(self, node: SimNode, topic: str) -> None:
        with self._acting(node, f"no longer serves {topic}") as now:
            del node.sinks[SERVED_PREFIX + topic]
            node.core.requests.unserve(topic, now)
            self._end_wish(node, SERVED_PREFIX + topic)

    def request(self, node: SimNode, topic: str, timeout_s: float = 1.0) -> Inquiry:
        with self._acting(node, f"requests {topic}") as now:
            inquiry = Inquiry(topic, len(self.inquiries))
            request_id = node.core.requests.request(topic, inquiry.value, timeout_s, now)
            self.inquiries.append(inquiry)
            node.inquiries[request_id] = inquiry
            self._loop.fetch(node, None)  # its own, if it serves the topic itself
            request = (node, node.core, request_id)
            self.clock.call_at(self.clock.now + timeout_s, self._give_up, request)
        return inquiry

    def change_interfaces(self, node: SimNode) -> None:
        """Tell a node that something about its network changed."""
        with self._acting(node, "hears that its interfaces changed") as now:
            node.core.doubt_network("the network interfaces changed", now)

    def freeze(self, node: SimNode) -> None:
        """Stop a process, or put its machine to sleep: it hears nothing and does nothing."""
        self.note(node, "is frozen")
        node.is_frozen = True
        others = [p.index for p in self.participants if p is not node]
        self._frozen[node] = self.clock.now, *self.network.partition([node.index], others)

    def thaw(self, node: SimNode) -> None:
        """Let it go on; its front end notices the gap."""
        with self._acting(node, "is thawed") as now:
            frozen_at, *cuts = self._frozen.pop(node)
            for cut in cuts:
                self.network.mend(cut, self.clock.now)
            node.is_frozen = False
            node.thawed_at = self.clock.now
            node.wake_at = inf  # what was due meanwhile is overdue now
            frozen_s = self.clock.now - frozen_at
            node.core.doubt_network(f"this node did not listen for {frozen_s:.1f} s", now)
        self.channels.thawed(node)

    # --- What happens to the network ---

    def cut(
        self, senders: Sequence[Participant], receivers: Sequence[Participant]
    ) -> tuple[Cut, ...]:
        """Let nothing pass from one group to the other."""
        group, rest = [p.index for p in senders], [p.index for p in receivers]
        self.note(None, f"cut: nothing passes from {group} to {rest}")
        return (self.network.cut(group, rest),)

    def partition(
        self, some: Sequence[Participant], others: Sequence[Participant]
    ) -> tuple[Cut, ...]:
        """Let nothing pass between two groups."""
        group, rest = [p.index for p in some], [p.index for p in others]
        self.note(None, f"partition: {group} | {rest}")
        return self.network.partition(group, rest)

    def mend(self, cuts: Sequence[Cut]) -> None:
        """Undo what `cut` or `partition` did."""
        self.note(None, "a cut is mended")
        for cut in cuts:
            self.network.mend(cut, self.clock.now)

    def heal(self) -> None:
        """End all faults: everybody is awake, all links are whole, nothing is lost."""
        self.note(None, "peace: all links are whole, nothing is lost")
        if self._sealed is not None:
            self._sealed.attacker.is_patient = False
        for node in list(self._frozen):
            self.thaw(node)
        self.network.mend_all(self.clock.now)
        self.network.options = NetworkOptions(loops_back=self.network.options.loops_back)

    @contextmanager
    def _acting(self, node: SimNode, what: str) -> Iterator[float]:
        """Note what is about to be done to a node, yield its clock, and settle it afterwards."""
        self.note(node, what)
        yield node.local(self.clock.now)
        self._loop.settle(node)

    def _subscribe(self, node: SimNode, pattern: str, sink: Sink | None) -> None:
        sink = sink or Sink(node)
        sink.patterns.append(pattern)
        sink.subscriptions += 1
        node.sinks[pattern] = sink
        node.core.subscribe(pattern, sink, node.local(self.clock.now))
        self._wish(node, pattern)

    def _wish(self, participant: Participant, pattern: str) -> None:
        now = self.clock.now
        if len(self.wishes) >= self._wishes_max:
            self.wishes[:] = [
                w for w in self.wishes if w.until > now - WISHES_KEPT_S or w.participant.is_plain
            ]
            self._wishes_max = max(WISHES_MIN, 2 * len(self.wishes))
        self.wishes.append(Wish(participant, pattern, now))

    def _end_wish(self, node: SimNode, pattern: str) -> None:
        for wish in self.wishes:
            if wish.participant is node and wish.pattern == pattern and wish.until == inf:
                wish.until = self.clock.now

    def _give_up(self, request: tuple[SimNode, Node, int]) -> None:
        node, core, request_id = request
        if node.is_up and node.core is core:
            core.requests.cancel(request_id, node.local(self.clock.now))
            self._loop.settle(node)

    # --- Time passes ---

    def run_for(self, seconds: float) -> None:
        self.clock.run_until(self.clock.now + seconds)

    def run_while(self, condition: Callable[[], bool], seconds_max: float) -> bool:
        """Run event by event while the condition holds; return False if it still does at the
        end.
        """
        until = self.clock.now + seconds_max
        while condition():
            if not self.clock.run_next(until):
                self.clock.run_until(until)
                return not condition()
        return True
