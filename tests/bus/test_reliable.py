"""Reliable topics over networks that lose datagrams."""

from __future__ import annotations

import logging
import threading
import time

import pytest

import jsonbus
from jsonbus.core.reliable import gaps, history
from jsonbus.core.reliable import pace as repair_pace
from jsonbus.errors import ClosedError
from jsonbus.transport import MemoryNetwork
from tests.bus.conftest import OpenBus
from tests.helpers import wait_until
from tests.sync.transports import (
    LosingTransport,
    RecordingTransport,
    a_share,
    all_with,
    first_tries,
)


def values(subscription: object, count: int) -> list[object]:
    return [subscription.get(timeout=30).value for _ in range(count)]  # type: ignore[attr-defined]


def none(datagram: bytes) -> bool:
    return False


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_everything_arrives_once_and_in_order_though_a_fifth_is_lost(
    network: MemoryNetwork, open_over: OpenBus, seed: int
) -> None:
    transports = [LosingTransport(network, none) for _ in range(3)]
    readers = [open_over(each) for each in transports[1:]]
    subscriptions = [reader.subscribe("t/*") for reader in readers]
    publisher = open_over(transports[0], reliable=True)
    assert wait_until(lambda: len(publisher.subscriptions().get("t/*", ())) == 2)
    for each, transport in enumerate(transports):
        transport.loses = a_share(0.2, 10 * seed + each)
    for number in range(200):
        assert publisher.publish(f"t/{number % 2}", number)
        if number % 2:
            assert publisher.flush()  # in many datagrams
    for reader, subscription in zip(readers, subscriptions, strict=True):
        got = values(subscription, 200)
        for rest in (0, 1):
            assert [each for each in got if each % 2 == rest] == list(range(rest, 200, 2))
        stats = reader.stats()
        assert (stats["messages_lost"], stats["messages_given_up"]) == (0, 0)
        assert stats["messages_waiting_for_repair"] == 0
    assert transports[0].lost > 0
    assert sum(reader.stats()["naks_sent"] for reader in readers) > 0
    assert publisher.stats()["messages_repaired"] > 0


@pytest.mark.slow
@pytest.mark.parametrize("of_the_bus", [False, True])
@pytest.mark.parametrize("of_the_call", [None, False, True])
def test_the_call_beats_the_bus_and_none_is_as_the_bus_was_opened(
    network: MemoryNetwork, open_over: OpenBus, of_the_bus: bool, of_the_call: bool | None
) -> None:
    transport = RecordingTransport(network)
    publisher = open_over(transport, reliable=of_the_bus)
    subscription = open_over(network.open()).subscribe("t")
    assert publisher.wait_for_subscribers("t", timeout=30)
    for number in range(3):
        publisher.publish("t", number, reliable=of_the_call)
    assert values(subscription, 3) == [0, 1, 2]
    is_reliable = of_the_bus if of_the_call is None else of_the_call
    expected = [1, 2, 3] if is_reliable else [None] * 3
    assert wait_until(lambda: transport.sequences("t") == expected)


