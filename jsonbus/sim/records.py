"""What the world writes down: datagrams on their way, wishes, publications, bindings.

These are the truth of a simulated world. Nodes only ever have an opinion of it; checkers compare
the two.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING

from jsonbus.core.wire.frames import Frame

if TYPE_CHECKING:
    from jsonbus.sim.participants import Participant, SimNode


@dataclass(slots=True, eq=False)
class Flight:
    """A datagram in transit to all its receivers, decoded once for all of them."""

    data: bytes
    frame: Frame
    address: tuple[str, int]
    has_messages: bool  # only then is there anything to fetch from a receiver afterwards
    arrivals: list[tuple[float, int]]  # when, and at which participant; in order
    landed: int = 0  # how many of the arrivals are past


@dataclass(slots=True, eq=False)
class SealedFlight:
    """A datagram of a sealed bus in transit: each receiver opens it for itself."""

    data: bytes
    address: tuple[str, int]
    sender: SimNode | None  # None: the attacker
    arrivals: list[tuple[float, int]]
    landed: int = 0
    opened: Flight | None = None  # what was in it, for the last who opened it


@dataclass(slots=True, eq=False)
class Sink:
    """Collects a node's messages for one or more patterns."""

    participant: Participant
    patterns: list[str] = field(default_factory=list)
    subscriptions: int = 0  # made so far: a pattern may be removed and come back


@dataclass(slots=True, eq=False)
class Wish:
    """A subscription as it really was, from when to when, whatever others believe."""

    participant: Participant
    pattern: str
    since: float
    until: float = inf


@dataclass(slots=True, eq=False)
class Publication:
    """One call of publish, and its outcome."""

    number: int  # also in the value: a delivery names its publication
    participant: Participant
    topic: str
    at: float
    state: str  # the node's state at the call; "plain" for a plain peer
    accepted: bool = True  # the result of publish; False: nobody wants it
    is_reliable: bool = False
    is_retained: bool = False


@dataclass(slots=True, eq=False)
class Inquiry:
    """One request; whoever serves the topic answers with its value."""

    topic: str
    value: int


@dataclass(slots=True, eq=False)
class Life:
    """One incarnation of a node, and when it was up."""

    node: SimNode
    node_id: str
    since: float
    until: float = inf


@dataclass(frozen=True, slots=True)
class Habits:
    """How an application uses its end of a channel."""

    messages: int = 0  # messages that it sends
    bytes_max: int = 100  # bytes of a message
    send_s: float = 0.0  # pause between two; 0: as fast as there is room
    take_s: float = 0.0  # pause between two that it takes; inf: it takes none
    closes: bool = False  # close after everything was sent


@dataclass(slots=True, eq=False)
class Binding:
    """A port at which a node accepts channels, from when to when."""

    node: SimNode
    port: str
    is_exclusive: bool
    since: float
    habits: Habits  # habits of the application that accepts the channels
    accept_s: float = 0.0  # pause between two that it accepts; inf: it accepts none
    until: float = inf
