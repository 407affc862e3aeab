"""Topics with a key of their own: only who has it can read or publish them."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import jsonbus
from jsonbus.errors import ConfigError, RequestTimeoutError
from jsonbus.sealed.keys import KeySource
from jsonbus.sealed.transport import SealedTransport
from jsonbus.transport import MemoryNetwork
from tests.bus.conftest import OpenBus
from tests.helpers import wait_until
from tests.sealed.material import DOORS, WITH_DOORS, key, ring, write_ring

THIRD_SECRET = bytes(range(200, 232))
LOCKS = key("l1", THIRD_SECRET, topics=["locks/**"])
COMMON = ring()

REFUSED = ("datagrams_forged", "datagrams_stale", "datagrams_unproven", "messages_lost")


@contextlib.contextmanager
def overhearing(network: MemoryNetwork, keys: object = None) -> Iterator[list[bytes]]:
    """What travels meanwhile; opened with these keys, if some are given."""
    transport: Any = network.open()
    if keys is not None:
        transport = SealedTransport(transport, KeySource(keys))  # type: ignore[arg-type]
    heard: list[bytes] = []
    try:
        yield heard
        (sock,) = transport.sockets()
        while (received := transport.receive(sock)) is not None:
            heard += received[0]
    finally:
        transport.close()


def agree(*buses: Any) -> None:
    """Wait until each knows as many nodes as there are buses, and is sure."""
    for bus in buses:
        assert bus.wait_until_sure(timeout=30)
        assert wait_until(lambda bus=bus: len(bus.nodes()) == len(buses))


def publish_to(reader: Any, publisher: Any, topic: str, value: Any, **flags: Any) -> None:
    """Publish once a reader that subscribes to it is known."""
    assert publisher.wait_for_subscribers(topic, timeout=30)
    assert publisher.publish(topic, value, **flags)


@pytest.mark.parametrize("reliable", [False, True])
def test_who_has_the_key_reads_and_who_has_not_hears_nothing_and_misses_nothing(
    open_bus: OpenBus, reliable: bool
) -> None:
    publisher, reader = open_bus(key_file=WITH_DOORS), open_bus(key_file=WITH_DOORS)
    outside = open_bus(key_file=COMMON)
    agree(publisher, reader, outside)
    reading, listening = reader.subscribe("doors/front"), outside.subscribe("**")
    assert publisher.wait_for_subscribers("hall", timeout=30)
    assert publisher.wait_for_subscribers("doors/front", timeout=30)
    for number in range(500):
        publisher.publish("doors/front", number, reliable=reliable)
        publisher.publish("hall", number, reliable=reliable)
    assert [reading.get(timeout=30).value for _ in range(500)] == list(range(500))
    heard = [listening.get(timeout=30) for _ in range(500)]
    assert {message.topic for message in heard} == {"hall"}
    assert {message.node for message in heard} == {publisher.id}
    for bus in (publisher, reader, outside):
        stats = bus.stats()
        assert [stats[each] for each in REFUSED] == [0] * len(REFUSED)
        assert [node.lost for node in bus.nodes()] == [0, 0, 0]
        assert stats["messages_misplaced"] == 0
    assert reader.stats()["datagrams_foreign"] == 0
    assert outside.stats()["datagrams_foreign"] > 0
    assert listening.pending == 0


def test_large_retained_and_requested_values_travel_within(
    open_key: OpenBus, network: MemoryNetwork
) -> None:
    publisher, reader, outside = open_key(WITH_DOORS), open_key(WITH_DOORS), open_key(COMMON)
    agree(publisher, reader, outside)
    listening = outside.subscribe("**")
    with overhearing(network, COMMON) as heard:
        large = reader.subscribe("doors/plan")
        publish_to(reader, publisher, "doors/plan", "x" * 20_000)
        assert large.get(timeout=30).value == "x" * 20_000
        publisher.publish("doors/last", "shut", retain=True)
        message = reader.subscribe("doors/*").get(timeout=30)
        assert (message.topic, message.value, message.retained) == ("doors/last", "shut", True)
        reader.serve("doors/count", lambda request: request.value + 1)
        assert wait_until(lambda: serves(publisher, "doors/count"))
        assert publisher.request("doors/count", 41, timeout=30) == 42
        with pytest.raises((jsonbus.NobodyServesError, RequestTimeoutError)):
            outside.request("doors/count", 41, timeout=1)
    assert reader.stats()["requests_served"] == 1
    # Whoever asks without the key tells what, but hears nothing.
    told = [data for data in heard if b"doors" in data]
    assert heard and all(outside.id.encode() in data for data in told)
    assert listening.pending == 0


def serves(bus: Any, topic: str) -> bool:
    return any(topic in node.serves for node in bus.nodes())


def test_the_common_bus_does_not_learn_what_is_subscribed_to(
    open_key: OpenBus, network: MemoryNetwork
) -> None:
    with overhearing(network, COMMON) as common, overhearing(network) as sealed:
        reader, publisher, outside = open_key(WITH_DOORS), open_key(WITH_DOORS), open_key(COMMON)
        subscription = reader.subscribe(["doors/front", "doors/*/lock", "hall"])
        subscription.add_pattern("doors/back")
        reader.serve("doors/open", lambda request: None)
        publish_to(reader, publisher, "doors/back", "open")
        agree(reader, publisher, outside)
        assert wait_until(lambda: list(outside.subscriptions()) == ["hall"])
        within = {"doors/back", "doors/front", "doors/*/lock", "hall"}
        assert wait_until(lambda: set(publisher.subscriptions()) == within)
        for bus in (reader, publisher, outside):
            bus.close()
    assert any(b"hall" in data for data in common)
    assert not any(b"doors" in data for data in (*common, *sealed))


@pytest.mark.parametrize("flags", [{}, {"reliable": True}, {"retain": True}])
def test_who_has_the_common_key_alone_cannot_publish_into_it(
    open_key: OpenBus, flags: dict[str, bool]
) -> None:
    reader, outside = open_key(WITH_DOORS), open_key(COMMON)
    reading = reader.subscribe(["**", "doors/**"])
    publish_to(reader, outside, "doors/front", "forged", **flags)
    publish_to(reader, outside, "hall", "genuine", **flags)
    assert reading.get(timeout=30).value == "genuine"
    assert wait_until(lambda: reader.stats()["messages_misplaced"] == 1)
    assert reading.pending == 0
    assert reader.stats()["messages_delivered"] == 1


def test_the_key_of_another_compartment_is_of_no_use(open_key: OpenBus) -> None:
    reader = open_key(ring(key(), DOORS))
    other = open_key(ring(key(), LOCKS))
    all_three = open_key(ring(key(), DOORS, LOCKS))
    reading, elsewhere, everything = (bus.subscribe("**") for bus in (reader, other, all_three))
    agree(reader, other, all_three)
    publish_to(reader, all_three, "doors/front", "open")
    assert reading.get(timeout=30).value == "open"
    publish_to(other, all_three, "locks/front", "shut")
    assert elsewhere.get(timeout=30).value == "shut"
    assert [everything.get(timeout=30).value for _ in range(2)] == ["open", "shut"]
    publish_to(reader, other, "doors/front", "forged")
    assert wait_until(lambda: reader.stats()["messages_misplaced"] == 1)
    assert wait_until(lambda: all_three.stats()["messages_misplaced"] == 1)
    assert elsewhere.get(timeout=30).value == "forged"  # it is common to who knows no better
    assert [each.pending for each in (reading, elsewhere, everything)] == [0, 0, 0]


def test_subscribers_to_everything_get_all_topics_once_and_in_order(open_bus: OpenBus) -> None:
    publisher, reader = open_bus(key_file=WITH_DOORS), open_bus(key_file=WITH_DOORS)
    everything = reader.subscribe(["**", "doors/*", "*/front"], maxsize=4_000)
    for topic in ("doors/front", "hall/front"):
        assert publisher.wait_for_subscribers(topic, timeout=30)
    for number in range(1_000):
        publisher.publish("doors/front", number, reliable=True)
        publisher.publish("hall/front", number, reliable=True)
    got = [everything.get(timeout=30) for _ in range(2_000)]
    for topic in ("doors/front", "hall/front"):
        assert [each.value for each in got if each.topic == topic] == list(range(1_000))
    assert everything.pending == 0


def test_patterns_that_come_later_and_go_again_reach_the_compartment(open_key: OpenBus) -> None:
    publisher, reader = open_key(WITH_DOORS), open_key(WITH_DOORS)
    agree(publisher, reader)
    subscription = reader.subscribe("hall")
    assert subscription.add_pattern("doors/*") and not subscription.add_pattern("doors/*")
    publish_to(reader, publisher, "doors/front", 1)
    assert subscription.get(timeout=30).value == 1
    assert subscription.remove_pattern("doors/*") and not subscription.remove_pattern("doors/*")
    assert wait_until(lambda: not publisher.has_subscribers("doors/front"))
    assert publisher.publish("doors/front", 2) is False
    with reader.subscribe("doors/**"):
        assert publisher.wait_for_subscribers("doors/back", timeout=30)
    assert wait_until(lambda: not publisher.has_subscribers("doors/back"))
    with pytest.raises(jsonbus.InvalidTopicError):
        subscription.add_pattern("doors//x")
    assert subscription.patterns == ("hall",)


@pytest.mark.slow
def test_the_key_of_a_compartment_changes_without_a_message_lost(
    open_bus: OpenBus, tmp_path: Path
) -> None:
    topics = ["doors/**"]
    start = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 6))
    new = key("d2", THIRD_SECRET, start, topics=topics)
    files = [write_ring(tmp_path / f"{each}.key", WITH_DOORS) for each in range(2)]
    publisher, reader = (open_bus(key_file=file) for file in files)
    reading = reader.subscribe("doors/front", maxsize=100_000)
    assert publisher.wait_for_subscribers("doors/front", timeout=30)
    for file in files:
        write_ring(file, ring(key(), DOORS, new))
    sent = 0
    for bus in (publisher, reader):
        while used_key(bus) != "d2":
            publisher.publish("doors/front", sent)
            sent += 1
            time.sleep(0.01)
    for file in files:
        write_ring(file, ring(key(), new))
    assert [reading.get(timeout=30).value for _ in range(sent)] == list(range(sent))
    assert [reader.stats()[each] for each in REFUSED] == [0] * len(REFUSED)
    assert used_key(publisher, part=0) == "k1"


def used_key(bus: Any, part: int = 1) -> str:
    seal = bus._loop.with_parts[part].transport.describe().seal
    assert seal is not None
    return str(seal.key)


def test_a_file_without_a_common_key_opens_no_bus(
    network: MemoryNetwork, open_over: OpenBus
) -> None:
    with contextlib.closing(network.open()) as transport:
        with pytest.raises(ConfigError, match="a node needs one for all others, too"):
            open_over(transport, key_file=ring(DOORS))
