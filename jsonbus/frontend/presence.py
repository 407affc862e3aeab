"""Nodes that join, leave or expire, as handlers of `on_node` are told."""

from __future__ import annotations

from dataclasses import dataclass

from jsonbus.core.events import Event, NodeJoined, NodeLeft
from jsonbus.core.node import Node
from jsonbus.frontend.watch import Subject

JOINED, LEFT, EXPIRED = "joined", "left", "expired"


@dataclass(frozen=True, slots=True)
class NodeEvent:
    """A node came or went."""

    kind: str  # joined; left: it said goodbye; expired: it was silent for too long
    node: str  # its id
    name: str
    host: str | None  # what its machine is called; None unless the node itself has told
    version: str | None  # of its software; likewise
    at: float  # when this was noticed, seconds since 1970


def _begin(node: Node, now: float, at: float) -> list[NodeEvent]:
    """The nodes that are here, but for this one."""
    return [
        NodeEvent(JOINED, info.node, info.name, info.host, info.version, at)
        for info in node.nodes(now)
        if not info.is_self
    ]


def _read(event: Event, at: float) -> NodeEvent | None:
    match event:
        case NodeJoined(node, name, about):
            return NodeEvent(JOINED, node, name, about.host, about.version, at)
        case NodeLeft(node, name, reason, about):
            kind = LEFT if reason == "left" else EXPIRED
            return NodeEvent(kind, node, name, about.host, about.version, at)
        case _:
            return None


NODES = Subject("nodes", "node_events_dropped", _begin, _read)
