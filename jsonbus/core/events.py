"""Events that the core reports to a front end, to be logged or waited for.

All classes are created when a process opens its first bus. They are slotted but not frozen, because
freezing doubles the time to create them. Each has a docstring, because `dataclass` takes a third
longer if it has to generate one. Events are never changed after they are made.
"""

from __future__ import annotations

from dataclasses import dataclass

from jsonbus.core.wire.frames import ABOUT_UNKNOWN, About


class Event:
    """The base of all events."""

    __slots__ = ()


@dataclass(slots=True)
class NodeJoined(Event):
    """A node joined the bus."""

    node: str
    name: str
    about: About = ABOUT_UNKNOWN  # what it had reported by then; empty if others reported it first


@dataclass(slots=True)
class NodeLeft(Event):
    """A node left the bus."""

    node: str
    name: str
    reason: str  # "left": it said goodbye. "gone": not heard for longer than its lease
    about: About = ABOUT_UNKNOWN


@dataclass(slots=True)
class NodeIntroduced(Event):
    """A node reported its address; only while a lookup is running (directory.py)."""

    node: str


@dataclass(slots=True)
class InterestChanged(Event):
    """Subscriptions of some node changed; calls that wait for a subscriber check again."""


@dataclass(slots=True)
class StateChanged(Event):
    """The node is now joining, sure or doubting (membership/joining.py defines the states)."""

    state: str
    reason: str


@dataclass(slots=True)
class MasterMissing(Event):
    """The mode is master and other nodes are here, but none of them answers as master."""


@dataclass(slots=True)
class DatagramRejected(Event):
    """A datagram was refused. Reported the first time per cause and sender, and always counted."""

    cause: str
    sender: str
    detail: str


@dataclass(slots=True)
class MessagesLost(Event):
    """A gap in a node's message numbers, reported as soon as it is noticed."""

    node: str
    name: str
    count: int


@dataclass(slots=True)
class GapFound(Event):
    """Messages of a reliable topic that could not be repaired and are given up."""

    node: str
    name: str
    topic: str
    first: int  # sequence numbers of the topic
    last: int
    incarnation: int = 0  # of the node, which may have started anew since


@dataclass(slots=True)
class ReplyReceived(Event):
    """The answer to a request of this node."""

    request_id: int
    value: object
    node: str
    name: str
    error: str | None


@dataclass(slots=True)
class RequestUnserved(Event):
    """No node serves the request's topic, and this node is sure of it."""

    request_id: int


@dataclass(slots=True)
class PongReceived(Event):
    """A node answered a ping of this node."""

    ping_id: int
    node: str
    name: str
    round_trip_s: float
