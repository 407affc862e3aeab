"""Keys for some topics, and still one bus to its user: one list, one close, the same workers."""

from __future__ import annotations

import logging
import threading
from pathlib import Path
from typing import Any

import pytest

import jsonbus
from jsonbus.errors import ClosedError, TransportError
from jsonbus.transport import MemoryNetwork
from tests.bus.compartments.test_traffic import COMMON, LOCKS, agree, publish_to
from tests.bus.conftest import OpenBus
from tests.helpers import wait_until
from tests.sealed.material import DOORS, WITH_DOORS, key, ring, write_ring


def test_each_node_is_there_once_with_all_its_patterns(open_key: OpenBus) -> None:
    one, other, outside = (
        open_key(keys, name=name)
        for keys, name in ((WITH_DOORS, "one"), (WITH_DOORS, "other"), (COMMON, "outside"))
    )
    agree(one, other, outside)
    other.subscribe(["doors/front", "hall"])
    outside.subscribe("hall")
    assert wait_until(lambda: len(one.subscriptions()) == 2)
    assert wait_until(lambda: len(one.subscriptions()["hall"]) == 2)
    assert one.subscriptions()["doors/front"] == [other.id]
    publish_to(other, one, "doors/front", 1)
    publish_to(other, one, "hall", 2)
    assert wait_until(lambda: other.stats()["messages_delivered"] == 2)
    nodes = {node.name: node for node in other.nodes()}
    assert set(nodes) == {"one", "other", "outside"}
    assert {node.node for node in nodes.values()} == {one.id, other.id, outside.id}
    assert nodes["other"].patterns == ("doors/front", "hall")
    assert nodes["one"].received == 2


def test_node_incarnation_and_sequence_name_one_message(open_key: OpenBus) -> None:
    keys = ring(key(), DOORS, LOCKS)
    publisher, reader = open_key(keys), open_key(keys)
    reading = reader.subscribe("**")
    for _ in range(2):
        for topic in ("hall", "doors/front", "locks/front"):
            publish_to(reader, publisher, topic, 1)
    got = [reading.get(timeout=30) for _ in range(6)]
    assert {message.node for message in got} == {publisher.id}
    assert {message.sequence for message in got} == {1, 2}
    assert len({(message.incarnation, message.sequence) for message in got}) == 6


def test_figures_are_added_up_but_those_of_the_machine(open_key: OpenBus) -> None:
    bus = open_key(ring(key(), DOORS, LOCKS))
    common, stats = bus._loop.stats(), bus.stats()
    assert set(stats) >= set(common)
    for name in ("nodes_known", "interfaces_up"):
        assert stats[name] == 1
    assert stats["receive_buffer_obtained_bytes"] == common["receive_buffer_obtained_bytes"]
    bus.subscribe(["doors/x", "locks/x", "x"])
    for topic in ("doors/x", "locks/x", "x"):
        assert bus.publish(topic, 1)
    assert bus.stats()["messages_local"] + bus.stats()["messages_held"] >= 3


def test_questions_about_a_topic_are_answered_by_who_carries_it(open_key: OpenBus) -> None:
    one, other = open_key(WITH_DOORS), open_key(WITH_DOORS, name="other")
    agree(one, other)
    other.subscribe("doors/front")
    assert one.wait_for_subscribers("doors/front", timeout=30)
    assert one.has_subscribers("doors/front") and not one.has_subscribers("hall")
    assert one.explain("doors/front").wanted_by == ("other",)
    assert one.explain("hall").verdict == "suppressed"
    assert one.state == "sure"
    assert one.flush(timeout=30)
    with pytest.raises(jsonbus.InvalidTopicError):
        one.publish("doors//front", 1)
    with pytest.raises(jsonbus.InvalidTopicError):
        one.subscribe(["doors/front", "doors//x"])


def test_handlers_of_all_compartments_share_the_workers(open_key: OpenBus) -> None:
    publisher = open_key(WITH_DOORS)
    reader = open_key(WITH_DOORS, workers=1)
    running: list[str] = []
    most, handled = [0], [0]
    entered, release = threading.Event(), threading.Event()

    def handle(message: jsonbus.Message) -> None:
        running.append(message.topic)
        most[0] = max(most[0], len(running))
        entered.set()
        if isinstance(reader, jsonbus.Bus):  # a task must not block its loop
            release.wait(30)
        running.remove(message.topic)
        handled[0] += 1

    reader.subscribe("doors/front", handle)
    reader.subscribe("hall", handle)
    publish_to(reader, publisher, "doors/front", 1)
    assert entered.wait(30)
    for number in range(20):
        publish_to(reader, publisher, "hall", number)
        publish_to(reader, publisher, "doors/front", number)
    assert wait_until(lambda: reader.stats()["messages_delivered"] == 41)
    release.set()
    assert wait_until(lambda: handled[0] == 41)
    assert most == [1]


def test_a_handler_may_ask_a_service_of_its_own_bus_in_a_compartment(open_key: OpenBus) -> None:
    asker, server = open_key(WITH_DOORS), open_key(WITH_DOORS)
    server.serve("doors/double", lambda request: 2 * request.value)
    assert wait_until(lambda: any("doors/double" in node.serves for node in asker.nodes()))
    assert [asker.request("doors/double", n, timeout=30) for n in range(20)] == list(
        range(0, 40, 2)
    )
    with pytest.raises(jsonbus.LocalError, match="serves 'doors/double' already"):
        server.serve("doors/double", print)


