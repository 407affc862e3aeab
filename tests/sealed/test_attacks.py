"""What somebody on the network can do to buses with keys, without the key: nothing."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from jsonbus.sealed import opener
from jsonbus.sealed.datagrams import HEAD_END, SALT_END, SEAL_BYTES
from jsonbus.transport import MemoryNetwork
from jsonbus.transport.memory import BUFFER_DATAGRAMS, MemoryTransport
from tests.bus.conftest import OpenBus
from tests.helpers import wait_until
from tests.sealed.material import ring

REFUSED = [f"datagrams_{c}" for c in "open foreign forged replayed stale unproven".split()]


class Attacker:
    """A member of the group without a key."""

    def __init__(self, network: MemoryNetwork) -> None:
        self._transport: MemoryTransport = network.open()

    def capture(self) -> list[bytes]:
        """Everything that was sent since the last time."""
        (sock,) = self._transport.sockets()
        captured: list[bytes] = []
        while (received := self._transport.receive(sock)) is not None:
            captured += received[0]
        return captured

    def send(self, datagrams: list[bytes], victim: Any) -> None:
        """Send all of them, and wait until the victim has refused each."""
        room = BUFFER_DATAGRAMS // 4
        for start in range(0, len(datagrams), room):
            few = datagrams[start : start + room]
            before = refused(victim)
            for data in few:
                self._transport.send([data])
            assert wait_until(lambda: refused(victim) >= before + len(few))  # noqa: B023
            self.capture()  # it hears itself, and its buffer is small

    def send_unheeded(self, datagrams: list[bytes]) -> None:
        for data in datagrams:
            self._transport.send([data])

    def close(self) -> None:
        self._transport.close()


def refused(bus: Any) -> int:
    stats = bus.stats()
    return sum(stats[each] for each in REFUSED)


class Pair:
    """A publisher and a reader of "door", and an attacker on their network."""

    def __init__(self, open_over: OpenBus, keys: dict[str, Any] | None) -> None:
        self.network = MemoryNetwork()
        self.attacker = Attacker(self.network)
        self.open = lambda: open_over(self.network.open(), key_file=keys)
        self.reader, self.publisher = self.open(), self.open()
        self.reading = self.reader.subscribe("door")
        assert self.publisher.wait_for_subscribers("door", timeout=30)

    def publish(self, value: Any) -> list[bytes]:
        """Publish, see that it is heard, and return what the attacker has captured."""
        self.attacker.capture()
        assert self.publisher.publish("door", value)
        self.expect(value)
        return self.attacker.capture()

    def expect(self, value: Any) -> None:
        """The next message is this one: no other came before it."""
        assert self.reading.get(timeout=30).value == value


@pytest.fixture
def pair(open_over: OpenBus) -> Iterator[Pair]:
    found = Pair(open_over, ring())
    with closing(found.attacker):
        yield found


def test_a_bit_that_was_changed_at_any_place_is_noticed(pair: Pair) -> None:
    data = max(pair.publish("open"), key=len)
    changed = [
        data[:place] + bytes([data[place] ^ 1 << place % 8]) + data[place + 1 :]
        for place in range(len(data))
    ]
    late = pair.open()  # which has not heard it
    pair.attacker.send(changed, late)
    assert late.stats()["datagrams_forged"] > len(data) - SALT_END
    pair.publish("shut")


def test_a_datagram_that_was_cut_at_any_place_is_noticed(pair: Pair) -> None:
    data = max(pair.publish("open"), key=len)
    pair.attacker.send([data[:size] for size in range(len(data))], pair.reader)
    pair.attacker.send([data + data[:size] for size in range(1, SEAL_BYTES)], pair.reader)
    pair.publish("shut")


def test_a_counter_that_was_set_ahead_keeps_nobody_out(pair: Pair) -> None:
    forged = [
        data[:SALT_END] + (2**64 - 1).to_bytes(8, "big") + data[HEAD_END:]
        for data in pair.publish("open")
    ]
    pair.attacker.send(forged, pair.reader)
    pair.publish("shut")


def test_a_recording_does_nothing_to_a_reader_that_was_restarted(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opener, "START_S", 0.0)
    recorded = [*pair.publish("open"), *pair.publish("shut")]
    pair.reader.close()
    pair.reader = pair.open()
    pair.reading = pair.reader.subscribe("door")
    assert pair.publisher.wait_for_subscribers("door", timeout=30)
    pair.attacker.send(recorded, pair.reader)
    pair.publish("locked")


def test_a_recording_does_nothing_after_its_sender_was_restarted(pair: Pair) -> None:
    recorded = pair.publish("open")
    pair.publisher.close()
    pair.publisher = pair.open()
    assert pair.publisher.wait_for_subscribers("door", timeout=30)
    pair.publish("shut")
    pair.attacker.send(recorded, pair.reader)
    pair.publish("locked")


def test_a_node_does_not_hear_what_is_reflected_to_it(pair: Pair) -> None:
    own = pair.publisher.subscribe("door")
    recorded = pair.publish("open")
    assert own.get(timeout=30).value == "open"
    pair.attacker.send(recorded, pair.reader)  # which counts; to the publisher they are its own
    pair.publish("shut")
    assert own.get(timeout=30).value == "shut"


def forged_departure(victim: Any) -> list[bytes]:
    """What mutes a node of an open bus: a goodbye in its name, with a number ahead of its own."""
    (info,) = [each for each in victim.nodes() if each.is_self]
    header = {
        "n": info.node,
        "i": info.incarnation,
        "q": 1 << 40,
        "m": 1 << 40,
        "t": int(time.time() * 1e6),
        "v": info.entry_version + 9,
    }
    return [json.dumps({"topic": "jsonbus.bye", "payload": None, "jb": header}).encode()]


def knows(bus: Any, node: str) -> bool:
    return any(each.node == node for each in bus.nodes())


def test_who_knows_the_id_of_a_node_can_make_it_leave_an_open_bus(open_over: OpenBus) -> None:
    pair = Pair(open_over, None)
    with closing(pair.attacker):
        (info,) = [each for each in pair.publisher.nodes() if each.is_self]
        pair.attacker.send_unheeded(forged_departure(pair.publisher))
        assert wait_until(lambda: not knows(pair.reader, info.node))


def test_who_knows_the_id_of_a_node_cannot_make_it_leave_a_sealed_bus(pair: Pair) -> None:
    (info,) = [each for each in pair.publisher.nodes() if each.is_self]
    pair.attacker.send(forged_departure(pair.publisher), pair.reader)
    assert knows(pair.reader, info.node)
    assert pair.reader.stats()["datagrams_open"] == 1
    pair.publish("open")