@pytest.fixture
def haste(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is asked for in vain is given up soon, though its publisher is there."""
    monkeypatch.setattr(gaps, "HISTORY_AGE_S", 0.5)


@pytest.mark.slow
@pytest.mark.usefixtures("haste")
def test_what_is_asked_for_in_vain_is_told_and_what_follows_arrives(
    network: MemoryNetwork, open_over: OpenBus, caplog: pytest.LogCaptureFixture
) -> None:
    transport = LosingTransport(network, all_with("gone", "likewise"))
    publisher = open_over(transport, name="kitchen")
    reader = open_over(network.open())
    told: list[jsonbus.GapEvent] = []
    reader.on_gap(told.append)
    ended: list[jsonbus.GapEvent] = []
    reader.on_gap(ended.append).close()
    subscription = reader.subscribe("t")
    assert publisher.wait_for_subscribers("t", timeout=30)
    assert wait_until(lambda: "kitchen" in {info.name for info in reader.nodes()})
    before = time.time()
    with caplog.at_level(logging.WARNING, "jsonbus"):
        for value in ("first", "gone", "likewise", "last"):
            publisher.publish("t", value, reliable=True)
            assert publisher.flush()  # one to a datagram: only those two are lost
        assert values(subscription, 2) == ["first", "last"]
        assert wait_until(lambda: told)
    (gap,) = told
    assert (gap.node, gap.name, gap.topic) == (publisher.id, "kitchen", "t")
    assert (gap.first, gap.last, gap.count) == (2, 3, 2)
    assert before <= gap.at <= time.time()
    stats = reader.stats()
    assert (stats["messages_given_up"], stats["gap_events_dropped"]) == (2, 0)
    assert ended == []
    assert wait_until(lambda: "2 messages of node 'kitchen'" in caplog.text)
    assert "to the reliable topic 't' were given up" in caplog.text


@pytest.mark.slow
def test_a_publisher_waits_while_the_history_is_full(
    network: MemoryNetwork, open_over: OpenBus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history, "HISTORY_TOPIC_MESSAGES_MAX", 32)
    subscription = open_over(network.open()).subscribe("t")
    transport = LosingTransport(network, none)
    publisher = open_over(transport, reliable=True)
    assert publisher.wait_for_subscribers("t", timeout=30)
    transport.loses = first_tries(0.1, 1)
    for number in range(900):  # on a machine that stands still, there is room again without a wait
        publisher.publish("t", number)
        stats = publisher.stats()
        assert stats["messages_kept_for_repair"] <= 32
        if number > 100 and stats["reliable_waits"]:
            break
    assert stats["reliable_waits"] > 0
    assert values(subscription, number + 1) == list(range(number + 1))


@pytest.fixture
def lasting_history(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four messages fill the history of a topic, for ten seconds."""
    monkeypatch.setattr(history, "HISTORY_TOPIC_MESSAGES_MAX", 4)
    monkeypatch.setattr(history, "HISTORY_KEEP_MIN_S", 1000.0)
    monkeypatch.setattr(repair_pace, "HISTORY_KEEP_MIN_S", 1000.0)


@pytest.mark.slow
@pytest.mark.usefixtures("lasting_history")
def test_closing_ends_the_wait_of_a_publisher(network: MemoryNetwork, open_over: OpenBus) -> None:
    publisher, reader = open_over(network.open(), reliable=True), open_over(network.open())
    reader.subscribe("t", lambda message: None)
    assert publisher.wait_for_subscribers("t", timeout=30)
    for number in range(4):
        publisher.publish("t", number)
    failures: list[type[BaseException]] = []

    def publish() -> None:
        try:
            publisher.publish("t", 4)
        except ClosedError as error:
            failures.append(type(error))

    thread = threading.Thread(target=publish)
    thread.start()
    assert wait_until(lambda: publisher.stats()["reliable_waits"] > 1)
    # Only reliable messages to that topic wait.
    assert publisher.publish("t", "hurried", reliable=False)
    publisher.close()
    thread.join(60)
    assert failures == [ClosedError]


@pytest.mark.slow
def test_publishing_reliably_from_inside_a_handler(
    network: MemoryNetwork, open_over: OpenBus
) -> None:
    asking = LosingTransport(network, none)
    answering = LosingTransport(network, none)
    asker, answerer = open_over(asking, reliable=True), open_over(answering, reliable=True)
    replies = asker.subscribe("reply")
    answerer.subscribe("ask", lambda message: answerer.publish("reply", message.value))
    assert asker.wait_for_subscribers("ask", timeout=30)
    assert answerer.wait_for_subscribers("reply", timeout=30)
    asking.loses, answering.loses = a_share(0.2, 3), a_share(0.2, 4)
    for number in range(100):
        asker.publish("ask", number)
    assert values(replies, 100) == list(range(100))
