"""BusView: what a node knows about the bus, in the form that tools and people read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from jsonbus.core.membership.joining import DOUBTING, JOINING
from jsonbus.core.membership.membership import Membership
from jsonbus.core.roster import Roster
from jsonbus.core.routing.matching import matches
from jsonbus.core.routing.router import Router
from jsonbus.core.settings import NodeSettings
from jsonbus.core.wire.frames import PLAIN_PREFIX, Entry, Totals
from jsonbus.core.wire.names import SERVED_PREFIX
from jsonbus.errors import ClosedError


@dataclass(frozen=True, slots=True)
class NodeInfo:
    """One node as this node knows it."""

    node: str
    name: str
    host: str | None  # name of its machine; None until the node itself was heard
    version: str | None  # of its software; None until then
    #: TCP port on which it accepts channels; None if none, or not known yet.
    channel_port: int | None
    incarnation: int  # when it started, milliseconds since 1970
    entry_version: int  # of its entry in the subscription list
    mode: str
    is_master: bool
    patterns: tuple[str, ...]
    heard_s_ago: float
    address: str | None
    received: int  # messages received from it
    lost: int  # messages sent by it that never came
    is_self: bool
    is_plain: bool
    totals: Totals | None = None  # its last report; None before the first, and for a plain one
    #: It has too many subscriptions to name: the patterns cover them, and more.
    is_coarse: bool = False
    #: How far its clock is ahead of this machine's, less the time that a datagram takes; None until
    #: the node itself was heard, and for this node.
    clock_ahead_s: float | None = None

    @property
    def wants(self) -> tuple[str, ...]:
        """The patterns it subscribes to."""
        return tuple([each for each in self.patterns if not each.startswith(SERVED_PREFIX)])

    @property
    def serves(self) -> tuple[str, ...]:
        """The topics whose requests it answers; in `patterns` each has a reserved name."""
        return tuple(
            [
                each.removeprefix(SERVED_PREFIX)
                for each in self.patterns
                if each.startswith(SERVED_PREFIX)
            ]
        )


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a publish to `topic` would be sent or not, at this moment."""

    topic: str
    verdict: str  # sent, held, suppressed or local
    reason: str
    state: str  # joining, sure or doubting
    wanted_by: tuple[str, ...]  # names of other nodes
    local: int  # subscriptions of this node

    def __str__(self) -> str:
        return f"{self.topic} is {self.verdict}: {self.reason}"


class BusView:
    """The bus as one node knows it. `stats` and `totals` return what the node has counted."""

    def __init__(
        self,
        own: NodeSettings,
        *,
        membership: Membership,
        roster: Roster,
        router: Router,
        totals: Callable[[], Totals],
        stats: Callable[[], dict[str, int]],
    ) -> None:
        self._own = own
        self._membership = membership
        self._roster = roster
        self._router = router
        self._totals = totals
        #: Returns the counters, and the sizes of all bounded collections, by name.
        self.stats = stats

    @property
    def state_reason(self) -> str:
        """The reason why the node is joining, sure or doubting."""
        return self._membership.joining.reason

    def nodes(self, now: float) -> list[NodeInfo]:
        """Return all nodes on the bus, this one first, the others by name."""
        self._membership.renew_entry()
        infos = [self._describe(entry, now) for entry in self._membership.list]
        return sorted(infos, key=lambda info: (not info.is_self, info.name, info.node))

    def subscriptions(self) -> dict[str, list[str]]:
        """Return the ids of the nodes that want each pattern, including this node.

        Topics that are served for requests are left out. A node with too many subscriptions to name
        is there with patterns that cover them, and more (`NodeInfo.is_coarse`).
        """
        self._membership.renew_entry()
        wanted: dict[str, list[str]] = {}
        for entry in self._membership.list:
            for pattern in entry.patterns:
                if not pattern.startswith(SERVED_PREFIX):
                    wanted.setdefault(pattern, []).append(entry.node)
        return dict(sorted(wanted.items()))

    def explain(self, topic: str) -> Explanation:
        """Return why a publish would be sent or not. Raises InvalidTopicError, ClosedError."""
        if self._membership.is_closed:
            raise ClosedError("the bus is closed")
        local = len(self._router.route(topic).subscribers)
        state = self._membership.state
        wanting = [
            entry
            for entry in self._membership.list
            if entry.node != self._own.node and any(matches(p, topic) for p in entry.patterns)
        ]
        wanted_by = tuple(sorted(entry.name for entry in wanting))
        if self._own.mode == "basic":
            verdict, reason = "sent", "mode basic sends everything"
        elif wanting and all(map(_gets_everything, wanting)):
            verdict, reason = "sent", f"{_join(wanted_by)} gets everything (mode basic, or plain)"
        elif wanting and all(entry.is_coarse for entry in wanting):
            verdict = "sent"
            reason = f"{_join(wanted_by)} may want it (too many subscriptions to name them all)"
        elif wanting:
            verdict, reason = "sent", f"wanted by {_join(wanted_by)}"
        elif state == DOUBTING:
            verdict, reason = "sent", f"this node is not sure who is here ({self.state_reason})"
        elif state == JOINING:
            verdict, reason = "held", f"this node is still joining ({self.state_reason})"
        elif local:
            verdict, reason = "local", "only this node's own subscriptions want it"
        else:
            verdict, reason = "suppressed", "no node subscribes to it"
        return Explanation(topic, verdict, reason, state, wanted_by, local)

    def _describe(self, entry: Entry, now: float) -> NodeInfo:
        node = entry.node
        peer = self._roster.peers.get(node)
        is_self = node == self._own.node
        about = self._membership.about if is_self else self._roster.about(node)
        address = node.removeprefix(PLAIN_PREFIX) if entry.is_plain else None
        if peer is not None:
            address = "{}:{}".format(*peer.address)
        heard_s_ago = 0.0 if is_self else max(0.0, now - self._membership.list.heard_at(node))
        return NodeInfo(
            node=node,
            name=entry.name,
            host=about.host,
            version=about.version,
            channel_port=about.channel_port,
            incarnation=entry.incarnation,
            entry_version=entry.version,
            mode="plain" if entry.is_plain else entry.mode,
            is_master=entry.is_master,
            patterns=entry.patterns,
            heard_s_ago=heard_s_ago,
            address=address,
            received=peer.received if peer else 0,
            lost=peer.lost if peer else 0,
            is_self=is_self,
            is_plain=entry.is_plain,
            totals=self._totals() if is_self else peer.totals if peer else None,
            is_coarse=entry.is_coarse,
            clock_ahead_s=peer.clock_ahead_s if peer else None,
        )


def _gets_everything(entry: Entry) -> bool:
    """Return whether all messages are sent to the node: it is basic, or plain with a long list."""
    return entry.patterns == ("**",) and (entry.mode == "basic" or entry.is_plain)


def _join(names: tuple[str, ...]) -> str:
    if len(names) <= 3:
        return ", ".join(names)
    return f"{', '.join(names[:3])} and {len(names) - 3} more"
