"""The truth about a run: what was published and wanted, what came, and what was seen on the wire.

All instants are seconds since 1970: the lab, its nodes and its tap have one clock.
"""

from __future__ import annotations

import dataclasses
from math import inf

import jsonbus


@dataclasses.dataclass(frozen=True, slots=True)
class Publication:
    """A value that a publisher was given; whether it read it before its end is not known."""

    number: int  # in the whole run, from 0; the value carries it
    topic: str
    life: str
    fed_at: float


@dataclasses.dataclass(frozen=True, slots=True)
class Delivery:
    """A line that a subscriber printed."""

    number: int
    topic: str
    node: str
    received_at: float


@dataclasses.dataclass(frozen=True, slots=True)
class Gap:
    """What a subscriber printed of a gap: positions in the topic's own count of that publisher."""

    node: str
    topic: str
    first: int
    last: int


@dataclasses.dataclass(slots=True)
class Life:
    """A process from its start to its end: "pub3.2" is the second one on the third host."""

    name: str
    host: str
    began_at: float
    #: What a subscriber wants; a publisher wants nothing.
    patterns: tuple[str, ...] = ()
    is_reliable: bool = False
    ended_at: float = inf
    deliveries: list[Delivery] = dataclasses.field(default_factory=list)
    gaps: list[Gap] = dataclasses.field(default_factory=list)
    #: What went wrong with the process itself: a traceback, an end that nobody asked for.
    troubles: list[str] = dataclasses.field(default_factory=list)

    @property
    def is_publisher(self) -> bool:
        return not self.patterns

    def wants(self, topic: str) -> bool:
        return any(jsonbus.topic_matches(pattern, topic) for pattern in self.patterns)

    def spans(self, since: float, until: float) -> bool:
        return self.began_at <= since and until <= self.ended_at


@dataclasses.dataclass(frozen=True, slots=True)
class Sighting:
    """A message on the wire, seen before the network could lose it."""

    at: float
    number: int
    topic: str
    sequence: int | None
    node: str
    is_repair: bool


@dataclasses.dataclass(frozen=True, slots=True)
class Calm:
    """A time in which the network is whole, everybody runs, and all had time to agree."""

    since: float
    until: float


@dataclasses.dataclass(slots=True)
class Record:
    """Everything that the judges look at."""

    publications: list[Publication] = dataclasses.field(default_factory=list)
    lives: dict[str, Life] = dataclasses.field(default_factory=dict)
    sightings: list[Sighting] = dataclasses.field(default_factory=list)
    calms: list[Calm] = dataclasses.field(default_factory=list)
    #: What did not come true in time, in words; found by the run itself.
    unmet: list[str] = dataclasses.field(default_factory=list)

    @property
    def subscribers(self) -> list[Life]:
        return [life for life in self.lives.values() if not life.is_publisher]

    def publication(self, number: int) -> Publication | None:
        is_known = 0 <= number < len(self.publications)
        return self.publications[number] if is_known else None

    def life_of(self, publication: Publication) -> Life:
        return self.lives[publication.life]
