"""Channels of sealed buses, with sockets: strangers, other keys, a man in the middle.

That they do all that channels of an open bus do is shown by tests/bus/channels and its likes.
"""

from __future__ import annotations

import socket
from typing import Any

import pytest

import jsonbus
from jsonbus.core.channel.wire import BEAT, BYTES, Hello, encode_hello
from jsonbus.errors import ChannelClosedError, ChannelRefusedError
from jsonbus.sealed.records import OFFER_BYTES
from tests.bus.conftest import OpenBus
from tests.channel_peers import LONG_S, Plain, PlainListener, join
from tests.helpers import find_free_port, wait_until
from tests.sealed.material import OTHER_SECRET, key, ring
from tests.sealed.relay import TO_CALLER, TO_LISTENER, Change, Relay, pass_on
from tests.sync.channels.channel_pair import InThread


@pytest.fixture
def open_bus(open_any: OpenBus) -> OpenBus:
    """Opens a sealed bus; all of one test share a port, and the keys unless it says otherwise."""
    port = find_free_port()
    return lambda **settings: open_any(port=port, **{"key_file": ring(), **settings})


def open_pair(open_bus: OpenBus, *changes: Change) -> tuple[Any, Any, Relay, Any]:
    """The caller's channel, the listener's, the relay between them, and the listening bus."""
    calling, bound = open_bus(name="calling"), open_bus(name="bound")
    binding = bound.bind("secret-port")
    relay = Relay(bound, *changes)
    here = calling.connect("bound", "secret-port", timeout=LONG_S, retry=True)
    return here, binding.accept(LONG_S), relay, bound


def loss_of(channel: Any) -> str:
    """The reason for which it was lost; messages before that do not matter."""
    with pytest.raises(ChannelClosedError) as caught:
        while True:
            channel.receive(LONG_S)
    assert caught.value.is_lost
    return caught.value.reason


# --- Strangers ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "said",
    [
        encode_hello(Hello("caller-node-1", 1, "plain", "bound-node-1", "p", 64 << 20)),
        b"GET / HTTP/1.1\r\n\r\n",
        b"?",
    ],
)
def test_a_plain_client_learns_nothing_from_a_sealed_port_and_is_closed(
    open_bus: OpenBus, said: bytes
) -> None:
    bus = open_bus()
    binding = bus.bind("p")
    place = bus._loop.channels.manager.listener.own_place()
    with socket.create_connection(place, LONG_S) as sock:
        sock.sendall(said)
        try:
            assert sock.recv(1000) == b""
        except ConnectionResetError:
            pass  # it was closed before all was read
    assert wait_until(lambda: bus.stats()["channels_foreign"] == 1)
    assert bus.stats()["channel_connections_dropped"] == 0
    assert binding.pending == 0


def test_who_names_a_key_that_it_has_not_is_told_nothing_but_random_bytes(
    open_bus: OpenBus,
) -> None:
    bus = open_bus()
    bus.bind("p")
    with (
        join(bus, "p"),
        socket.create_connection(bus._loop.channels.manager.listener.own_place(), LONG_S) as sock,
    ):
        sock.sendall(bytes.fromhex("4a425301a2c9565a") + bytes(range(64)) + bytes(1000))
        assert sock.recv(OFFER_BYTES, socket.MSG_WAITALL)[:8].hex() == "4a425301a2c9565a"
        try:
            assert sock.recv(1000) == b""
        except ConnectionResetError:
            pass
    assert wait_until(lambda: bus.stats()["channels_foreign"] == 1)


def test_a_sealed_node_tells_an_unsealed_one_nothing(open_bus: OpenBus) -> None:
    calling, bound = open_bus(), open_bus(name="desk")
    with PlainListener(bound) as listener:
        connecting = InThread(lambda: calling.connect("desk", "secret-port", timeout=LONG_S))
        said = b""
        while not connecting.is_over:
            sock = listener.accept_silently().sock
            said += sock.recv(1000)
            sock.sendall(b"\x00\x00\x00\x02W{}")
            said += sock.recv(1000)
            sock.close()
            if len(said) >= 2 * OFFER_BYTES:  # it asks the node once more, then gives up
                break
        with pytest.raises(ChannelRefusedError, match="does not speak to this sealed bus"):
            connecting.result()
    assert len(said) == 2 * OFFER_BYTES
    assert wait_until(lambda: calling.stats()["channels_foreign"] == 2)


def test_who_seals_with_a_key_that_the_other_has_not_is_told_which(open_bus: OpenBus) -> None:
    """As while keys change, if the new file was not copied everywhere in time."""
    new = key("k2", OTHER_SECRET, "2026-11-18T01:00:00Z")
    bound = open_bus(name="desk")
    bound.bind("p")
    calling = open_bus(key_file=ring(key(), new))
    assert wait_until(
        lambda: [node.channel_port for node in calling.nodes() if node.name == "desk"]
    )
    with pytest.raises(ChannelRefusedError) as caught:
        calling.connect("desk", "p", timeout=LONG_S)
    assert (caught.value.reason, caught.value.detail) == (
        "gone",
        "it closed the connection at once: it lacks the key 'k2', or its bus is not sealed",
    )
    assert bound.stats()["channels_foreign"] >= 1