def test_a_full_mailbox_that_blocks_is_filled_on_from_the_compartment(open_key: OpenBus) -> None:
    publisher, reader = open_key(WITH_DOORS), open_key(WITH_DOORS)
    subscription = reader.subscribe("**", maxsize=4, overflow="block")
    for topic in ("doors/front", "hall"):
        assert publisher.wait_for_subscribers(topic, timeout=30)
    for number in range(20):
        for topic in ("doors/front", "hall"):
            publisher.publish(topic, number)
    got = [subscription.get(timeout=30) for _ in range(40)]
    for topic in ("doors/front", "hall"):
        assert [each.value for each in got if each.topic == topic] == list(range(20))


def test_drops_in_a_compartment_are_gaps_of_the_bus(open_key: OpenBus) -> None:
    publisher, reader = open_key(WITH_DOORS), open_key(WITH_DOORS)
    gaps: list[jsonbus.GapEvent] = []
    reader.on_gap(gaps.append)
    reader.subscribe("doors/front", maxsize=1)
    assert publisher.wait_for_subscribers("doors/front", timeout=30)
    for number in range(10):
        publisher.publish("doors/front", number, reliable=True)
    assert wait_until(lambda: sum(gap.count for gap in gaps) == 9)
    assert {gap.topic for gap in gaps} == {"doors/front"}
    assert reader.stats()["messages_dropped"] == 9


def test_passive_subscriptions_look_on_everywhere(open_key: OpenBus) -> None:
    publisher, reader, onlooker = open_key(WITH_DOORS), open_key(WITH_DOORS), open_key(WITH_DOORS)
    looking = onlooker.subscribe("**", passive=True)
    reader.subscribe("**")
    agree(publisher, reader, onlooker)
    publish_to(reader, publisher, "doors/front", 1)
    publish_to(reader, publisher, "hall", 2)
    assert sorted(looking.get(timeout=30).value for _ in range(2)) == [1, 2]
    assert onlooker.subscriptions()["**"] == [reader.id]


def test_who_comes_and_goes_is_told_once(
    open_key: OpenBus, caplog: pytest.LogCaptureFixture
) -> None:
    staying = open_key(WITH_DOORS)
    seen: list[tuple[str, str]] = []
    staying.on_node(lambda event: seen.append((event.kind, event.name)))
    with caplog.at_level(logging.INFO, "jsonbus.bus"):
        going = open_key(WITH_DOORS, name="going")
        agree(staying, going)
        going.subscribe("**")
        topics = ("hall", "doors/front")
        assert wait_until(lambda: all(map(staying.has_subscribers, topics)))
        going.close()
        assert wait_until(lambda: not any(map(staying.has_subscribers, topics)))
    assert wait_until(lambda: seen == [("joined", "going"), ("left", "going")])
    lines = [record.message for record in caplog.records if "'going'" in record.message]
    assert len(lines) == 2


def test_closing_ends_everything(open_key: OpenBus) -> None:
    bus, other = open_key(WITH_DOORS), open_key(WITH_DOORS)
    agree(bus, other)
    subscription = bus.subscribe("doors/**")
    service = bus.serve("doors/open", print)
    publish_to(bus, other, "doors/front", 1)
    assert wait_until(lambda: subscription.pending == 1)
    bus.close()
    assert bus.is_closed and bus.state == "closed"
    assert subscription.is_closed and service.is_closed
    assert bus.stats()["messages_unread"] == 1
    for use in (
        lambda: bus.publish("doors/front", 1),
        lambda: bus.publish("hall", 1),
        lambda: bus.subscribe("doors/front"),
        lambda: bus.request("doors/open"),
        lambda: bus.serve("doors/open", print),
    ):
        with pytest.raises(ClosedError):
            use()
    assert wait_until(lambda: len(other.nodes()) == 1)
    assert wait_until(lambda: not other.has_subscribers("doors/front"))


def test_what_was_published_reliably_is_there_when_the_bus_has_closed(open_key: OpenBus) -> None:
    reader, publisher = open_key(WITH_DOORS), open_key(WITH_DOORS)
    reading = reader.subscribe("**")
    for topic in ("doors/front", "hall"):
        assert publisher.wait_for_subscribers(topic, timeout=30)
    for number in range(30):
        for topic in ("doors/front", "hall"):
            publisher.publish(topic, number, reliable=True)
    publisher.close()
    assert len([reading.get(timeout=30) for _ in range(60)]) == 60


def test_if_a_compartment_cannot_be_opened_nothing_stays_open(
    open_over: OpenBus, network: MemoryNetwork, monkeypatch: pytest.MonkeyPatch
) -> None:
    transport = network.open()

    def refuse(*_: object) -> Any:
        raise TransportError("no room for another one")

    monkeypatch.setattr(transport, "open_another", refuse)
    threads = threading.active_count()
    with pytest.raises(TransportError, match="no room for another one"):
        open_over(transport, key_file=WITH_DOORS)
    assert wait_until(lambda: threading.active_count() == threads)
    with pytest.raises(TransportError, match="closed"):
        transport.send((b"x",))


def test_a_file_for_other_topics_is_told_of_once(
    open_over: OpenBus,
    network: MemoryNetwork,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    path = write_ring(tmp_path / "plant.key", WITH_DOORS)
    bus = open_over(network.open(), key_file=path)
    with caplog.at_level(logging.WARNING, "jsonbus.sealed"):
        write_ring(path, ring(key(), LOCKS))
        for loop in bus._loop.with_parts * 2:
            loop.transport.rejoin()
    assert caplog.text.count("start this program again") == 1
    other = open_over(network.open(), key_file=WITH_DOORS)
    reading = bus.subscribe("doors/front")
    publish_to(bus, other, "doors/front", "still heard")
    assert reading.get(timeout=30).value == "still heard"
