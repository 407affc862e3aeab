"""The last value of a topic, for subscribers that come later."""

from __future__ import annotations

import pytest

import jsonbus
from jsonbus.core.values import retained
from jsonbus.errors import LocalError
from jsonbus.transport import MemoryNetwork
from tests.bus.conftest import OpenBus
from tests.helpers import wait_until
from tests.sync.transports import LosingTransport, first_tries


def look_at(message: jsonbus.Message) -> tuple[str, object, bool]:
    return message.topic, message.value, message.retained


def read(subscription: object, count: int = 1) -> list[tuple[str, object, bool]]:
    return [look_at(subscription.get(timeout=30)) for _ in range(count)]  # type: ignore[attr-defined]


@pytest.mark.slow
def test_a_late_subscriber_gets_the_last_value_flagged_and_then_fresh_ones(
    open_bus: OpenBus,
) -> None:
    publisher = open_bus(name="hall")
    assert publisher.wait_until_sure(timeout=30)  # until then it holds what it publishes
    assert publisher.publish("door", "open", retain=True)
    assert publisher.publish("door", "closed", retain=True)  # though nobody is there
    reader = open_bus()
    subscription = reader.subscribe("door")
    message = subscription.get(timeout=30)
    assert look_at(message) == ("door", "closed", True)
    assert message.node == publisher.id
    assert message.sent_at <= message.received_at + 1
    publisher.publish("door", "open", retain=True)
    assert read(subscription) == [("door", "open", False)]
    assert publisher.stats()["values_retained"] == 1


@pytest.mark.slow
def test_a_node_that_restarts_gets_it_again(open_bus: OpenBus) -> None:
    publisher = open_bus()
    assert publisher.wait_until_sure(timeout=30)
    publisher.publish("door", "open", retain=True)
    for _ in range(2):
        reader = open_bus(name="reader")
        assert read(reader.subscribe("door")) == [("door", "open", True)]
        reader.close()


def test_a_second_subscription_of_the_same_bus_gets_it_at_once(open_bus: OpenBus) -> None:
    publisher, reader = open_bus(), open_bus()
    first = reader.subscribe("door")
    assert publisher.wait_for_subscribers("door", timeout=30)
    publisher.publish("door", "open", retain=True)
    assert read(first) == [("door", "open", False)]
    second = reader.subscribe("*")
    assert read(second) == [("door", "open", True)]
    assert first.pending == 0


def test_the_publisher_itself_gets_it_when_it_subscribes(open_bus: OpenBus) -> None:
    bus = open_bus()
    bus.publish("door", {"is": "open"}, retain=True)
    assert read(bus.subscribe("door")) == [("door", {"is": "open"}, True)]


@pytest.mark.slow
def test_a_handler_gets_it_as_well(open_bus: OpenBus) -> None:
    publisher, reader = open_bus(), open_bus()
    assert publisher.wait_until_sure(timeout=30)
    publisher.publish("door", "open", retain=True)
    got: list[jsonbus.Message] = []
    reader.subscribe("door", got.append)
    assert wait_until(lambda: got)
    assert look_at(got[0]) == ("door", "open", True)


@pytest.mark.slow
def test_none_ends_it_and_is_a_message_itself(open_bus: OpenBus) -> None:
    publisher, reader = open_bus(), open_bus()
    subscription = reader.subscribe("door")
    assert publisher.wait_for_subscribers("door", timeout=30)
    assert publisher.wait_until_sure(timeout=30)
    publisher.publish("door", "open", retain=True)
    publisher.publish("door", None, retain=True)
    publisher.publish("bell", 1, retain=True)
    assert [value for _, value, _ in read(subscription, 2)] == ["open", None]
    late = open_bus().subscribe("*")
    assert read(late) == [("bell", 1, True)]
    again = reader.subscribe("*")
    assert read(again) == [("bell", 1, True)]
    assert publisher.stats()["values_retained"] == 1


def test_a_value_that_is_not_retained_is_not_given(open_bus: OpenBus) -> None:
    publisher, reader = open_bus(), open_bus()
    subscription = reader.subscribe("**")
    assert publisher.wait_for_subscribers("a", timeout=30)
    publisher.publish("a", 1)
    publisher.publish("b", 2, retain=True)
    assert read(subscription, 2) == [("a", 1, False), ("b", 2, False)]
    assert read(open_bus().subscribe("**")) == [("b", 2, True)]


@pytest.mark.slow
@pytest.mark.parametrize("size", [10, 20_000])
def test_retained_and_reliable_go_together(
    network: MemoryNetwork, open_over: OpenBus, size: int
) -> None:
    reader = open_over(network.open())
    first = reader.subscribe("t")
    transport = LosingTransport(network, first_tries(1.0, 0))
    publisher = open_over(transport)
    assert publisher.wait_for_subscribers("t", timeout=30)
    for number in range(3):
        publisher.publish("t", [number, "x" * size], retain=True, reliable=True)
    assert [value[0] for _, value, _ in read(first, 3)] == [0, 1, 2]  # type: ignore[index]
    for subscription in (reader.subscribe("*"), open_over(network.open()).subscribe("t")):
        ((_, value, is_retained),) = read(subscription)
        assert (value[0], is_retained) == (2, True)  # type: ignore[index]


def test_a_full_store_is_reported_to_the_publisher(
    network: MemoryNetwork, open_over: OpenBus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retained, "RETAINED_TOPICS_MAX", 2)
    bus = open_over(network.open())
    for topic in "ab":
        bus.publish(topic, 1, retain=True)
    with pytest.raises(LocalError, match="2 topics have a retained value"):
        bus.publish("c", 1, retain=True)
    bus.publish("a", None, retain=True)
    assert bus.publish("c", 1, retain=True)
