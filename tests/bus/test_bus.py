"""What an application sees of a bus."""

from __future__ import annotations

import socket
import threading
from dataclasses import dataclass

import pytest

import jsonbus
from jsonbus.errors import ConfigError, InvalidTopicError, LocalError, PayloadError
from tests.bus.conftest import OpenBus
from tests.helpers import wait_until


def test_a_handler_gets_what_another_bus_publishes(open_bus: OpenBus) -> None:
    kitchen, hall = open_bus(name="kitchen"), open_bus(name="hall")
    got: list[jsonbus.Message] = []
    hall.subscribe("sensors/**", handler=got.append)
    assert kitchen.wait_for_subscribers("sensors/kitchen", timeout=30)
    assert wait_until(lambda: "kitchen" in {node.name for node in hall.nodes()})

    assert kitchen.publish("sensors/kitchen", {"temp": 21.5})

    assert wait_until(lambda: got)
    message = got[0]
    assert (message.topic, message.value) == ("sensors/kitchen", {"temp": 21.5})
    assert (message.node, message.name) == (kitchen.id, "kitchen")
    assert message.sequence == 1
    assert message.received_at == pytest.approx(message.sent_at, abs=30)


def test_iterating_gives_the_messages_in_order(open_bus: OpenBus) -> None:
    publisher, reader = open_bus(), open_bus()
    subscription = reader.subscribe("count")
    assert publisher.wait_for_subscribers("count", timeout=30)

    for number in range(100):
        publisher.publish("count", number)

    got = zip(range(100), subscription, strict=False)
    assert [message.value for _, message in got] == list(range(100))


@pytest.mark.slow
def test_what_is_published_before_anybody_is_known_is_held_and_arrives(open_bus: OpenBus) -> None:
    reader = open_bus()
    subscription = reader.subscribe("early")
    assert reader.wait_until_sure(timeout=30)

    def publish_early() -> bool:
        publisher = open_bus()
        assert publisher.publish("early", "bird")
        assert publisher.flush(timeout=30)
        # A reader that was stalled for half a second counts as absent: then once more.
        return wait_until(lambda: subscription.pending, timeout_s=1)

    assert wait_until(publish_early)
    assert subscription.get(timeout=0).value == "bird"


@pytest.mark.slow
def test_publishing_what_nobody_wants_sends_nothing(open_bus: OpenBus) -> None:
    bus = open_bus()
    assert wait_until(lambda: not bus.publish("nobody/wants", 1))
    assert not bus.has_subscribers("nobody/wants")
    assert bus.stats()["messages_suppressed"] >= 1
    assert bus.stats()["messages_sent"] == 0


def test_a_bus_hears_itself(open_bus: OpenBus) -> None:
    bus = open_bus()
    subscription = bus.subscribe("here")
    assert bus.publish("here", [1, 2])
    message = subscription.get(timeout=30)
    assert (message.value, message.node) == ([1, 2], bus.id)


def test_values_become_instances_of_the_type_asked_for(open_bus: OpenBus) -> None:
    @dataclass
    class Reading:
        temp: float

    bus = open_bus()
    subscription = bus.subscribe("sensors", as_type=Reading)
    plain = bus.subscribe("sensors")
    bus.publish("sensors", Reading(20.5))
    assert subscription.get(timeout=30).value == Reading(20.5)
    assert plain.get(timeout=30).value == {"temp": 20.5}


def test_unsubscribing_is_known_to_the_others(open_bus: OpenBus) -> None:
    publisher, reader = open_bus(), open_bus()
    subscription = reader.subscribe("news")
    assert publisher.wait_for_subscribers("news", timeout=30)
    subscription.close()
    assert wait_until(lambda: not publisher.has_subscribers("news"))


def test_waiting_for_subscribers_ends_with_the_first_or_with_the_time(open_bus: OpenBus) -> None:
    bus = open_bus()
    assert not bus.wait_for_subscribers("late", timeout=0)
    timer = threading.Timer(0.05, lambda: bus.subscribe("late"))
    timer.start()
    assert bus.wait_for_subscribers("late", timeout=30)
    timer.join()