def test_any_key_of_the_bus_opens_a_channel(open_bus: OpenBus) -> None:
    both = ring(key(), key("k2", OTHER_SECRET, "2026-11-18T01:00:00Z"))
    calling, bound = open_bus(key_file=both), open_bus(name="desk", key_file=both)
    binding = bound.bind("p")
    here = calling.connect("desk", "p", timeout=LONG_S, retry=True)  # by the newer one
    here.send("sealed")
    assert binding.accept(LONG_S).receive(LONG_S) == "sealed"
    with join(bound, "p") as plain:  # by the older one
        plain.send(BYTES, b"sealed, too")
        assert binding.accept(LONG_S).receive(LONG_S) == b"sealed, too"


# --- A man in the middle --------------------------------------------------------------------------


def test_a_relay_sees_neither_names_nor_ports_nor_messages(open_bus: OpenBus) -> None:
    here, there, relay, _ = open_pair(open_bus)
    with relay:
        here.send({"door": "open the secret door"})
        there.send(b"the secret answer")
        assert there.receive(LONG_S) == {"door": "open the secret door"}
        assert here.receive(LONG_S) == b"the secret answer"
        assert here.close(LONG_S)
    for seen in relay.seen:
        assert len(seen) > 200
        for word in (b"secret", b"door", b"calling", b"bound", here.node.encode(), b"port"):
            assert word not in seen


@pytest.mark.parametrize("way", [TO_LISTENER, TO_CALLER])
def test_a_message_that_is_changed_on_its_way_ends_the_channel(open_bus: OpenBus, way: int) -> None:
    def change(data: bytes, at: int) -> bytes:
        return data[:-1] + bytes([data[-1] ^ 1]) if len(data) > 20_000 else data

    changes = (change, pass_on) if way == TO_LISTENER else (pass_on, change)
    here, there, relay, _ = open_pair(open_bus, *changes)
    sender, receiver = (here, there) if way == TO_LISTENER else (there, here)
    with relay:
        sender.send("before")
        assert receiver.receive(LONG_S) == "before"
        sender.send(bytes(200_000))
        assert "fails verification" in loss_of(receiver)
        loss_of(sender)


def test_a_repeated_message_ends_the_channel(open_bus: OpenBus) -> None:
    def repeat(data: bytes, at: int) -> bytes:
        return data + data if len(data) == 4 + 16 + 5 + 7 else data

    here, there, relay, _ = open_pair(open_bus, repeat, pass_on)
    with relay:
        here.send(b"payment")
        assert there.receive(LONG_S) == b"payment"
        assert "not at this place" in loss_of(there)


def test_a_cut_is_no_close_although_all_messages_have_arrived(open_bus: OpenBus) -> None:
    def cut_close(data: bytes, at: int) -> bytes | None:
        return None if len(data) == 4 + 16 + 5 else data

    here, there, relay, _ = open_pair(open_bus, cut_close, pass_on)
    with relay:
        here.send(b"all that there is")
        assert there.receive(LONG_S) == b"all that there is"
        assert not here.close(LONG_S)
        assert "is gone" in loss_of(there)


def test_a_connection_that_is_given_back_what_it_says_is_refused(open_bus: OpenBus) -> None:
    calling, bound = open_bus(), open_bus(name="desk")
    with PlainListener(bound) as listener:
        connecting = InThread(lambda: calling.connect("desk", "p", timeout=LONG_S))
        for _ in range(2):
            mirror = listener.accept_silently()
            mirror.sock.sendall(mirror.sock.recv(1000))
            assert mirror.is_ended()
            mirror.close()
        with pytest.raises(ChannelRefusedError, match="sent back what was sent to it"):
            connecting.result()


def test_a_call_that_is_led_to_another_node_reaches_no_port_there(open_bus: OpenBus) -> None:
    """Both have the key; the hello inside the seal says who is meant."""
    calling, bound, other = open_bus(), open_bus(name="desk"), open_bus(name="other")
    binding = other.bind("p")
    bound.bind("p")
    tcp_port = other._loop.channels.manager.listener.own_place()[1]
    bound._loop.call(lambda node, now: node.directory.set_channel_port(tcp_port, now))
    with pytest.raises(ChannelRefusedError) as caught:
        calling.connect("desk", "p", timeout=LONG_S)
    assert caught.value.reason == "gone"
    assert binding.pending == 0


# --- What costs memory, time and descriptors ------------------------------------------------------


