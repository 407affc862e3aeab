"""What must stay bounded however many nodes come and go: every table of a node, and versions.

No table is named to be found. The checker walks through a node's core, object by object, and
measures every container that it meets, also those that somebody will add. A container is known by
the class and the attribute that hold it. Those with a limit of their own are in `LIMITS`; any other
may hold as many items as there are nodes now and were lately, and as the world has topics.

Looking takes some milliseconds of a real clock, so it happens now and then, and only when a history
asks for it.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator
from math import inf
from typing import Any

from jsonbus.core import limits
from jsonbus.core.events import Event, NodeLeft
from jsonbus.sim.checkers import Checker
from jsonbus.sim.participants import Participant, SimNode
from jsonbus.sim.records import Publication

LOOK_S = 60.0
#: Whoever ended longer ago has left no trace but in `LIMITS`: many leases, and most partitions.
LATELY_S = 60.0
SPARE = 32

#: Containers that may hold more, and the limit of each: what recognizes repeats and repairs losses
#: of whoever was here, and what waits for its turn.
LIMITS = {
    "Assembly.slices": "FRAGMENTS_BYTES_MAX",
    "FastReceive._peers": "PEERS_UNLISTED_MAX",
    "History._asked": "HISTORY_MESSAGES_MAX",
    "History._order": "HISTORY_MESSAGES_MAX",
    "JoinQueue._messages": "HOLD_MESSAGES_MAX",
    "KeptTopic.stretches": "HISTORY_TOPIC_MESSAGES_MAX",
    "Node._events": "EVENTS_MAX",
    "Reliable._partial": "PARTIAL_MAX",
    "Repairs._wanted_slices": "PARTIAL_MAX",
    "Requests._replies": "REPLIES_KEPT_MAX",
    "RetainedCache._seen": "RETAINED_SEEN_MAX",
    "Roster._unlisted": "PEERS_UNLISTED_MAX",
    "Roster.peers": "PEERS_UNLISTED_MAX",
    "Router.unwanted": "UNWANTED_MAX",
    "Stream._ahead": "STREAMS_AHEAD_MAX",
    "Stream.gaps": "STREAM_GAPS_MAX",
    "Streams._by_node": "STREAMS_MAX",
    "Streams._gone": "STREAMS_MAX",
    "Streams.by_key": "STREAMS_MAX",
    "SubscriptionList._former": "PEERS_UNLISTED_MAX",
    "_Sender.done": "FRAGMENTS_DONE_MAX",
}

_CONTAINERS = (dict, set, frozenset, list, deque)


class GrowthChecker(Checker):
    """Base class: judges every node when a history asks for it, but not too often."""

    def __init__(self) -> None:
        self._look_at = -inf

    def inspect(self) -> None:
        if self.world.clock.now >= self._look_at:
            self._look_at = self.world.clock.now + LOOK_S
            self.finished()

    def finished(self) -> None:
        for node in self.world.nodes:
            self.judge(node)

    def judge(self, node: SimNode) -> None:
        raise NotImplementedError


class TablesStayBounded(GrowthChecker):
    """Nothing that a node keeps grows with the number of nodes that were ever here."""

    invariant = "no table of a node grows with the nodes and subscriptions that are gone"

    def __init__(self) -> None:
        super().__init__()
        self._ended_at: deque[float] = deque()
        self._topics: set[str] = set()

    def happened(self, participant: Participant | None, what: str) -> None:
        if what == "leaves" or what.startswith("crashes"):
            self._ended_at.append(self.world.clock.now)

    def published(self, publication: Publication) -> None:
        self._topics.add(publication.topic)

    def judge(self, node: SimNode) -> None:
        now = self.world.clock.now
        while self._ended_at and self._ended_at[0] < now - LATELY_S:
            self._ended_at.popleft()
        nodes = len(self.world.participants) + len(self._ended_at)
        usual = SPARE + nodes + 2 * len(self._topics)
        for name, size in sizes_of(node.core).items():
            bound = usual
            if name in LIMITS:
                bound += getattr(limits, LIMITS[name])
            if size > bound:
                self.fail(f"{node.name} keeps {size:,} items in {name}, allowed are {bound:,}")
        self._judge_streams(node)

    def _judge_streams(self, node: SimNode) -> None:
        """Idle streams are kept for an hour, so many checks long."""
        latest_s = limits.STREAM_IDLE_S + 2 * limits.STREAMS_EXPIRY_S
        for key, stream in node.core.reliable._streams.by_key.items():
            unchecked_s = node.local(self.world.clock.now) - stream.checked_at
            is_awake = self.world.clock.now - node.thawed_at > latest_s
            if stream.idle_checks > limits.STREAM_IDLE_CHECKS or (
                unchecked_s > latest_s and is_awake
            ):
                self.fail(f"{node.name} keeps {key}, not checked for {unchecked_s:.0f} s")


class VersionsAreEarned(GrowthChecker):
    """A version is one more for a change of subscriptions, or for the node's being taken for gone.

    And what lists say of nodes is true, or was: incarnations and versions are their own.
    """

    invariant = "versions and incarnations grow only with changes and restarts"

    def __init__(self) -> None:
        super().__init__()
        self._changes: Counter[SimNode] = Counter()  # of the present life
        self._taken_for_gone: Counter[str] = Counter()
        self._lives: set[tuple[str, int]] = set()

    def happened(self, participant: Participant | None, what: str) -> None:
        if isinstance(participant, SimNode):
            if what.startswith("joins"):
                self._changes[participant] = 0
            elif what.startswith(("subscribes", "unsubscribes", "serves", "no longer serves")):
                self._changes[participant] += 1

    def told(self, node: SimNode, event: Event) -> None:
        if isinstance(event, NodeLeft) and event.reason == "gone":
            self._taken_for_gone[event.node] += 1

    def touched(self, participant: Participant) -> None:
        if isinstance(participant, SimNode) and not self._changes[participant]:
            self._lives.add((participant.node_id, participant.incarnation))

    def judge(self, node: SimNode) -> None:
        version = node.core.own_entry().version
        bound = 1 + self._changes[node] + self._taken_for_gone[node.node_id]
        if version > bound:
            self.fail(f"{node.name} has version {version:,}, for no more than {bound:,} reasons")
        own = {each.node_id: each.core.own_entry() for each in self.world.nodes}
        for entry in node.subscription_list:
            if entry.is_plain:
                continue
            if (entry.node, entry.incarnation) not in self._lives:
                self.fail(f"{node.name} knows {entry}, which never lived")
            true = own.get(entry.node, entry)
            if (entry.incarnation, entry.version) > (true.incarnation, true.version):
                self.fail(f"{node.name} knows {entry}, newer than {true}")


def sizes_of(core: object, package: str = "jsonbus.core.") -> dict[str, int]:
    """Return the largest size of every container in the core, by the class and attribute.

    Or in another object, and those of that package that it holds.
    """
    sizes: dict[str, int] = {}
    seen: set[int] = set()
    waiting: list[object] = [core]
    while waiting:
        owner = waiting.pop()
        for attribute, value in _attributes_of(owner):
            parts: Iterable[object] = (value,)
            if isinstance(value, _CONTAINERS):
                name = f"{type(owner).__name__}.{attribute}"
                sizes[name] = max(sizes.get(name, 0), len(value))
                parts = _parts_of(value)
            for part in parts:
                if type(part).__module__.startswith(package) and id(part) not in seen:
                    seen.add(id(part))
                    waiting.append(part)
    return sizes


def _attributes_of(owner: object) -> Iterator[tuple[str, Any]]:
    yield from getattr(owner, "__dict__", {}).items()
    for kind in type(owner).__mro__:
        for attribute in getattr(kind, "__slots__", ()):
            if hasattr(owner, attribute):
                yield attribute, getattr(owner, attribute)


def _parts_of(container: Any) -> Iterator[object]:
    """Yield what is in a container, and in those within it."""
    for part in (*container, *container.values()) if isinstance(container, dict) else container:
        if isinstance(part, (*_CONTAINERS, tuple)):
            yield from _parts_of(part)
        else:
            yield part
