"""BusFacts: what can be read of a bus at any time, of all its compartments as of one bus."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from jsonbus.config import BusConfig
from jsonbus.core.membership.joining import DOUBTING, JOINING, SURE
from jsonbus.core.node import Node
from jsonbus.core.wire.frames import Totals
from jsonbus.frontend.loop import BaseLoop

if TYPE_CHECKING:
    from jsonbus.core.views import Explanation, NodeInfo

#: Entries of stats() that are about the machine or about everybody: the same for each part, or
#: counted by each. All others are added up.
_COUNTED_ONCE = (
    "nodes_known",
    "interfaces_up",
    "receive_buffer_asked_bytes",
    "receive_buffer_obtained_bytes",
    "datagrams_open",
    "datagrams_foreign",
)

#: The states of a node, that which says most about a bus first.
_STATES = (JOINING, DOUBTING, SURE)


class BusFacts:
    """The part of `BaseBus` that only reads. Works on a closed bus, too."""

    _config: BusConfig
    _node: Node
    _loop: BaseLoop[Any, Any]

    @property
    def name(self) -> str:
        """The name of this node, for people; several nodes may have the same name."""
        return self._node.settings.name

    @property
    def id(self) -> str:
        """Globally unique id of this node."""
        return self._node.settings.node

    @property
    def config(self) -> BusConfig:
        """The settings that the bus was opened with."""
        return self._config

    @property
    def sealed(self) -> str | None:
        """The name of the sealed bus, from its key file; None if everybody may read and write."""
        found = self._loop.transport.describe().seal
        return None if found is None else found.bus

    @property
    def state(self) -> str:
        """The state of this node.

        joining: it does not know all subscriptions yet, so it holds the messages that it publishes.
        sure: it knows them, and sends only what somebody wants. doubting: it may have missed some,
        so it sends everything. closed: after `close`.
        """
        if self._loop.is_closed:
            return "closed"
        states = [loop.node.state for loop in self._loop.with_parts]
        return min(states, key=_STATES.index)

    @property
    def is_closed(self) -> bool:
        """Whether `close` was called."""
        return self._loop.is_closed

    def has_subscribers(self, topic: str) -> bool:
        """Return whether any node, this one included, is known to subscribe to the topic."""
        loop: BaseLoop[Any, Any] = self._loop_of(topic)
        return loop.look(lambda node, now: node.has_subscribers(topic))

    def explain(self, topic: str) -> Explanation:
        """Return why a publish to the topic would be sent, held or suppressed now."""
        loop: BaseLoop[Any, Any] = self._loop_of(topic)
        return loop.look(lambda node, now: node.view.explain(topic))

    def nodes(self) -> list[NodeInfo]:
        """Return the nodes known to be on the bus, this one included."""
        common, *parts = [
            loop.look(lambda node, now: node.view.nodes(now)) for loop in self._loop.with_parts
        ]
        return _merge_nodes(common, parts) if parts else common

    def subscriptions(self) -> dict[str, list[str]]:
        """Return all known patterns, each with the ids of the nodes that subscribe to it."""
        common, *parts = [
            loop.look(lambda node, now: node.view.subscriptions()) for loop in self._loop.with_parts
        ]
        return _merge_subscriptions((common, *parts)) if parts else common

    def stats(self) -> dict[str, int]:
        """Return counters of messages sent, received, suppressed, lost, dropped and refused."""
        figures, *others = [loop.stats() for loop in self._loop.with_parts]
        for other in others:
            for name, count in other.items():
                if name not in _COUNTED_ONCE:
                    figures[name] = figures.get(name, 0) + count
        return figures

    def __repr__(self) -> str:
        kind, config = type(self).__name__, self._config
        return f"<{kind} {self.name} {config.group}:{config.port} {self.state}>"

    # For the front ends:

    def _part_of(self, topic: str) -> Any:
        """Return the part that a topic belongs to; None if it is common."""
        compartments = self._loop.compartments
        return None if compartments is None else compartments.of(topic)

    def _loop_of(self, topic: str) -> Any:
        part = self._part_of(topic)
        return self._loop if part is None else part._loop


def _merge_nodes(common: list[NodeInfo], parts: Iterable[list[NodeInfo]]) -> list[NodeInfo]:
    """Return what each node of the common bus is and does there and in the compartments."""
    elsewhere: dict[str, list[NodeInfo]] = defaultdict(list)
    for infos in parts:
        for info in infos:
            elsewhere[info.node].append(info)
    return [_merge_node((info, *elsewhere[info.node])) for info in common]


def _merge_node(infos: tuple[NodeInfo, ...]) -> NodeInfo:
    totals = [info.totals for info in infos if info.totals is not None]
    return replace(
        infos[0],
        patterns=tuple(sorted({pattern for info in infos for pattern in info.patterns})),
        heard_s_ago=min(info.heard_s_ago for info in infos),
        received=sum(info.received for info in infos),
        lost=sum(info.lost for info in infos),
        totals=Totals(*map(sum, zip(*totals, strict=True))) if totals else None,
        is_coarse=any(info.is_coarse for info in infos),
    )


def _merge_subscriptions(found: Iterable[dict[str, list[str]]]) -> dict[str, list[str]]:
    merged: dict[str, dict[str, None]] = defaultdict(dict)
    for subscriptions in found:
        for pattern, nodes in subscriptions.items():
            merged[pattern].update(dict.fromkeys(nodes))
    return {pattern: list(merged[pattern]) for pattern in sorted(merged)}
