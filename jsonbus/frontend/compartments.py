"""Compartments: topics with keys of their own, on a bus that users see as one.

Theory of operation. A compartment is a bus of its own on the same group, with a node, a loop and a
transport, sealed with its keys alone. So nothing of it shows to a node without them, not even that
messages are missing. What users open is the bus of the common topics; it has the others as *parts*,
whose nodes have the same id and name.

- A topic belongs to one part, or is common: publishing, requests and questions go there. A message
  that comes elsewhere is refused by the node (core/routing/router.py).
- A pattern is for all parts that it overlaps. The common bus learns of it unless the parts cover
  it: what is in its subscription list, all nodes read.
- A subscription belongs to the common loop, with its handler, whose workers run the handlers of all
  parts: no more at once than the program asked for. Other loops only put messages into it.
- Nodes, pings and channels are those of the common bus, for which every node has a key.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from jsonbus.core.events import Event
from jsonbus.core.limits import ROUTES_MAX
from jsonbus.core.node import Node
from jsonbus.core.routing.matching import covers, matches, overlaps
from jsonbus.core.wire.topics import check_pattern, is_valid_topic
from jsonbus.frontend.watch import GAPS, GapEvent, Watches

if TYPE_CHECKING:
    from jsonbus.frontend.bus import BaseBus
    from jsonbus.frontend.loop import BaseLoop

P = TypeVar("P", bound="BaseBus[Any, Any, Any, Any, Any]")

#: What a compartment is for: topics and patterns.
Topics = tuple[str, ...]


def carries(topics: Iterable[str], topic: str) -> bool:
    """Return whether a topic is among the topics of a compartment."""
    return any(matches(pattern, topic) for pattern in topics)


def make_part_node(
    common: Node, topics: Topics, number: int, receive_buffer_bytes: int | None
) -> Node:
    """Make the node of the compartment of that number, from 1: the same one as on the common bus.

    It counts its messages for itself, so it has another incarnation: node, incarnation and sequence
    name one message for ever.
    """
    settings = common.settings._replace(
        incarnation=common.settings.incarnation + number,
        receive_buffer_bytes=receive_buffer_bytes,
        carries=lambda topic: carries(topics, topic),
    )
    return Node(settings, random.Random(), common.outbox.wall_offset_s)


class Compartments(Generic[P]):
    """The parts of a bus, by what they are for. Any thread."""

    def __init__(self, parts: Mapping[Topics, P]) -> None:
        self._by_topics = dict(parts)
        self._patterns = tuple(pattern for topics in parts for pattern in topics)
        self._by_topic: dict[Any, P | None] = {}

    @property
    def parts(self) -> tuple[P, ...]:
        return tuple(self._by_topics.values())

    def of(self, topic: Any) -> P | None:
        """Return the part that a topic belongs to; None if it is common, or no topic."""
        try:
            return self._by_topic[topic]
        except TypeError:
            return None
        except KeyError:
            if not is_valid_topic(topic):
                return None
        found = (part for topics, part in self._by_topics.items() if carries(topics, topic))
        if len(self._by_topic) >= ROUTES_MAX:
            self._by_topic.clear()
        part = self._by_topic[topic] = next(found, None)
        return part

    def common_ones(self, patterns: Iterable[str]) -> tuple[str, ...]:
        """Return the patterns that the common bus has to know. Raises InvalidTopicError."""
        return tuple(
            pattern
            for pattern in map(check_pattern, patterns)
            if not covers(self._patterns, pattern)
        )

    def follow(
        self, subscription: Any, patterns: Sequence[str], is_wanted: Callable[[str], bool]
    ) -> None:
        """Subscribe in all parts that the patterns concern, or unsubscribe there."""
        for topics, part in self._by_topics.items():
            concerned = tuple(
                pattern for pattern in patterns if any(overlaps(each, pattern) for each in topics)
            )
            if concerned:
                _follow(part._loop, subscription, concerned, is_wanted)


def _follow(
    loop: BaseLoop[Any, Any],
    subscription: Any,
    patterns: tuple[str, ...],
    is_wanted: Callable[[str], bool],
) -> None:
    """Have a part's loop do what is wanted of a subscription to the bus now."""

    def act(wanted: Mapping[str, bool], node: Node, now: float) -> None:
        added = tuple(pattern for pattern in wanted if wanted[pattern])
        removed = tuple(pattern for pattern in wanted if not wanted[pattern])
        node.subscribe(added, subscription, now, is_passive=subscription.is_passive)
        node.unsubscribe(removed, subscription, now)
        loop.notify()

    while not loop.is_closed:
        wanted = {pattern: is_wanted(pattern) for pattern in patterns}
        loop.call(partial(act, wanted))
        if all(is_wanted(pattern) is before for pattern, before in wanted.items()):
            return  # else another thread changed its mind meanwhile


class GapRelay(Watches):
    """In a part's loop: tells the watches of the common bus of gaps."""

    def __init__(self, lock: AbstractContextManager[Any], watches: Watches) -> None:
        super().__init__(lock)
        self._to = watches
        self._found: list[GapEvent] = []

    def put(self, events: Iterable[Event]) -> None:
        """Keep the gaps among the events. Lock held."""
        at = time.time()
        if self._to.want_gaps:
            self._found += [gap for event in events if (gap := GAPS.read(event, at)) is not None]

    def schedule(self) -> None:
        """Pass them on. Lock not held."""
        with self._lock:
            found, self._found = self._found, []
        if found:
            self._to.put_gaps(found)
