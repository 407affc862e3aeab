"""Reading a subscription: waiting, order, overflow, the end."""

from __future__ import annotations

import logging
import threading
import weakref
from dataclasses import dataclass

import pytest

import jsonbus
from jsonbus.errors import LocalError
from jsonbus.sync.subscription import Subscription
from jsonbus.transport import MemoryNetwork
from tests.helpers import wait_until
from tests.sync.conftest import OpenBus


def take_all(subscription: Subscription) -> list[object]:
    """What is pending now."""
    return [subscription.get(timeout=0).value for _ in range(subscription.pending)]


def test_block_keeps_everything_for_a_thread_that_publishes_before_it_reads(
    open_bus: OpenBus,
) -> None:
    bus = open_bus()
    subscription = bus.subscribe("x", maxsize=2, overflow="block")
    for number in range(10):
        bus.publish("x", number)
    assert (subscription.pending, subscription.dropped) == (10, 0)
    assert take_all(subscription) == list(range(10))
    # The same thread has read by now: it would wait for itself.
    for number in range(10):
        bus.publish("x", number)
    assert take_all(subscription) == list(range(10))


def test_block_makes_a_publisher_wait_for_another_thread_that_reads(open_bus: OpenBus) -> None:
    bus = open_bus()
    subscription = bus.subscribe("x", maxsize=4, overflow="block")
    may_read = threading.Semaphore(0)
    got: list[object] = []

    def read() -> None:
        for message in subscription:
            got.append(message.value)
            if not may_read.acquire(timeout=60):
                return

    published: list[int] = []

    def publish() -> None:
        for number in range(20):
            bus.publish("x", number)
            published.append(number)

    reader = threading.Thread(target=read)
    reader.start()
    bus.publish("x", "first")
    assert wait_until(lambda: got == ["first"])

    publisher = threading.Thread(target=publish)
    publisher.start()
    # Four fit; the fifth is there, but its publish waits.
    assert wait_until(lambda: subscription.pending == 5)
    assert published == [0, 1, 2, 3]
    may_read.release(100)
    assert wait_until(lambda: len(got) == 21)
    publisher.join(30)
    assert got == ["first", *range(20)]
    subscription.close()
    reader.join(30)


def test_closing_ends_a_publisher_that_waits(open_bus: OpenBus) -> None:
    bus = open_bus()
    subscription = bus.subscribe("x", maxsize=1, overflow="block")
    done = threading.Event()

    def read_one_and_stay() -> None:
        subscription.get()
        done.wait(60)

    reader = threading.Thread(target=read_one_and_stay)
    reader.start()
    bus.publish("x", 0)
    publishers = [threading.Thread(target=bus.publish, args=("x", n)) for n in range(3)]
    for publisher in publishers:
        publisher.start()
    assert wait_until(lambda: subscription.pending == 3)
    subscription.close()
    for publisher in publishers:
        publisher.join(30)
        assert not publisher.is_alive()
    assert bus.stats()["messages_unread"] == 3
    assert subscription.dropped == 0
    done.set()
    reader.join(30)


def test_a_subscription_with_a_handler_is_not_read(open_bus: OpenBus) -> None:
    subscription = open_bus().subscribe("x", print)
    with pytest.raises(LocalError, match="handler"):
        subscription.get(timeout=0)
    with pytest.raises(LocalError, match="handler"):
        next(subscription)


@dataclass
class Reading:
    temp: float


def test_a_handler_that_is_too_slow_with_error_is_warned_of(
    open_bus: OpenBus, caplog: pytest.LogCaptureFixture
) -> None:
    bus = open_bus()
    go_on, got = threading.Event(), []

    def handler(message: jsonbus.Message) -> None:
        got.append(message.value)
        assert go_on.wait(60)

    subscription = bus.subscribe("x", handler, maxsize=1, overflow="error")
    with caplog.at_level(logging.WARNING, "jsonbus.bus"):
        bus.publish("x", 0)
        assert wait_until(lambda: got == [0])
        for number in range(1, 4):
            bus.publish("x", number)
        go_on.set()
        assert wait_until(lambda: "lost 2 messages" in caplog.text)
    assert subscription.dropped == 2


def test_a_bus_lives_as_long_as_one_of_its_subscriptions(network: MemoryNetwork) -> None:
    def open_and_keep_the_subscription() -> tuple[Subscription, weakref.ref[jsonbus.Bus]]:
        bus = jsonbus.Bus.over(network.open())
        return bus.subscribe("x"), weakref.ref(bus)

    subscription, bus = open_and_keep_the_subscription()
    with jsonbus.Bus.over(network.open()) as publisher:
        assert publisher.wait_for_subscribers("x", timeout=30)
        publisher.publish("x", 1)
        assert subscription.get(timeout=30).value == 1
    kept = bus()
    assert kept is not None
    kept.close()


def test_taking_many_makes_room_for_a_publisher_that_waits(open_bus: OpenBus) -> None:
    bus = open_bus()
    subscription = bus.subscribe("x", maxsize=4, overflow="block")
    taken: list[object] = []

    def read() -> None:
        while len(taken) < 100:
            taken.extend(each.value for each in subscription.get_many(3, timeout=60))

    reader = threading.Thread(target=read)
    reader.start()
    for number in range(100):
        bus.publish("x", number)
    reader.join(60)
    assert taken == list(range(100))


def test_several_patterns_are_taken_or_refused_together(open_bus: OpenBus) -> None:
    bus = open_bus()
    for patterns in (["a", "b//c"], ["b", "jsonbus.x"]):
        with pytest.raises(jsonbus.errors.InvalidTopicError):
            bus.subscribe(patterns)
    with pytest.raises(jsonbus.errors.ConfigError):
        bus.subscribe([])
    assert not bus.subscriptions()