def test_a_hundred_channels_carry_their_messages_apart(open_bus: OpenBus) -> None:
    calling, bound = open_bus(), open_bus(name="desk")
    binding = bound.bind("p")
    pairs = []
    for _ in range(100):
        here = calling.connect("desk", "p", timeout=LONG_S, retry=True)
        pairs.append((here, binding.accept(LONG_S)))
    for number, (here, there) in enumerate(pairs):
        here.send(number)
        there.send(bytes([number]) * 100_000)
    for number, (here, there) in enumerate(pairs):
        assert there.receive(LONG_S) == number
        assert here.receive(LONG_S) == bytes([number]) * 100_000
    assert bound.stats()["channels_open"] == 100


def test_many_channels_opened_at_once_are_not_taken_for_strangers(
    open_bus: OpenBus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jsonbus.frontend.channels.connector.DIALED_MAX", 4)
    monkeypatch.setattr("jsonbus.frontend.channels.listener.UNIDENTIFIED_MAX", 4)
    calling, bound = open_bus(), open_bus(name="desk")
    binding = bound.bind("p")
    assert wait_until(lambda: "desk" in {node.name for node in calling.nodes()})
    channels = [calling.connect("desk", "p", timeout=LONG_S, wait=False) for _ in range(60)]
    for number, channel in enumerate(channels):
        channel.send(number)
    received = sorted(binding.accept(LONG_S).receive(LONG_S) for _ in channels)
    assert received == list(range(60))
    assert bound.stats()["channel_connections_dropped"] == 0
    assert calling._loop.channels.manager.connector._lines == {}


def test_a_message_goes_on_while_a_record_comes_byte_by_byte(open_bus: OpenBus) -> None:
    bus = open_bus()
    binding = bus.bind("p")
    with join(bus, "p") as plain:
        channel = binding.accept(LONG_S)
        record = plain.sock._records.seal(b"\x00\x00\x00\x05B" + b"drops")
        for byte in record:
            plain.sock._sock.sendall(bytes([byte]))
        assert channel.receive(LONG_S) == b"drops"


@pytest.mark.slow
def test_beats_travel_sealed_and_keep_a_channel(open_bus: OpenBus) -> None:
    bus = open_bus()
    binding = bus.bind("p")
    with join(bus, "p") as plain:
        channel = binding.accept(LONG_S)
        plain.send(BYTES, b"to be answered")
        assert plain.read_kind(BEAT) == b""  # within 2 s, since something was sent
        plain.send(BEAT)
        plain.send(BYTES, b"more")
        assert channel.receive(LONG_S) == b"to be answered"
        assert channel.receive(LONG_S) == b"more"


def test_a_part_of_a_record_keeps_a_channel_that_was_about_to_be_given_up(
    open_bus: OpenBus,
) -> None:
    """As over a slow link, where a record takes longer than silence is borne."""
    bus = open_bus()
    binding = bus.bind("p")
    with join(bus, "p") as plain:
        channel = binding.accept(LONG_S)
        connection = channel._connection
        record = plain.sock._records.seal(b"\x00\x00\x00\x05B" + b"slow!")
        plain.sock._sock.sendall(record[:10])
        heard_at = connection.end.liveness.heard_at
        plain.sock._sock.sendall(record[10:20])
        assert wait_until(lambda: connection.end.liveness.heard_at > heard_at)
        assert connection.end.received == 0
        plain.sock._sock.sendall(record[20:])
        assert channel.receive(LONG_S) == b"slow!"


def test_a_part_of_a_record_is_heard_by_who_waits_for_the_message(open_bus: OpenBus) -> None:
    bus = open_bus()
    binding = bus.bind("p")
    with join(bus, "p") as plain:
        channel = binding.accept(LONG_S)
        connection, is_sync = channel._connection, isinstance(bus, jsonbus.Bus)
        receiving = InThread(channel.receive, LONG_S)
        assert wait_until(lambda: connection.is_read_directly == is_sync)
        heard_at = connection.end.liveness.heard_at
        record = plain.sock._records.seal(b"\x00\x00\x00\x05B" + b"slow!")
        plain.sock._sock.sendall(record[:10])
        assert wait_until(lambda: connection.end.liveness.heard_at > heard_at)
        plain.sock._sock.sendall(record[10:])
        assert receiving.result() == b"slow!"


def test_a_stranger_that_says_nothing_costs_one_of_few_places(open_bus: OpenBus) -> None:
    bus = open_bus()
    bus.bind("p")
    place = bus._loop.channels.manager.listener.own_place()
    with Plain(socket.create_connection(place, LONG_S)) as silent:
        silent.sock.sendall(b"JBS")
        silent.sock.shutdown(socket.SHUT_WR)
        assert silent.is_ended()
    assert wait_until(lambda: bus.stats()["channel_connections_dropped"] == 1)
    assert bus.stats()["channels_foreign"] == 0
