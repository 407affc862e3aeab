"""Looking on without asking for anything."""

from __future__ import annotations

import pytest

from tests.bus.conftest import OpenBus
from tests.helpers import wait_until


@pytest.mark.slow
def test_who_looks_on_sees_what_travels_and_pulls_nothing(open_bus: OpenBus) -> None:
    publisher, reader, onlooker = open_bus(name="p"), open_bus(name="r"), open_bus(name="o")
    reading = reader.subscribe("wanted")
    looking = onlooker.subscribe("**", passive=True)
    assert looking.is_passive and not reading.is_passive
    assert publisher.wait_for_subscribers("wanted", timeout=30)
    assert publisher.wait_until_sure(timeout=30)
    assert not publisher.publish("unwanted", 0)
    assert publisher.publish("wanted", 1)
    message = looking.get(timeout=30)
    assert (message.topic, message.value, message.node) == ("wanted", 1, publisher.id)
    assert onlooker.subscriptions() == {"wanted": [reader.id]}


def test_patterns_added_and_removed_stay_passive(open_bus: OpenBus) -> None:
    publisher, reader, onlooker = open_bus(), open_bus(), open_bus()
    reader.subscribe(["a", "b", "c"])
    looking = onlooker.subscribe("a", passive=True)
    assert looking.add_pattern("b") and looking.add_pattern("c") and looking.remove_pattern("a")
    assert publisher.wait_for_subscribers("c", timeout=30)
    for topic in "abc":
        assert publisher.publish(topic, topic)
    assert [looking.get(timeout=30).value for _ in range(2)] == ["b", "c"]
    assert onlooker.subscriptions().keys() == {"a", "b", "c"}
    assert all(onlooker.id not in nodes for nodes in onlooker.subscriptions().values())
    looking.close()
    assert publisher.publish("b", "b")
    assert wait_until(lambda: onlooker.stats()["messages_unwanted"] >= 2)


@pytest.mark.slow
def test_what_a_node_has_counted_reaches_the_others(open_bus: OpenBus) -> None:
    publisher, reader = open_bus(name="p"), open_bus(name="r")
    reading = reader.subscribe("wanted")
    assert publisher.wait_for_subscribers("wanted", timeout=30)
    assert publisher.wait_until_sure(timeout=30)
    for value in range(3):
        publisher.publish("wanted", value)
        assert reading.get(timeout=30).value == value
    for _ in range(2):
        assert not publisher.publish("unwanted", None)
    reader.ping(timeout=0.2)
    totals = {info.name: info.totals for info in reader.nodes()}["p"]
    assert totals is not None
    assert (totals.sent, totals.suppressed) == (3, 2)
