"""What the core tells a front end: things that happened, to be logged or waited for."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True, frozen=True)
class NodeJoined:
    node: str
    name: str


@dataclass(slots=True, frozen=True)
class NodeLeft:
    node: str
    name: str
    reason: str  # "left": it said so. "gone": not heard for longer than its lease


@dataclass(slots=True, frozen=True)
class InterestChanged:
    """Somebody's subscriptions changed: whoever waits for a subscriber should look again."""


@dataclass(slots=True, frozen=True)
class StateChanged:
    """joining, sure or doubting (core.joining says what they mean)."""

    state: str
    reason: str


@dataclass(slots=True, frozen=True)
class MasterMissing:
    """Mode master, other nodes are here, and none of them answers."""


@dataclass(slots=True, frozen=True)
class DatagramRejected:
    """Reported the first time per cause and sender; counted always."""

    cause: str
    sender: str
    detail: str


@dataclass(slots=True, frozen=True)
class MessagesLost:
    """A gap in a node's message numbers: reported when it is noticed."""

    node: str
    name: str
    count: int


@dataclass(slots=True, frozen=True)
class ReplyReceived:
    request_id: int
    value: object
    node: str
    name: str
    error: str | None


@dataclass(slots=True, frozen=True)
class RequestUnserved:
    """Nobody serves the request's topic, and this node is sure of it."""

    request_id: int


@dataclass(slots=True, frozen=True)
class PongReceived:
    ping_id: int
    node: str
    name: str
    round_trip_s: float


Event = (
    NodeJoined
    | NodeLeft
    | InterestChanged
    | StateChanged
    | MasterMissing
    | DatagramRejected
    | MessagesLost
    | ReplyReceived
    | RequestUnserved
    | PongReceived
)
