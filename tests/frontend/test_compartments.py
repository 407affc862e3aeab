"""Which part of a bus a topic or a pattern belongs to, and how gaps get out of a part."""

from __future__ import annotations

import random
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from jsonbus.core.events import GapFound, NodeJoined
from jsonbus.core.limits import ROUTES_MAX
from jsonbus.core.node import Node
from jsonbus.core.settings import NodeSettings
from jsonbus.errors import InvalidTopicError
from jsonbus.frontend.compartments import Compartments, GapRelay
from jsonbus.frontend.watch import GapEvent, Watches


class Part:
    """A bus, with a node, that is not driven."""

    def __init__(self) -> None:
        self.node = Node(NodeSettings("id", 1, "name"), random.Random(1))
        self._loop = SimpleNamespace(
            is_closed=False, notify=lambda: None, call=lambda act: act(self.node, 0.0)
        )

    @property
    def patterns(self) -> tuple[str, ...]:
        return self.node.own_entry().patterns


@pytest.fixture
def parts() -> dict[tuple[str, ...], Any]:
    return {("doors/**",): Part(), ("cameras/*", "locks/**"): Part()}


def test_a_topic_belongs_to_one_part_or_is_common(parts: Any) -> None:
    compartments = Compartments(parts)
    doors, locks = parts.values()
    for _ in range(2):  # looked for, then known
        assert compartments.of("doors/front") is compartments.of("doors") is doors
        assert compartments.of("cameras/yard") is compartments.of("locks/a/b") is locks
        assert compartments.of("hall") is compartments.of("cameras") is None


@pytest.mark.parametrize("topic", ["", "doors/*", "doors//x", 3, None, [], {}])
def test_what_is_no_topic_belongs_nowhere(parts: Any, topic: object) -> None:
    assert Compartments(parts).of(topic) is None


def test_the_topics_that_are_remembered_are_bounded(parts: Any) -> None:
    compartments = Compartments(parts)
    for number in range(ROUTES_MAX + 10):
        assert compartments.of(f"doors/{number}") is parts["doors/**",]
    assert len(compartments._by_topic) <= ROUTES_MAX


def test_the_common_bus_knows_the_patterns_that_the_parts_do_not_cover(parts: Any) -> None:
    compartments = Compartments(parts)
    patterns = ("**", "doors/*", "*/front", "hall", "locks", "cameras/**")
    assert compartments.common_ones(patterns) == ("**", "*/front", "hall", "cameras/**")
    with pytest.raises(InvalidTopicError):
        compartments.common_ones(("doors//x",))


def test_each_part_follows_the_patterns_that_concern_it(parts: Any) -> None:
    doors, locks = parts.values()
    compartments, subscription = Compartments(parts), SimpleSubscription()
    compartments.follow(subscription, ("**", "doors/*", "hall"), lambda pattern: True)
    assert doors.patterns == ("**", "doors/*")
    assert locks.patterns == ("**",)
    compartments.follow(subscription, ("**", "hall"), lambda pattern: False)
    assert (doors.patterns, locks.patterns) == (("doors/*",), ())


def test_a_part_is_asked_again_if_another_thread_changed_its_mind_meanwhile(parts: Any) -> None:
    answers = iter([True, False, False, False])
    Compartments(parts).follow(SimpleSubscription(), ("doors/x",), lambda pattern: next(answers))
    assert parts["doors/**",].patterns == ()
    assert next(answers, None) is None


class SimpleSubscription:
    is_passive = False


class NotedWatches(Watches):
    def __init__(self, *, want_gaps: bool) -> None:
        super().__init__(threading.Lock())
        self.gaps: list[GapEvent] = []
        self._wants = want_gaps

    @property
    def want_gaps(self) -> bool:
        return self._wants

    def put_gaps(self, gaps: list[GapEvent]) -> None:
        self.gaps += gaps


@pytest.mark.parametrize("want_gaps", [True, False])
def test_gaps_of_a_part_are_told_to_who_watches_the_bus(want_gaps: bool) -> None:
    watches = NotedWatches(want_gaps=want_gaps)
    lock = threading.Lock()
    relay = GapRelay(lock, watches)
    with lock:
        relay.put([GapFound("id", "name", "doors/x", 2, 3), NodeJoined("id", "name")])
    relay.schedule()
    relay.schedule()
    assert [(gap.topic, gap.count) for gap in watches.gaps] == [("doors/x", 2)] * want_gaps