def test_the_bus_tells_who_is_there_and_what_they_want(open_bus: OpenBus) -> None:
    kitchen, hall = open_bus(name="kitchen"), open_bus(name="hall")
    hall.subscribe("sensors/*")
    assert wait_until(lambda: {node.name for node in kitchen.nodes()} == {"kitchen", "hall"})
    assert wait_until(lambda: kitchen.subscriptions().get("sensors/*") == [hall.id])
    explanation = kitchen.explain("sensors/door")
    assert explanation.verdict == "sent"
    assert explanation.wanted_by == ("hall",)


def test_a_ping_finds_the_others(open_bus: OpenBus) -> None:
    asking, answering = open_bus(), open_bus(name="answering")
    pongs: list[str] = []

    def ping_again() -> bool:
        pongs.extend(pong.name for pong in asking.ping(timeout=0.2))
        return "answering" in pongs

    assert wait_until(ping_again)
    assert answering.id != asking.id


def test_figures_are_flat_numbers_of_node_transport_and_mailboxes(open_bus: OpenBus) -> None:
    figures = open_bus(receive_buffer_bytes=65_536).stats()
    assert all(type(figure) is int for figure in figures.values())
    assert figures["receive_buffer_asked_bytes"] == 65_536
    assert {
        "kernel_drops",
        "send_failures",
        "interfaces_up",
        "datagrams_unsent",
        "messages_dropped",
        "messages_unread",
        "messages_published",
    } <= figures.keys()


@pytest.mark.slow
def test_flushing_waits_for_what_is_held(open_bus: OpenBus) -> None:
    publisher = open_bus()
    publisher.publish("early", 1)
    assert publisher.flush(timeout=30)
    assert publisher.stats()["messages_waiting_to_be_sure"] == 0


@pytest.mark.parametrize("topic", ["", "a//b", "a/*", "jsonbus.x", None, ["list"]])
def test_a_wrong_topic_is_refused_and_the_bus_goes_on(open_bus: OpenBus, topic: str) -> None:
    bus = open_bus()
    subscription = bus.subscribe("**")
    with pytest.raises(InvalidTopicError):
        bus.publish(topic, 1)
    bus.publish("right", 2)
    assert subscription.get(timeout=30).value == 2


def test_a_value_that_is_not_json_is_refused_and_the_bus_goes_on(open_bus: OpenBus) -> None:
    bus = open_bus()
    subscription = bus.subscribe("x")
    with pytest.raises(PayloadError):
        bus.publish("x", object())
    bus.publish("x", 2)
    assert subscription.get(timeout=30).value == 2


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"maxsize": 0}, "maxsize"),
        ({"overflow": "explode"}, "overflow"),
        ({"handler": 5}, "handler"),
        ({"as_type": object}, "object"),
    ],
)
def test_wrong_arguments_of_a_subscription_are_refused(
    open_bus: OpenBus, arguments: dict[str, object], reason: str
) -> None:
    bus = open_bus()
    with pytest.raises(ConfigError, match=reason):
        bus.subscribe("x", **arguments)  # type: ignore[arg-type]
    assert not bus.has_subscribers("x")


@pytest.mark.parametrize("timeout", [-1, float("nan"), float("inf"), "1", None, True])
def test_a_wrong_time_to_wait_is_refused(open_bus: OpenBus, timeout: float) -> None:
    bus = open_bus()
    for wait in (bus.flush, bus.wait_until_sure, bus.ping, bus.close):
        with pytest.raises(ConfigError, match="seconds"):
            wait(timeout)


def test_a_bus_cannot_be_entered_twice(open_bus: OpenBus) -> None:
    with open_bus() as bus:
        with pytest.raises(LocalError, match="already"):
            bus.__enter__()


def test_messages_of_a_plain_sender_arrive(open_bus: OpenBus) -> None:
    bus = open_bus()
    subscription = bus.subscribe("hello")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sensor:
        sensor.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton("127.0.0.1"))
        sensor.sendto(b'{"topic":"hello","payload":1}', (bus.config.group, bus.config.port))
    message = subscription.get(timeout=30)
    assert (message.value, message.sequence) == (1, None)
    assert message.node.startswith("plain:127.0.0.1")
