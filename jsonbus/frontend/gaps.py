"""Messages of reliable topics that will not come any more, as handlers of `on_gap` are told."""

from __future__ import annotations

from dataclasses import dataclass

from jsonbus.core.events import Event, GapFound
from jsonbus.core.node import Node
from jsonbus.frontend.watch import Subject


@dataclass(frozen=True, slots=True)
class GapEvent:
    """Messages of a reliable topic were asked for in vain: subscriptions go on without them."""

    node: str  # the publisher's id
    name: str
    topic: str
    first: int  # of the sequences that are missing: the topic's own count, from 1, of what that
    last: int  # node published reliably; not `Message.sequence`, which counts all its messages
    at: float  # when they were given up, seconds since 1970

    @property
    def count(self) -> int:
        """How many messages are missing."""
        return self.last - self.first + 1


def _begin(node: Node, now: float, at: float) -> list[GapEvent]:
    return []  # what was given up before is in the counters


def _read(event: Event, at: float) -> GapEvent | None:
    if type(event) is not GapFound:
        return None
    return GapEvent(event.node, event.name, event.topic, event.first, event.last, at)


GAPS = Subject("gaps", "gap_events_dropped", _begin, _read)
