"""What the processes of the demo are told, and what they tell: one JSON line each way."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """What one process of the demo is to be; a node that neither publishes nor subscribes is fine.

    group, port and mode are those of the bus. The interface is not asked for: it is loopback.
    """

    name: str
    group: str
    port: int
    mode: str
    is_master: bool = False
    #: Topic -> the value it begins with.
    publishes: dict[str, float] = field(default_factory=dict)
    subscribes: tuple[str, ...] = ()

    def to_line(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_line(cls, line: str) -> Part:
        fields = json.loads(line)
        return cls(**{**fields, "subscribes": tuple(fields["subscribes"])})


@dataclass(slots=True)
class TopicReport:
    """One topic of a sensor so far, and what happens to its values now."""

    value: float
    published: int = 0
    sent: int = 0
    #: As in jsonbus.Explanation: sent, held, suppressed; and the names of those who want it.
    verdict: str = ""
    wanted_by: tuple[str, ...] = ()

    @property
    def suppressed(self) -> int:
        return self.published - self.sent


@dataclass(slots=True)
class Report:
    """One process so far."""

    #: Of a sensor, by topic.
    topics: dict[str, TopicReport] = field(default_factory=dict)
    #: Of a subscriber: the last value of each topic, messages delivered, and how long the first
    #: one took, from opening the bus.
    seen: dict[str, float] = field(default_factory=dict)
    delivered: int = 0
    first_value_ms: float | None = None
    #: Counters of the bus, as in Bus.stats().
    lost: int = 0
    unwanted: int = 0
    shares: int = 0

    def to_line(self) -> str:
        return json.dumps(asdict(self))

    def plus(self, later: Report) -> Report:
        """Two subscribers, one after the other, as one: what they counted."""
        return Report(
            delivered=self.delivered + later.delivered,
            first_value_ms=later.first_value_ms,
            lost=self.lost + later.lost,
            unwanted=self.unwanted + later.unwanted,
            shares=self.shares + later.shares,
        )

    @classmethod
    def from_line(cls, line: str) -> Report:
        """Raises ValueError for a line that is no report."""
        try:
            fields = json.loads(line)
            topics = {
                topic: TopicReport(**{**each, "wanted_by": tuple(each["wanted_by"])})
                for topic, each in fields["topics"].items()
            }
            return cls(**{**fields, "topics": topics})
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"no report: {line!r}") from error


@dataclass(frozen=True, slots=True)
class Tally:
    """All processes of one mode together."""

    mode: str
    #: Values offered to publish(), and those of them that went out to the network.
    published: int
    sent: int
    #: What the subscriber's handler got, and what the subscriber knows it missed.
    delivered: int
    lost: int
    #: Subscription lists sent in answer to somebody who lacked something.
    shares: int
    #: Messages that a node received and had no subscription for, all nodes together.
    unwanted: int
    #: From opening the bus to the first value, the latest subscriber's.
    first_value_ms: float | None

    @property
    def suppressed(self) -> int:
        return self.published - self.sent


def add_up(mode: str, reports: Iterable[Report]) -> Tally:
    reports = list(reports)
    topics = [topic for report in reports for topic in report.topics.values()]
    first_values = [each.first_value_ms for each in reports if each.first_value_ms is not None]
    return Tally(
        mode=mode,
        published=sum(topic.published for topic in topics),
        sent=sum(topic.sent for topic in topics),
        delivered=sum(report.delivered for report in reports),
        lost=sum(report.lost for report in reports),
        shares=sum(report.shares for report in reports),
        unwanted=sum(report.unwanted for report in reports),
        first_value_ms=first_values[-1] if first_values else None,
    )
