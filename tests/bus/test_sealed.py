"""A bus with keys: everything works as on an open one, and who has no key takes no part."""

from __future__ import annotations

import contextlib
import functools
import logging
import socket
import struct
import time
from pathlib import Path
from typing import Any

import pytest

import jsonbus
from jsonbus.errors import ConfigError
from jsonbus.transport import MemoryNetwork
from tests.bus.conftest import OpenBus
from tests.helpers import find_free_port, wait_until
from tests.sealed.material import (
    OTHER_SECRET,
    key,
    ring,
    shows_secret,
    write_ring,
)


def test_a_value_travels_under_the_key(open_bus: OpenBus) -> None:
    publisher, reader = open_bus(key_file=ring()), open_bus(key_file=ring())
    reading = reader.subscribe("door")
    assert publisher.wait_for_subscribers("door", timeout=30)
    assert publisher.publish("door", "open")
    assert reading.get(timeout=30).value == "open"
    assert publisher.sealed == reader.sealed == "plant"


@pytest.mark.slow
def test_a_flood_large_values_repairs_requests_and_retained_values_work(open_bus: OpenBus) -> None:
    publisher, reader = open_bus(key_file=ring()), open_bus(key_file=ring())
    reading = reader.subscribe("flood", maxsize=5000)
    large = reader.subscribe("large")
    reader.serve("double", lambda request: 2 * request.value)
    for topic in ("flood", "large"):
        assert publisher.wait_for_subscribers(topic, timeout=30)
    for number in range(3000):
        publisher.publish("flood", number, reliable=True)
    assert [reading.get(timeout=30).value for _ in range(3000)] == list(range(3000))
    publisher.publish("large", "x" * 1_000_000)
    assert len(large.get(timeout=30).value) == 1_000_000
    assert publisher.request("double", 21, timeout=30) == 42
    publisher.publish("last", 5, retain=True)
    assert reader.subscribe("last").get(timeout=30).value == 5
    for bus in (publisher, reader):
        stats = bus.stats()
        assert [stats[each] for each in REFUSED] == [0] * len(REFUSED)
        assert stats["offload_refusals"] == stats["datagrams_rejected"] == 0


REFUSED = [f"datagrams_{cause}" for cause in ("open", "foreign", "forged", "stale", "unproven")]


@pytest.mark.slow
def test_who_has_no_key_or_another_one_hears_nothing_and_is_counted(open_bus: OpenBus) -> None:
    publisher, reader = open_bus(key_file=ring()), open_bus(key_file=ring())
    plain, foreign = open_bus(), open_bus(key_file=ring(key(secret=OTHER_SECRET)))
    reading = reader.subscribe("door")
    outside = [each.subscribe("**") for each in (plain, foreign)]
    assert publisher.wait_for_subscribers("door", timeout=30)
    for each in (plain, foreign):
        each.publish("door", "forged", retain=True)
    publisher.publish("door", "open")
    assert reading.get(timeout=30).value == "open"
    assert wait_until(lambda: reader.stats()["datagrams_open"] > 0)
    assert wait_until(lambda: reader.stats()["datagrams_foreign"] > 0)
    assert wait_until(lambda: foreign.stats()["datagrams_foreign"] > 0)
    assert wait_until(lambda: plain.stats()["rejected_sealed"] > 0)
    # Each outside hears what it published itself.
    assert [each.get(timeout=30).value for each in outside] == ["forged", "forged"]
    assert [each.pending for each in (*outside, reading)] == [0, 0, 0]
    assert {each.name for each in reader.nodes()} == {publisher.name, reader.name}
    assert len(plain.nodes()) == len(foreign.nodes()) == 1
    assert plain.sealed is None


def test_no_byte_of_topic_value_or_name_is_on_the_wire(open_over: OpenBus) -> None:
    network = MemoryNetwork()
    wire = network.open()
    reader = open_over(network.open(), name="my-reader", key_file=ring())
    publisher = open_over(network.open(), name="my-publisher", key_file=ring())
    reading = reader.subscribe("front/door")
    assert publisher.wait_for_subscribers("front/door", timeout=30)
    publisher.publish("front/door", "wide open")
    assert reading.get(timeout=30).value == "wide open"
    captured = []
    (sock,) = wire.sockets()
    while (received := wire.receive(sock)) is not None:
        captured += received[0]
    wire.close()
    assert captured and all(data[:2] == b"\xb5\x01" for data in captured)
    everything = b"".join(captured)
    for word in (b"front", b"door", b"wide", b"my-reader", b"publisher", b"topic", b"payload"):
        assert word not in everything


@pytest.mark.slow
def test_a_recording_played_back_does_nothing(open_any: OpenBus) -> None:
    port = find_free_port()
    with join(port) as capture:
        settings = {"port": port, "interface": "lo", "key_file": ring()}
        publisher, reader = open_any(**settings), open_any(**settings)
        reading = reader.subscribe("door")
        assert publisher.wait_for_subscribers("door", timeout=30)
        publisher.publish("door", "open")
        assert reading.get(timeout=30).value == "open"
        sent = sum(bus.stats()["datagrams_sent"] for bus in (publisher, reader))
        recorded = [capture.recv(65_536) for _ in range(sent)]
        assert reader.stats()["datagrams_replayed"] == 0
        for data in (*recorded, *recorded):
            capture.sendto(data, (GROUP, port))
        # What it heard, the message at least, it refuses twice.
        assert wait_until(lambda: reader.stats()["datagrams_replayed"] >= 2)
        assert reading.pending == 0


