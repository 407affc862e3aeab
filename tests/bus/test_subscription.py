"""Reading a subscription: waiting, order, overflow, the end."""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass

import pytest

import jsonbus
from jsonbus.errors import ClosedError, InvalidTopicError, LocalError, QueueFullError
from jsonbus.sync.subscription import Subscription
from tests.bus.conftest import OpenBus
from tests.helpers import wait_until


def take_all(subscription: Subscription) -> list[object]:
    """What is pending now."""
    return [subscription.get(timeout=0).value for _ in range(subscription.pending)]


def test_get_waits_for_a_message_and_no_longer_than_told(open_bus: OpenBus) -> None:
    bus = open_bus()
    subscription = bus.subscribe("x")
    with pytest.raises(TimeoutError, match="'x'"):
        subscription.get(timeout=0)
    with pytest.raises(TimeoutError):
        subscription.get(timeout=0.01)
    timer = threading.Timer(0.05, bus.publish, ("x", 1))
    timer.start()
    assert subscription.get().value == 1
    timer.join()


def test_readers_share_the_messages(open_bus: OpenBus) -> None:
    bus = open_bus()
    subscription = bus.subscribe("x")
    got: list[object] = []

    def read() -> None:
        for message in subscription:
            got.append(message.value)

    readers = [threading.Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    for number in range(200):
        bus.publish("x", number)
    assert wait_until(lambda: len(got) == 200)
    subscription.close()
    for reader in readers:
        reader.join(30)
    assert sorted(got) == list(range(200))  # type: ignore[type-var]


def test_drop_oldest_keeps_the_newest_messages(open_bus: OpenBus) -> None:
    bus = open_bus()
    subscription = bus.subscribe("x", maxsize=3)
    for number in range(5):
        bus.publish("x", number)
    assert (subscription.pending, subscription.dropped) == (3, 2)
    assert take_all(subscription) == [2, 3, 4]
    assert bus.stats()["messages_dropped"] == 2


def test_drop_newest_keeps_the_oldest_messages(open_bus: OpenBus) -> None:
    bus = open_bus()
    subscription = bus.subscribe("x", maxsize=3, overflow="drop_newest")
    for number in range(5):
        bus.publish("x", number)
    assert (subscription.pending, subscription.dropped) == (3, 2)
    assert take_all(subscription) == [0, 1, 2]


def test_error_raises_where_messages_are_missing(open_bus: OpenBus) -> None:
    bus = open_bus()
    subscription = bus.subscribe("x", maxsize=2, overflow="error")
    for number in range(5):
        bus.publish("x", number)
    assert take_all(subscription) == [0, 1]
    with pytest.raises(QueueFullError) as caught:
        subscription.get(timeout=0)
    assert (caught.value.pattern, caught.value.dropped) == ("x", 3)
    bus.publish("x", 5)
    assert take_all(subscription) == [5]


def test_a_publisher_does_not_wait_for_a_reader_that_has_ended(open_bus: OpenBus) -> None:
    bus = open_bus()
    subscription = bus.subscribe("x", maxsize=1, overflow="block")
    bus.publish("x", 0)
    reader = threading.Thread(target=subscription.get)
    reader.start()
    reader.join(30)
    for number in range(3):
        bus.publish("x", number)
    assert subscription.pending == 3


def test_closing_wakes_readers_and_drops_and_counts_what_is_pending(open_bus: OpenBus) -> None:
    bus = open_bus()
    waiting, full = bus.subscribe("nothing"), bus.subscribe("x")
    raised: list[type[BaseException]] = []

    def read() -> None:
        try:
            waiting.get()
        except ClosedError as error:
            raised.append(type(error))

    reader = threading.Thread(target=read)
    reader.start()
    bus.publish("x", 1)
    waiting.close()
    full.close()
    reader.join(30)
    assert raised == [ClosedError]
    assert (full.pending, full.dropped, full.is_closed) == (0, 0, True)
    assert list(full) == []
    with pytest.raises(ClosedError):
        full.get(timeout=0)
    figures = bus.stats()
    assert (figures["messages_dropped"], figures["messages_unread"]) == (0, 1)
    full.close()


def test_leaving_the_with_block_unsubscribes(open_bus: OpenBus) -> None:
    bus = open_bus()
    with bus.subscribe("x") as subscription:
        assert bus.has_subscribers("x")
    assert subscription.is_closed
    assert not bus.has_subscribers("x")


@dataclass
class Reading:
    temp: float


def test_messages_of_the_wrong_type_are_dropped_counted_and_warned_of_once(
    open_bus: OpenBus, caplog: pytest.LogCaptureFixture
) -> None:
    bus = open_bus()
    subscription = bus.subscribe("s", as_type=Reading)
    handled: list[object] = []
    handling = bus.subscribe("s", handler=lambda m: handled.append(m.value), as_type=Reading)
    with caplog.at_level(logging.WARNING, "jsonbus.bus"):
        for value in ({"temp": "hot"}, {"temp": "cold"}, {"temp": 1.0}):
            bus.publish("s", value)
        assert subscription.get(timeout=30).value == Reading(1.0)
        assert wait_until(lambda: handled == [Reading(1.0)])
    assert (subscription.dropped, handling.dropped) == (2, 2)
    assert len([r for r in caplog.records if "wrong type" in r.getMessage()]) == 1


def test_many_messages_are_taken_at_once(open_bus: OpenBus) -> None:
    bus = open_bus()
    subscription = bus.subscribe("x")
    for number in range(5):
        bus.publish("x", number)
    assert wait_until(lambda: subscription.pending == 5)
    assert [each.value for each in subscription.get_many(3)] == [0, 1, 2]
    assert [each.value for each in subscription.get_many(3, timeout=0)] == [3, 4]
    with pytest.raises(TimeoutError):
        subscription.get_many(3, timeout=0)
    with pytest.raises(jsonbus.errors.ConfigError):
        subscription.get_many(0)


def test_taking_many_waits_for_the_first_and_leaves_out_wrong_types(open_bus: OpenBus) -> None:
    bus = open_bus()
    subscription = bus.subscribe("x", as_type=Reading)
    taken: list[object] = []
    reader = threading.Thread(target=lambda: taken.extend(subscription.get_many(10, timeout=60)))
    reader.start()
    bus.publish("x", "no reading")
    bus.publish("x", {"temp": 1.0})
    reader.join(60)
    assert [each.value for each in taken] == [Reading(1.0)]
    assert subscription.dropped == 1


@pytest.mark.slow
def test_what_several_patterns_match_comes_once_and_in_order(open_bus: OpenBus) -> None:
    reader, bus = open_bus(), open_bus()
    assert bus.wait_until_sure(timeout=30)  # it would be held, and then be nothing of the past
    bus.publish("a/last", "kept", retain=True)
    subscription = reader.subscribe(["a/*", "*/last", "**", "b"])
    assert subscription.patterns == ("a/*", "*/last", "**", "b")
    assert subscription.get(timeout=30).retained
    assert bus.wait_for_subscribers("b", timeout=30)
    topics = ["a/x", "b", "c/last", "a/last", "b"] * 20
    for topic in topics:
        bus.publish(topic, None)
    assert [subscription.get(timeout=30).topic for _ in topics] == topics
    again = reader.subscribe(("a/last", "a/**"))
    assert again.get(timeout=30).topic == "a/last"
    subscription.close()
    again.close()
    assert wait_until(lambda: not bus.has_subscribers("b"))
    assert (subscription.pending, subscription.dropped, again.dropped) == (0, 0, 0)


def test_patterns_can_be_added_and_removed(open_bus: OpenBus) -> None:
    bus, other = open_bus(), open_bus()
    subscription = bus.subscribe("a/*")
    assert subscription.add_pattern("a/**")
    assert subscription.add_pattern("b")
    assert not subscription.add_pattern("b")
    assert subscription.patterns == ("a/*", "a/**", "b")
    assert other.wait_for_subscribers("b", timeout=30)
    assert other.publish("a/1", 1) and other.publish("b", 2)
    assert [subscription.get(timeout=30).value for _ in range(2)] == [1, 2]
    assert subscription.remove_pattern("b")
    assert not subscription.remove_pattern("b")
    assert wait_until(lambda: not other.has_subscribers("b"))
    assert subscription.remove_pattern("a/*")
    assert other.publish("a/1", 3)
    assert subscription.get(timeout=30).value == 3
    assert subscription.pending == 0


def test_a_subscription_without_patterns_waits_for_the_next(open_bus: OpenBus) -> None:
    bus = open_bus()
    subscription = bus.subscribe("a")
    subscription.remove_pattern("a")
    assert not bus.has_subscribers("a")
    subscription.add_pattern("b")
    assert bus.publish("b", 2)
    assert subscription.get(timeout=30).value == 2


def test_a_pattern_that_is_refused_changes_nothing(open_bus: OpenBus) -> None:
    bus = open_bus()
    subscription = bus.subscribe("a")
    with pytest.raises(InvalidTopicError):
        subscription.add_pattern("b//c")
    assert subscription.patterns == ("a",)
    with pytest.raises(LocalError, match="served"):
        bus.serve("add", print).add_pattern("b")
    subscription.close()
    with pytest.raises(ClosedError):
        subscription.add_pattern("b")
