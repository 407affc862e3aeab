"""What must hold of the group as a whole: who answers, and how everything ends.

Most of these are armed by a scenario, or judge when it calls `finished`: only the scenario knows
when the world is healed and has had the time to settle (list_checkers.settling_s).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from math import inf

from jsonbus.core.events import Event, NodeJoined
from jsonbus.core.message import Message
from jsonbus.core.wire.frames import ALL_BUCKETS, Frame, ListFrame
from jsonbus.sim.checkers import Checker, numbered
from jsonbus.sim.participants import Participant, PlainPeer, SimNode
from jsonbus.sim.records import Flight, Publication, Sink

STORM_LISTS = 100
STORM_S = 10.0


class QuietGroupsAreQuiet(Checker):
    """A group in which nobody comes, goes or changes stays quiet. Armed by a scenario once it
    agrees.
    """

    invariant = "no full share in a quiet group"

    def __init__(self) -> None:
        self.quiet_since = inf

    def sent(self, sender: Participant, frame: Frame, data: bytes) -> None:
        if self.world.clock.now < self.quiet_since or sender.is_plain:
            return
        if isinstance(frame, ListFrame) and frame.covers == ALL_BUCKETS:
            self.fail(f"{sender.name} sent a full share, quiet since {self.quiet_since:.3f} s")


class NobodyStorms(Checker):
    """Lists that still differ after all faults have ended do not cause storms. Armed by a scenario.

    Without backoff, two nodes whose lists cannot become equal would answer each other at the rate
    of their share delays, for ever.
    """

    invariant = "no node sends more than 100 lists in 10 s when nothing happens"

    def __init__(self) -> None:
        self.is_armed = False
        self._sent_at: dict[Participant, deque[float]] = {}

    def sent(self, sender: Participant, frame: Frame, data: bytes) -> None:
        if not self.is_armed or sender.is_plain or not isinstance(frame, ListFrame):
            return
        if frame.part[0] == 0:
            last = self._sent_at.setdefault(sender, deque(maxlen=STORM_LISTS))
            if len(last) == STORM_LISTS and self.world.clock.now - last[0] < STORM_S:
                self.fail(f"{sender.name} did")
            last.append(self.world.clock.now)


class JoinersAreServed(Checker):
    """A joiner soon learns of everybody who was there before it, if somebody can answer.

    That is a settled node in mode delayed, or a master, that neither comes nor goes meanwhile, nor
    loses everything on the way for so long that it is as good as cut off. The joiner is judged
    after `within_s`, and only if all links were whole all the time. If it has taken somebody for
    gone since, that is no failure to serve it: it doubts, and sends everything.
    """

    invariant = "a joiner soon learns of everybody who was there before it"

    def __init__(self, within_s: float, settling_s: float) -> None:
        self._within_s = within_s
        self._settling_s = settling_s  # after this time the links count as never cut
        self._lives: dict[SimNode, float] = {}
        self._learned: set[tuple[SimNode, float, str]] = set()  # who, in which life, of whom

    def told(self, node: SimNode, event: Event) -> None:
        if isinstance(event, NodeJoined):
            self._learned.add((node, node.started_at, event.node))

    def touched(self, participant: Participant) -> None:
        if not isinstance(participant, SimNode) or participant.mode == "basic":
            return
        started_at = participant.started_at
        if self._lives.get(participant) != started_at and participant.is_up:
            self._lives[participant] = started_at
            answering = [node for node in self.world.nodes if self._answers(node)]
            self.world.clock.call_at(
                started_at + self._within_s, self._judge, (participant, started_at, answering)
            )

    def _answers(self, node: SimNode) -> bool:
        is_willing = node.mode == "delayed" or bool(node.settings.get("is_master"))
        return is_willing and node.core.state == "sure"

    def _can_serve(self, node: SimNode, joiner: SimNode, since: float) -> bool:
        """Return whether the links between them have carried something all the time since then."""
        network = self.world.network
        ways = (
            network.carries_since(node.index, joiner.index),
            network.carries_since(joiner.index, node.index),
        )
        return all(carried is not None and carried <= since for carried in ways)

    def _judge(self, life: tuple[SimNode, float, list[SimNode]]) -> None:
        joiner, joined_at, answering = life
        whole_since = self.world.network.whole_since
        if not joiner.is_up or joiner.started_at != joined_at:
            return
        if whole_since is None or whole_since > joined_at - self._settling_s:
            return
        if not any(
            node.is_up and node.started_at < joined_at and self._can_serve(node, joiner, joined_at)
            for node in answering
        ):
            return
        for node in self.world.nodes:
            is_known = (joiner, joined_at, node.node_id) in self._learned
            if node.started_at < joined_at and not is_known:
                self.fail(f"{joiner.name}, here since {joined_at:.3f} s, never knew {node.name}")


class ProbesArrive(Checker):
    """At the end, in a calm network, everything published reaches everybody, plain peers, too."""

    invariant = "in a healed world every subscription gets every message that it wants, once"

    def __init__(self, judges_plain: bool = False) -> None:
        self.is_armed = False
        self._judges_plain = judges_plain
        self._expected: set[tuple[Sink, int]] = set()
        self._expected_plain: set[tuple[PlainPeer, int]] = set()

    def published(self, publication: Publication) -> None:
        if not self.is_armed:
            return
        for wish in self.world.wanted_by(publication.topic):
            subscriber = wish.participant
            if isinstance(subscriber, SimNode):
                sink = subscriber.sinks[wish.pattern]
                self._expected.add((sink, publication.number))
            elif self._judges_plain and isinstance(subscriber, PlainPeer) and subscriber.answers:
                self._expected_plain.add((subscriber, publication.number))

    def delivered(self, sink: Sink, messages: Sequence[Message], flight: Flight | None) -> None:
        for number, _ in numbered(messages):
            self._expected.discard((sink, number))

    def finished(self) -> None:
        for sink, number in self._expected:
            self._miss(sink.participant, number)
        for peer, number in self._expected_plain:
            if not any(value["number"] == number for _, value in peer.heard):
                self._miss(peer, number)

    def _miss(self, subscriber: Participant, number: int) -> None:
        publication = self.world.publications[number]
        self.fail(
            f"{subscriber.name} never got publication {number} to {publication.topic} by "
            f"{publication.participant.name} ({'accepted' if publication.accepted else 'refused'})"
        )


class AllAgree(Checker):
    """At the end, every node that keeps a list is sure and believes exactly the truth."""

    invariant = "all connected live nodes agree, on exactly the live nodes' latest subscriptions"

    def finished(self) -> None:
        nodes = [node for node in self.world.nodes if node.mode != "basic"]
        for node in nodes:
            if node.core.state != "sure":
                self.fail(f"{node.name} is {node.core.state}")
        truth = {node.node_id: self._truth_of(node) for node in self.world.nodes}
        for node in nodes:
            known = {
                entry.node: (entry.incarnation, tuple(sorted(entry.patterns)))
                for entry in node.subscription_list
                if not entry.is_plain
            }
            if known != truth:
                self.fail(f"{node.name} believes {known}, true is {truth}")
        digests = {node.subscription_list.digest for node in nodes}
        if len(digests) > 1:
            self.fail(f"digests differ: {sorted(map(str, digests))}")

    def _truth_of(self, node: SimNode) -> tuple[int, tuple[str, ...]]:
        if node.mode == "basic":
            return node.incarnation, ("**",)
        wishes = self.world.wishes
        wanted = {w.pattern for w in wishes if w.participant is node and w.until == inf}
        return node.incarnation, tuple(sorted(wanted))