GROUP = "239.255.24.16"


def join(port: int) -> socket.socket:
    """A plain socket that hears the group on loopback."""
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.bind((GROUP, port))
    membership = struct.pack("4s4s", socket.inet_aton(GROUP), socket.inet_aton("127.0.0.1"))
    sock.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, membership)
    sock.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton("127.0.0.1"))
    sock.settimeout(30)
    return sock


@pytest.mark.slow
def test_keys_change_while_two_nodes_talk_and_no_message_is_lost(
    open_bus: OpenBus, tmp_path: Path
) -> None:
    old, new = key("old"), key("new", OTHER_SECRET, later(6))
    files = [write_ring(tmp_path / f"{each}.key", ring(old)) for each in range(2)]
    publisher, reader = open_bus(key_file=files[0]), open_bus(key_file=str(files[1]))
    reading = reader.subscribe("count", maxsize=100_000)
    assert publisher.wait_for_subscribers("count", timeout=30)
    sent = 0

    def publish_until(condition: Any) -> None:
        nonlocal sent

        def step() -> bool:
            nonlocal sent
            publisher.publish("count", sent)
            sent += 1
            return bool(condition())

        assert wait_until(step)

    for file in files:
        write_ring(file, ring(old, new))
    for bus in (publisher, reader):
        publish_until(lambda bus=bus: used_key(bus) == "new")
    for file in files:
        write_ring(file, ring(new))
    publish_until(lambda: len(ring_of(publisher).keys) == 1 == len(ring_of(reader).keys))
    for _ in range(20):
        publisher.publish("count", sent)
        sent += 1
    assert [reading.get(timeout=30).value for _ in range(sent)] == list(range(sent))
    assert reader.stats()["messages_lost"] == 0
    assert [reader.stats()[each] for each in REFUSED] == [0] * len(REFUSED)


def later(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + seconds))


def used_key(bus: Any) -> str:
    seal = bus._loop.transport.describe().seal
    assert seal is not None
    return str(seal.key)


def ring_of(bus: Any) -> Any:
    return bus._loop.transport._keys.ring


def test_no_secret_is_in_anything_that_a_bus_tells_of_itself(
    open_over: OpenBus, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    keys = ring(key(), key("k2", OTHER_SECRET))
    path = write_ring(tmp_path / "plant.key", keys)
    network = MemoryNetwork()
    with caplog.at_level(logging.DEBUG, "jsonbus"):
        given = open_over(network.open(), key_file=keys)
        read = open_over(network.open(), key_file=path)
        assert given.wait_until_sure(timeout=30) and read.wait_until_sure(timeout=30)
    for bus in (given, read):
        told = (bus, bus.config, bus.stats(), bus.nodes(), bus.explain("door"), vars(bus))
        assert not shows_secret(f"{told} {told!r}")
        assert not shows_secret(f"{bus._loop.transport!r} {bus._loop.transport.describe()!r}")
    assert not shows_secret(caplog.text)


@pytest.mark.parametrize("wrong", [5, b"secret", ["a"], True, {"jsonbus-key": 1}, ' {"secret": 1}'])
def test_what_is_no_key_file_opens_no_bus(wrong: Any) -> None:
    with contextlib.closing(MemoryNetwork().open()) as transport:
        for open_one in (jsonbus.Bus, functools.partial(jsonbus.Bus.over, transport)):
            with pytest.raises(ConfigError) as caught:
                open_one(key_file=wrong)
            assert "secret" not in str(caught.value)


def test_the_environment_names_the_key_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, open_over: OpenBus
) -> None:
    path = write_ring(tmp_path / "plant.key", ring())
    monkeypatch.setenv("JSONBUS_KEY_FILE", str(path))
    assert open_over(MemoryNetwork().open()).sealed == "plant"
    path.chmod(0o644)
    with pytest.raises(ConfigError, match="chmod 600"):
        jsonbus.Bus()


def test_a_datagram_is_as_large_as_the_settings_say_with_its_seal(open_over: OpenBus) -> None:
    network = MemoryNetwork()
    wire = network.open()
    reader = open_over(network.open(), key_file=ring(), datagram_bytes_max=1300)
    publisher = open_over(network.open(), key_file=ring(), datagram_bytes_max=1300)
    reading = reader.subscribe("large")
    assert publisher.wait_for_subscribers("large", timeout=30)
    publisher.publish("large", "x" * 10_000)
    assert reading.get(timeout=30).value == "x" * 10_000
    (sock,) = wire.sockets()
    sizes = set()
    while (received := wire.receive(sock)) is not None:
        sizes |= {len(data) for data in received[0]}
    wire.close()
    assert 1200 < max(sizes) <= 1300
