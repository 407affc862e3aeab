"""NaN and the infinities: refused wherever a value is encoded, unless null is asked for."""

from __future__ import annotations

import math
from typing import Any

import pytest

import jsonbus
from tests.bus.conftest import OpenBus
from tests.helpers import wait_until

VALUE = {"readings": [{"temp": 21.5}, {"temp": math.nan, "error": None}]}
REFUSED = r"^value\.readings\[1\]\.temp is nan, and JSON has no such number"
AS_NULL = {"readings": [{"temp": 21.5}, {"temp": None, "error": None}]}


def publish_to_a_known_topic(bus: Any, other: Any, value: object) -> None:
    """By the short way of publish, which a flood takes."""
    other.subscribe("a")
    assert bus.wait_for_subscribers("a", timeout=60)
    for number in range(100):
        bus.publish("a", number)
    bus.publish("a", value)


def publish_to_oneself(bus: Any, other: Any, value: object) -> None:
    bus.subscribe("a")
    bus.publish("a", value)


def publish_reliably(bus: Any, other: Any, value: object) -> None:
    bus.subscribe("a")
    bus.publish("a", value, reliable=True)


def retain(bus: Any, other: Any, value: object) -> None:
    bus.publish("a", value, retain=True)


def request(bus: Any, other: Any, value: object) -> None:
    bus.serve("a", lambda request: None)
    bus.request("a", value, timeout=60)


def send_on_a_channel(bus: Any, other: Any, value: object) -> None:
    other.bind("port")
    bus.connect(other.id, "port", timeout=60, retry=True).send(value)


WAYS = [
    publish_to_a_known_topic,
    publish_to_oneself,
    publish_reliably,
    retain,
    request,
    send_on_a_channel,
]


@pytest.mark.parametrize("way", WAYS)
def test_nan_is_refused_with_its_path(open_bus: OpenBus, way: Any) -> None:
    with pytest.raises(jsonbus.PayloadError, match=REFUSED):
        way(open_bus(), open_bus(), VALUE)


@pytest.mark.parametrize("way", WAYS)
def test_nan_is_null_for_a_bus_that_asks_for_it(open_bus: OpenBus, way: Any) -> None:
    way(open_bus(nan_as_null=True), open_bus(), VALUE)


def test_what_arrives_is_null(open_bus: OpenBus) -> None:
    bus = open_bus(nan_as_null=True)
    subscription = bus.subscribe("a")
    bus.publish("a", VALUE)
    assert subscription.get(timeout=60).value == AS_NULL


def test_the_reply_of_a_service_is_refused_at_both_ends(open_bus: OpenBus) -> None:
    bus, lenient = open_bus(), open_bus(nan_as_null=True)
    bus.serve("strict", lambda request: VALUE)
    lenient.serve("lenient", lambda request: VALUE)
    with pytest.raises(jsonbus.RequestFailedError, match=r"value\.readings\[1\]\.temp is nan"):
        bus.request("strict", timeout=60)
    assert lenient.request("lenient", timeout=60) == AS_NULL


def test_a_retained_value_ends_with_null_however_it_was_written(open_bus: OpenBus) -> None:
    bus = open_bus(nan_as_null=True)
    bus.publish("a", 1.5, retain=True)
    bus.publish("a", math.nan, retain=True)
    bus.publish("b", 2.5, retain=True)
    subscription = bus.subscribe(["a", "b"])
    assert wait_until(lambda: subscription.pending)
    assert [each.topic for each in subscription.get_many(9)] == ["b"]
