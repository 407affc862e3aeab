"""What must hold of every node's subscription list and of what it sends by it, at any time.

Some invariants allow for time. The unit is the lease: how long a silent node is believed in. On
top comes a grace: the time to ask for a suspect, plus a heartbeat, which is how long a lost
datagram may go unnoticed, plus a share delay or two. In a network that never loses or delays
anything for long there is nothing to make up for, and the patience is a tenth of a second.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from jsonbus.core.events import Event, RequestUnserved
from jsonbus.core.limits import ANNOUNCE_REPEATS_S, SILENCE_S, SUSPECT_GRACE_S, TIMER_SLACK_S
from jsonbus.core.membership.liveness import heartbeat_s, lease_s
from jsonbus.core.routing.matching import matches
from jsonbus.core.wire.frames import Frame, MessagesFrame
from jsonbus.core.wire.names import SERVED_PREFIX
from jsonbus.sim.checkers import Checker, publications_in
from jsonbus.sim.participants import PLAIN_ANSWER_DELAY_MAX_S, Participant, PlainPeer, SimNode
from jsonbus.sim.records import Publication, Wish

if TYPE_CHECKING:
    from jsonbus.sim.world import World

CALM_PATIENCE_S = 0.1
#: A joiner asks twice and waits before it believes that it is alone.
ALONE_S = ANNOUNCE_REPEATS_S[0] + SILENCE_S - TIMER_SLACK_S
PLAIN_ANSWER_S = 2 * PLAIN_ANSWER_DELAY_MAX_S

#: What a scenario does to a node that must make it doubt.
_SHAKING = ("is thawed", "hears that its interfaces changed")


def grace_s(nodes: int) -> float:
    """Return the time allowed on top of a lease in a group of that size."""
    return SUSPECT_GRACE_S + heartbeat_s(nodes) + 1.0


def reunion_s(nodes: int) -> float:
    """Return how long two nodes that hear each other again may take to notice that they differ.

    Each speaks once per heartbeat, and a node that notices a difference sends everything.
    """
    return heartbeat_s(nodes) + 1.0


def settling_s(nodes: int) -> float:
    """Return how long after the last fault a group of that size may take to agree."""
    return lease_s(nodes) + grace_s(nodes)


class VersionsNeverGoBack(Checker):
    """A node never forgets what it has known: the merge rule, seen from outside."""

    invariant = "(incarnation, version) of an entry never goes back in any node's list"

    def __init__(self) -> None:
        self._digests: dict[SimNode, object] = {}
        self._newest: dict[tuple[SimNode, int, str], tuple[int, int]] = {}

    def touched(self, participant: Participant) -> None:
        if not isinstance(participant, SimNode):
            return
        known = participant.subscription_list
        if self._digests.get(participant) == known.digest:
            return  # an equal digest means equal entries
        self._digests[participant] = known.digest
        for entry in known:
            # A restarted node has a new list and may know less than before.
            key = (participant, participant.incarnation, entry.node)
            version = (entry.incarnation, entry.version)
            before = self._newest.get(key, version)
            if version < before:
                self.fail(f"{participant.name} had {before} of {entry.name} and has {version}")
            self._newest[key] = version


class NothingIsWithheld(Checker):
    """When a sure node says "nobody wants it", it is true.

    It is judged when publish says no, when a held message is still unsent although its publisher
    has become sure, when a request is given up as unserved, and whenever a scenario asks. A node
    that subscribed, joined or was reconnected a moment ago may still be unknown. A node that slept,
    or whose interfaces changed, cannot be sure before it has heard anybody.

    A joiner that nothing has reached takes itself for the first, once it has asked twice and
    waited. If everything that was sent to it was lost it is wrong, and cannot know better: it
    counts as connected when the first datagram comes.

    A plain peer speaks when it starts, and when it answers a list. If that is lost, nothing ever
    makes up for it: plain peers are judged only where the network is harmless.
    """

    invariant = "once sure, nothing is withheld from a connected live subscriber"

    def __init__(self, *, is_calm: bool = True, judges_plain: bool = False) -> None:
        self._is_calm = is_calm  # nothing is lost or late, except where links are cut
        self._judges_plain = judges_plain
        self._held: dict[SimNode, dict[int, Publication]] = {}
        self._shaken: set[Participant] = set()  # those that were just told to doubt

    def happened(self, participant: Participant | None, what: str) -> None:
        if isinstance(participant, SimNode) and what in _SHAKING:
            self._shaken.add(participant)

    def published(self, publication: Publication) -> None:
        publisher = publication.participant
        if not isinstance(publisher, SimNode):
            return
        if not publication.accepted:
            self._judge(publisher, publication.topic, f"publication {publication.number}")
        else:
            self._held.setdefault(publisher, {})[publication.number] = publication

    def sent(self, sender: Participant, frame: Frame, data: bytes) -> None:
        if isinstance(sender, SimNode):
            held = self._held.get(sender, {})
            for number in publications_in(frame):
                held.pop(number, None)

    def touched(self, participant: Participant) -> None:
        if not isinstance(participant, SimNode):
            return
        if participant in self._shaken:
            self._shaken.remove(participant)
            if participant.mode != "basic" and participant.core.state == "sure":
                self.fail(f"{participant.name} may have missed anything, and is still sure")
        if participant not in self._held:
            return
        if participant.is_up and participant.core.state == "joining":
            return
        # After joining, nothing is held: what is not sent by now never will be.
        for publication in self._held.pop(participant).values():
            if participant.is_up and publication.at >= participant.started_at:
                what = f"publication {publication.number}, accepted at {publication.at:.3f} s,"
                self._judge(participant, publication.topic, what)

    def told(self, node: SimNode, event: Event) -> None:
        if isinstance(event, RequestUnserved):
            topic = node.inquiries[event.request_id].topic
            self._judge(node, SERVED_PREFIX + topic, "a request")

    def inspect(self, topics: Sequence[str]) -> None:
        """Judge what every sure node would do now with a publication to each of the topics."""
        for node in self.world.nodes:
            if node.mode != "basic" and node.core.state == "sure":
                for topic in topics:
                    if not node.core.has_subscribers(topic):
                        self._judge(node, topic, "any publication")

    def _judge(self, publisher: SimNode, topic: str, what: str) -> None:
        now = self.world.clock.now
        nodes = len(self.world.participants)
        # How long a subscription may take to become known, and links that were cut to work again.
        news_s = CALM_PATIENCE_S if self._is_calm else settling_s(nodes)
        cut_s = reunion_s(nodes) if self._is_calm else settling_s(nodes)
        for wish in self.world.wanted_by(topic):
            subscriber = wish.participant
            if subscriber is publisher or now - wish.since <= news_s:
                continue
            if isinstance(subscriber, PlainPeer) and not self._is_known(subscriber, publisher):
                continue
            connected_since = self._connected_since(publisher, wish)
            if connected_since is None or now - connected_since <= cut_s:
                continue
            self.fail(
                f"{what} to {topic} was withheld by {publisher.name} ({publisher.core.state}) "
                f"although {subscriber.name} has wanted {wish.pattern} since {wish.since:.3f} s"
            )

    def _connected_since(self, publisher: SimNode, wish: Wish) -> float | None:
        """Return since when nothing has stood between a subscription and a publisher.

        A publisher that was there when the subscription was made hears of it from the subscriber.
        One that came later depends on what the others know, and they may have been cut off from the
        subscriber.
        """
        network = self.world.network
        here, there = publisher.index, wish.participant.index
        ways = [network.open_since(here, there), network.carries_since(there, here)]
        if publisher.started_at >= wish.since:
            ways.append(network.whole_since)
        deaf_until = min(publisher.first_heard_at, self.world.clock.now)
        if not self._is_calm and deaf_until - publisher.started_at >= ALONE_S:
            ways.append(deaf_until)
        known = [since for since in ways if since is not None]
        return max(known) if len(known) == len(ways) else None

    def _is_known(self, peer: PlainPeer, publisher: SimNode) -> bool:
        met_at = max(peer.started_at, publisher.started_at)
        has_answered = self.world.clock.now - met_at > PLAIN_ANSWER_S
        # A plain peer does not answer a list that has all its topics.
        is_covered = set(peer.topics) <= set(publisher.sinks)
        return self._judges_plain and peer.answers and has_answered and not is_covered


class NothingIsWasted(Checker):
    """A sure node sends only what somebody wants, or wanted until a lease and a grace ago.

    In a calm network, a goodbye ends that at once for everybody who was there to hear it.

    A basic node wants everything. So may a plain peer that answers lists, because it repeats the
    union of everything it ever heard as its own: worlds with one are not judged.
    """

    invariant = "nothing is sent without a subscriber for longer than lease + grace"

    def __init__(self, late_s: float = 0.0) -> None:
        self._late_s = late_s  # by how much somebody may delay what says that it is wanted
        self._goodbyes: set[tuple[Participant, float]] = set()

    def watch(self, world: World) -> None:
        super().watch(world)
        self._is_calm = world.network.options.is_calm

    def happened(self, participant: Participant | None, what: str) -> None:
        if participant is not None and what == "leaves":
            self._goodbyes.add((participant, self.world.clock.now))

    def sent(self, sender: Participant, frame: Frame, data: bytes) -> None:
        if not isinstance(sender, SimNode) or not isinstance(frame, MessagesFrame):
            return
        for number in publications_in(frame):
            publication = self.world.publications[number]
            if publication.state != "sure" or sender.mode == "basic":
                continue
            if not self._is_excused(sender, publication.topic):
                self.fail(
                    f"{sender.name} sent {publication.topic}, which nobody has wanted for long"
                )

    def _is_excused(self, sender: SimNode, topic: str) -> bool:
        oldest = self.world.clock.now - settling_s(len(self.world.participants)) - self._late_s
        for participant in self.world.participants:
            if isinstance(participant, PlainPeer) and participant.answers:
                return True
            if isinstance(participant, SimNode) and participant.mode == "basic":
                if participant.is_up or participant.stopped_at > oldest:
                    return True
        return any(
            not (wish.participant is sender and wish.since >= sender.started_at)
            and (wish.until > oldest or wish.participant.is_plain)
            and matches(wish.pattern, topic)
            and not self._was_called_off(wish, sender)
            for wish in self.world.wishes
        )

    def _was_called_off(self, wish: Wish, sender: SimNode) -> bool:
        """Return whether the sender heard the subscriber's goodbye, some time ago."""
        leaver, left_at = wish.participant, wish.until
        if not self._is_calm or (leaver, left_at) not in self._goodbyes:
            return False
        linked_since = self.world.network.open_since(leaver.index, sender.index)
        was_there = sender.started_at < left_at and sender.thawed_at < left_at
        was_linked = linked_since is not None and linked_since <= left_at
        return was_there and was_linked and self.world.clock.now - left_at > CALM_PATIENCE_S
