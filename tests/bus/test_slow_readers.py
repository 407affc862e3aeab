"""A reader that is too slow: what it misses is told, not only counted."""

from __future__ import annotations

from typing import Any

import pytest

import jsonbus
from jsonbus.core.mailbox import Overflow
from jsonbus.transport import MemoryNetwork
from tests.bus.conftest import OpenBus
from tests.helpers import wait_until

COUNT = 50
ROOM = 10


def test_the_first_drop_of_each_subscription_is_a_warning_with_the_remedy(
    open_bus: OpenBus, caplog: pytest.LogCaptureFixture
) -> None:
    bus = open_bus()
    slow = [bus.subscribe("a", maxsize=2) for _ in range(2)]
    enough = bus.subscribe("a", maxsize=COUNT)
    for number in range(COUNT):
        bus.publish("a", number)
    assert wait_until(lambda: [each.dropped for each in slow] == [COUNT - 2, COUNT - 2])
    assert enough.dropped == 0
    warnings = [each for each in caplog.records if "are dropped" in each.getMessage()]
    assert [each.name for each in warnings] == ["jsonbus.bus.program"] * 2
    assert [each.levelname for each in warnings] == ["WARNING"] * 2
    assert "2 wait already" in warnings[0].getMessage()
    assert "get_many, in_batches" in warnings[0].getMessage()


@pytest.mark.parametrize(
    ("overflow", "first", "last"),
    [
        ("drop_oldest", 1, COUNT - ROOM),
        ("drop_newest", ROOM + 1, COUNT),
        ("error", ROOM + 1, COUNT),
    ],
)
def test_drops_of_a_reliable_topic_are_gaps(
    network: MemoryNetwork, open_over: OpenBus, overflow: Overflow, first: int, last: int
) -> None:
    publisher, reader = open_over(network.open()), open_over(network.open())
    gaps: list[jsonbus.GapEvent] = []
    reader.on_gap(gaps.append)
    subscription = reader.subscribe("steps", maxsize=ROOM, overflow=overflow)
    assert publisher.wait_for_subscribers("steps", timeout=60)
    for number in range(COUNT):
        publisher.publish("steps", number, reliable=True)
    assert wait_until(lambda: sum(gap.count for gap in gaps) == COUNT - ROOM)
    assert (gaps[0].first, gaps[-1].last) == (first, last)
    assert all(a.last + 1 == b.first for a, b in zip(gaps, gaps[1:], strict=False))
    assert {(gap.node, gap.topic, gap.reason) for gap in gaps} == {
        (publisher.id, "steps", "dropped")
    }
    assert subscription.dropped == COUNT - ROOM
    assert reader.stats()["messages_given_up"] == 0
    kept = positions(subscription.get_many(COUNT))
    assert sorted([*kept, *range(first, last + 1)]) == list(range(1, COUNT + 1))


def test_only_messages_of_reliable_topics_have_a_position(
    network: MemoryNetwork, open_over: OpenBus
) -> None:
    publisher, reader = open_over(network.open()), open_over(network.open())
    plain, typed = reader.subscribe("a"), reader.subscribe("a", as_type=int)
    assert publisher.wait_for_subscribers("a", timeout=60)
    publisher.publish("a", 7, reliable=True)
    publisher.publish("a", 8)
    publisher.publish("a", 9, reliable=True)
    for subscription in (plain, typed):
        got = [subscription.get(timeout=60) for _ in range(3)]
        assert {each.value: each.position for each in got} == {7: 1, 8: None, 9: 2}


def positions(messages: list[Any]) -> list[int | None]:
    return [message.position for message in messages]
