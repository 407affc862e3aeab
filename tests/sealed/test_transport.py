"""SealedTransport around a transport in memory: what passes, and when keys change."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from jsonbus.errors import TransportError
from jsonbus.sealed.datagrams import SEAL_BYTES, Sealer
from jsonbus.sealed.keys import KeySource, parse_ring
from jsonbus.sealed.opener import Opener
from jsonbus.sealed.transport import SealedTransport
from jsonbus.transport import MemoryNetwork, Transport
from jsonbus.transport.base import DATAGRAM_BYTES_MAX
from jsonbus.transport.offload import first_run
from tests.sealed.material import OTHER_SECRET, key, ring, shows_secret, write_ring
from tests.sync.transports import RecordingTransport


def text(value: int = 1) -> bytes:
    return b'{"topic":"door","payload":%d,"jb":{"t":%d}}' % (value, time.time() * 1_000_000)


def seal(network: MemoryNetwork, keys: object = None) -> SealedTransport:
    source = KeySource(keys or ring())  # type: ignore[arg-type]
    return SealedTransport(network.open(), source)


def heard(transport: Transport) -> list[bytes]:
    """Everything that has come."""
    (sock,) = transport.sockets()
    datagrams: list[bytes] = []
    while (received := transport.receive(sock)) is not None:
        datagrams += received[0]
    return datagrams


def test_a_run_passes_from_one_to_the_other_and_only_sealed() -> None:
    network = MemoryNetwork()
    a, b, wire = seal(network), seal(network), network.open()
    run = (text(1), text(2))
    assert a.send(run)
    assert heard(b) == list(run)
    assert heard(a) == []
    passed = heard(wire)
    assert [len(data) for data in passed] == [len(data) + SEAL_BYTES for data in run]
    assert not any(b"door" in data or b"payload" in data for data in passed)
    for each in (a, b, wire):
        each.close()


def test_what_found_no_room_is_not_sealed_again() -> None:
    network = MemoryNetwork()
    passed: list[Sequence[bytes]] = []

    class Jammed(RecordingTransport):
        def send(self, run: Sequence[bytes]) -> bool:
            passed.append(run)
            return len(passed) > 2

    recording = Jammed(network)
    a = SealedTransport(recording, KeySource(ring()))
    run = (text(),)
    assert [a.send(run) for _ in range(3)] == [False, False, True]
    assert passed[0] is passed[1] is passed[2]
    assert a.send(run)
    assert passed[3][0] != passed[2][0]  # another time, another nonce
    a.close()


def test_a_datagram_that_was_refused_does_not_come_back() -> None:
    network = MemoryNetwork()
    inner = network.open()
    a, b = SealedTransport(inner, KeySource(ring())), seal(network)
    inner.is_plugged = False
    with pytest.raises(TransportError, match="unplugged"):
        a.send((text(1),))
    inner.is_plugged = True
    second = text(2)
    assert a.send((second,))
    assert heard(b) == [second]
    a.close()
    b.close()


def test_what_is_refused_shows_in_the_facts_of_the_transport() -> None:
    network = MemoryNetwork()
    a, plain = seal(network), network.open()
    plain.send((text(),))
    assert heard(a) == []
    found = a.describe().seal
    assert found is not None
    assert (found.bus, found.key, found.added_bytes) == ("plant", "k1", SEAL_BYTES)
    assert found.refused["datagrams_open"] == 1
    assert plain.describe().seal is None
    a.close()
    plain.close()


def test_a_transport_that_hears_itself_opens_its_own_datagrams() -> None:
    a = SealedTransport(MemoryNetwork().open(), KeySource(ring()), hears_itself=True)
    own = text()
    a.send((own,))
    assert heard(a) == [own]
    a.close()


def test_a_sealed_run_is_no_larger_than_the_system_takes() -> None:
    datagrams = [bytes(1354)] * 64
    assert len(first_run(datagrams, 1e9)) * (1354 + SEAL_BYTES) > DATAGRAM_BYTES_MAX
    run = first_run(datagrams, 1e9, SEAL_BYTES)
    assert len(run) == DATAGRAM_BYTES_MAX // (1354 + SEAL_BYTES)


# --- Keys that change -----------------------------------------------------------------------------


def used_key(transport: SealedTransport) -> str:
    found = transport.describe().seal
    assert found is not None
    return found.key


def later(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + seconds))


def test_a_key_is_changed_without_losing_a_datagram(tmp_path: Path) -> None:
    network = MemoryNetwork()
    path = write_ring(tmp_path / "a.key", ring(key("old")))
    path_b = write_ring(tmp_path / "b.key", ring(key("old")))
    a, b = seal(network, path), seal(network, path_b)
    sent, got = [], []

    def step() -> None:
        for sender, hearer in ((a, b), (b, a)):
            sent.append(text(len(sent)))
            sender.send((sent[-1],))
            got.extend(heard(hearer))

    step()
    both = ring(key("old"), key("new", OTHER_SECRET, later(3600)))
    for each, file in ((a, path), (b, path_b)):  # the file is copied at leisure
        write_ring(file, both)
        each.rejoin()
        step()
    assert (used_key(a), used_key(b)) == ("old", "old")
    both = ring(key("old"), key("new", OTHER_SECRET, later(-1)))
    for each, file in ((a, path), (b, path_b)):  # the time has come, here sooner than there
        write_ring(file, both)
        each.rejoin()
        step()
    assert (used_key(a), used_key(b)) == ("new", "new")
    for each, file in ((b, path_b), (a, path)):
        write_ring(file, ring(key("new", OTHER_SECRET, later(-1))))
        each.rejoin()
        step()
    assert got == sent
    for each in (a, b):
        found = each.describe().seal
        assert found is not None and not any(found.refused.values())
        each.close()


def test_a_key_whose_time_has_come_seals_although_the_file_is_as_before() -> None:
    keys = ring(key("old"), key("new", OTHER_SECRET, later(1.0)))
    transport = seal(MemoryNetwork(), keys)
    assert used_key(transport) == "old"
    deadline = time.monotonic() + 60
    while used_key(transport) == "old" and time.monotonic() < deadline:
        transport.rejoin()
        time.sleep(0.05)
    assert used_key(transport) == "new"
    transport.close()


def test_a_file_that_goes_wrong_while_the_bus_runs_changes_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    network = MemoryNetwork()
    path = write_ring(tmp_path / "plant.key", ring())
    a, b = seal(network, path), seal(network)
    path.write_text('{"jsonbus-key": 1')
    with caplog.at_level(logging.WARNING, "jsonbus"):
        assert not a.rejoin() and not a.rejoin()
    assert len(caplog.records) == 1
    assert not shows_secret(caplog.text)
    data = text()
    a.send((data,))
    assert heard(b) == [data]
    a.close()
    b.close()


# --- Clocks that are wrong ------------------------------------------------------------------------


class LateNode:
    """A node by the format alone, whose clock is an hour behind."""

    def __init__(self, network: MemoryNetwork) -> None:
        self.member = network.open()
        ring_, salt = parse_ring(ring()), os.urandom(16)
        self.sealer = Sealer(ring_, ring_.keys[0], salt)
        self.opener = Opener(ring_, salt, os.urandom)
        self.wall = time.time() - 3600

    def say(self) -> bytes:
        data = b'{"topic":"door","payload":1,"jb":{"t":%d}}' % (self.wall * 1_000_000)
        self.member.send((self.sealer.seal(data),))
        return data

    def answer(self) -> None:
        for data in heard(self.member):
            self.opener.open(data, ("10.0.0.9", 1), 0.0, self.wall)
        while self.opener.replies:
            self.member.send((self.sealer.seal(self.opener.replies.popleft()),))


def test_a_node_whose_clock_is_wrong_is_challenged_with_the_next_datagram(
    caplog: pytest.LogCaptureFixture,
) -> None:
    network = MemoryNetwork()
    a, late = seal(network), LateNode(network)
    with caplog.at_level(logging.WARNING, "jsonbus"):
        for _ in range(3):
            late.say()
            assert heard(a) == []
    assert "3600 s behind this machine's" in caplog.text
    assert len(caplog.records) == 1
    a.send((text(),))
    late.answer()
    assert heard(a) == []
    assert late.say() in heard(a)
    a.close()
    late.member.close()


def test_a_challenge_that_finds_no_room_is_sent_later() -> None:
    network = MemoryNetwork()
    inner = network.open()
    a, late = SealedTransport(inner, KeySource(ring())), LateNode(network)
    late.say()
    heard(a)
    inner.is_jammed = True
    run = (text(),)
    assert not a.send(run)
    inner.is_jammed = False
    assert a.send(run)
    late.answer()
    heard(a)
    assert late.say() in heard(a)
    a.close()
    late.member.close()
