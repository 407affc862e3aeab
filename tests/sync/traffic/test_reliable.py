"""Reliable topics over networks that lose, with threads."""

from __future__ import annotations

import dataclasses

import pytest

import jsonbus
from jsonbus.core.reliable import gaps
from jsonbus.errors import ClosedError, ConfigError
from jsonbus.transport import MemoryNetwork
from tests.helpers import wait_until
from tests.sync.conftest import OpenBus
from tests.sync.transports import (
    LosingTransport,
    a_share,
    all_with,
)


def values(subscription: object, count: int) -> list[object]:
    return [subscription.get(timeout=30).value for _ in range(count)]  # type: ignore[attr-defined]


def none(datagram: bytes) -> bool:
    return False


@pytest.mark.slow
def test_large_values_are_repaired_as_well(network: MemoryNetwork, open_over: OpenBus) -> None:
    subscription = open_over(network.open()).subscribe("t")
    transport = LosingTransport(network, none)
    publisher = open_over(transport, reliable=True)
    assert publisher.wait_for_subscribers("t", timeout=30)
    transport.loses = a_share(0.1, 7)
    sizes = [10, 20_000, 10, 40_000, 10]
    for size in sizes:
        publisher.publish("t", "x" * size)
    assert [len(str(value)) for value in values(subscription, 5)] == sizes


@pytest.mark.slow
def test_reliable_messages_and_others_of_one_topic_get_along(
    network: MemoryNetwork, open_over: OpenBus
) -> None:
    publisher, reader = open_over(network.open()), open_over(network.open())
    subscription = reader.subscribe("t")
    assert publisher.wait_for_subscribers("t", timeout=30)
    for number in range(100):
        publisher.publish("t", number, reliable=number % 3 == 0)
    assert values(subscription, 100) == list(range(100))


@pytest.fixture
def haste(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is asked for in vain is given up soon, though its publisher is there."""
    monkeypatch.setattr(gaps, "HISTORY_AGE_S", 0.5)


@pytest.mark.slow
@pytest.mark.usefixtures("haste")
def test_a_closed_watch_of_gaps_is_told_no_more(network: MemoryNetwork, open_over: OpenBus) -> None:
    transport = LosingTransport(network, all_with("gone"))
    publisher, reader = open_over(transport, reliable=True), open_over(network.open())
    ended: list[jsonbus.GapEvent] = []
    got: list[jsonbus.GapEvent] = []
    watch = reader.on_gap(ended.append)

    @reader.on_gap
    def note(event: jsonbus.GapEvent) -> None:
        got.append(event)

    watch.close()
    assert repr(watch) == "<Watch of gaps, closed>"
    reader.subscribe("t", lambda message: None)
    assert publisher.wait_for_subscribers("t", timeout=30)
    for value in ("first", "gone", "last"):
        publisher.publish("t", value)
        assert publisher.flush()
    assert wait_until(lambda: [event.first for event in got] == [2])
    assert ended == []
    assert reader.stats()["gap_events_dropped"] == 0


def test_only_a_plain_function_is_taken_and_only_by_an_open_bus(
    network: MemoryNetwork, open_over: OpenBus
) -> None:
    bus = open_over(network.open())

    async def handler(event: jsonbus.GapEvent) -> None: ...

    with pytest.raises(ConfigError):
        bus.on_gap(handler)
    bus.close()
    with pytest.raises(ClosedError):
        bus.on_gap(print)


def test_events_are_frozen() -> None:
    event = jsonbus.GapEvent("id", "a", "t", 3, 5, 0.0)
    assert event.count == 3
    with pytest.raises(dataclasses.FrozenInstanceError):
        event.first = 4  # type: ignore[misc]
