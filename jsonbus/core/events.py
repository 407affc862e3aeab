"""What the core tells a front end: things that happened, to be logged or waited for.

All classes are made when a process opens its first bus. So they are slotted but not frozen, which
would take twice as long, and each has a docstring, which `dataclass` would take a third longer to
make up. Nobody changes an event after it was made.
"""

from __future__ import annotations

from dataclasses import dataclass

from jsonbus.core.wire.frames import UNTOLD, About


@dataclass(slots=True)
class NodeJoined:
    """A node is here that was not."""

    node: str
    name: str
    about: About = UNTOLD  # what it had told by then: nothing, if others told of it first


@dataclass(slots=True)
class NodeLeft:
    """A node is no longer here."""

    node: str
    name: str
    reason: str  # "left": it said so. "gone": not heard for longer than its lease
    about: About = UNTOLD


@dataclass(slots=True)
class NodeIntroduced:
    """A node told where it is; only while somebody seeks one (directory.py)."""

    node: str


@dataclass(slots=True)
class InterestChanged:
    """Somebody's subscriptions changed: whoever waits for a subscriber should look again."""


@dataclass(slots=True)
class StateChanged:
    """joining, sure or doubting (core.joining says what they mean)."""

    state: str
    reason: str


@dataclass(slots=True)
class MasterMissing:
    """Mode master, other nodes are here, and none of them answers."""


@dataclass(slots=True)
class DatagramRejected:
    """Reported the first time per cause and sender; counted always."""

    cause: str
    sender: str
    detail: str


@dataclass(slots=True)
class MessagesLost:
    """A gap in a node's message numbers: reported when it is noticed."""

    node: str
    name: str
    count: int


@dataclass(slots=True)
class GapFound:
    """Messages of a reliable topic that were asked for in vain: they will not come any more."""

    node: str
    name: str
    topic: str
    first: int  # sequences of the topic
    last: int


@dataclass(slots=True)
class ReplyReceived:
    """The answer to a request of this node's."""

    request_id: int
    value: object
    node: str
    name: str
    error: str | None


@dataclass(slots=True)
class RequestUnserved:
    """Nobody serves the request's topic, and this node is sure of it."""

    request_id: int


@dataclass(slots=True)
class PongReceived:
    """A node answered a ping of this node's."""

    ping_id: int
    node: str
    name: str
    round_trip_s: float


Event = (
    NodeJoined
    | NodeLeft
    | NodeIntroduced
    | InterestChanged
    | StateChanged
    | MasterMissing
    | DatagramRejected
    | MessagesLost
    | GapFound
    | ReplyReceived
    | RequestUnserved
    | PongReceived
)
