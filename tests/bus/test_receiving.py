"""Receiving: what holds it up, what does not, what it survives."""

from __future__ import annotations

import logging

import pytest

import jsonbus
from jsonbus.aio import receiving as aio_receiving
from jsonbus.frontend import loop as base_loop
from jsonbus.sync import receiving as sync_receiving
from jsonbus.transport import MemoryNetwork
from tests.bus.conftest import OpenBus
from tests.helpers import wait_until
from tests.sync.transports import RecordingTransport


def test_a_full_mailbox_with_block_stops_receiving_and_loses_nothing(open_bus: OpenBus) -> None:
    publisher, reader = open_bus(batching=False), open_bus()
    subscription = reader.subscribe("x", maxsize=4, overflow="block")
    assert publisher.wait_for_subscribers("x", timeout=30)
    for number in range(40):
        publisher.publish("x", number)
    assert wait_until(lambda: subscription.pending >= 4)
    assert [subscription.get(timeout=30).value for _ in range(40)] == list(range(40))
    assert subscription.dropped == 0


def test_what_the_kernel_drops_while_a_mailbox_is_full_is_counted(
    network: MemoryNetwork, open_over: OpenBus
) -> None:
    publisher = open_over(network.open(), batching=False)
    reader = open_over(network.open(buffer_datagrams=4))
    subscription = reader.subscribe("x", maxsize=2, overflow="block")
    assert publisher.wait_for_subscribers("x", timeout=30)
    for number in range(40):
        publisher.publish("x", number)
    assert wait_until(lambda: reader.stats()["kernel_drops"] > 0)
    got = [subscription.get(timeout=30).value for _ in range(3)]
    assert got == [0, 1, 2]


@pytest.mark.slow
def test_a_bus_that_is_held_up_still_lives(network: MemoryNetwork, open_over: OpenBus) -> None:
    transport = RecordingTransport(network)
    publisher, reader = open_over(network.open()), open_over(transport)
    subscription = reader.subscribe("x", maxsize=1, overflow="block")
    assert publisher.wait_for_subscribers("x", timeout=30)
    publisher.publish("x", 0)
    assert wait_until(lambda: subscription.pending)
    sent = reader.stats()["presences_sent"]
    assert wait_until(lambda: reader.stats()["presences_sent"] > sent)
    assert reader.publish("x", 1)  # its own subscription wants it
    assert [subscription.get(timeout=30).value for _ in range(2)] == [0, 1]
    publisher.publish("x", 2)
    assert subscription.get(timeout=30).value == 2


def test_closing_the_subscription_that_holds_up_lets_the_others_go_on(open_bus: OpenBus) -> None:
    publisher, reader = open_bus(batching=False), open_bus()
    full = reader.subscribe("x", maxsize=1, overflow="block")
    other = reader.subscribe("x")
    assert publisher.wait_for_subscribers("x", timeout=30)
    for number in range(20):
        publisher.publish("x", number)
    assert wait_until(lambda: full.pending)
    full.close()
    assert [other.get(timeout=30).value for _ in range(20)] == list(range(20))


@pytest.mark.slow
def test_after_not_listening_for_long_a_node_doubts_what_it_knows(
    network: MemoryNetwork, open_over: OpenBus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(base_loop, "DEAF_S", 0.0)
    publisher, reader = open_over(network.open()), open_over(network.open())
    subscription = reader.subscribe("x", maxsize=1, overflow="block")
    assert publisher.wait_for_subscribers("x", timeout=30)
    assert reader.wait_until_sure(timeout=30)
    announced = reader.stats()["announcements_sent"]
    publisher.publish("x", 0)
    assert subscription.get(timeout=30).value == 0
    assert wait_until(lambda: reader.stats()["announcements_sent"] > announced)


def test_bad_datagrams_are_counted_and_warned_of_and_stop_nothing(
    network: MemoryNetwork, open_over: OpenBus, caplog: pytest.LogCaptureFixture
) -> None:
    bus = open_over(network.open())
    subscription = bus.subscribe("x")
    stranger = network.open()
    with caplog.at_level(logging.WARNING, "jsonbus.bus"):
        for _ in range(3):
            stranger.send((b"\xff\x00 not json\nforged line",))
        stranger.send((b'{"topic":"x","payload":1}',))
        assert subscription.get(timeout=30).value == 1
        assert wait_until(lambda: "dropped" in caplog.text)
    stranger.close()
    assert bus.stats()["datagrams_rejected"] == 3
    warnings = [r.getMessage() for r in caplog.records if "dropped" in r.getMessage()]
    assert len(warnings) == 1
    assert "\n" not in warnings[0]


def test_a_message_that_comes_alone_costs_one_receive(
    network: MemoryNetwork, open_over: OpenBus, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (sync_receiving, aio_receiving):
        monkeypatch.setattr(module, "LULL_S", 0.0)  # all of them come alone

    class Counting(RecordingTransport):
        useless = 0

        def receive(self, sock):  # type: ignore[no-untyped-def]
            received = super().receive(sock)
            self.useless += received is None
            return received

    transport = Counting(network)
    subscription = open_over(transport).subscribe("x")
    sensor = network.open()
    for number in range(20):
        sensor.send((b'{"topic":"x","payload":%d}' % number,))
        assert subscription.get(timeout=30).value == number
    sensor.close()
    assert transport.useless == 0


def test_a_bug_in_the_loop_is_logged_and_the_loop_goes_on(
    network: MemoryNetwork, open_over: OpenBus, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken(RecordingTransport):
        failures = 2

        def receive(self, sock):  # type: ignore[no-untyped-def]
            received = super().receive(sock)
            if received is not None and b'"break"' in received[0][0] and self.failures:
                self.failures -= 1
                raise ZeroDivisionError
            return received

    bus = open_over(Broken(network))
    subscription = bus.subscribe("**")
    sensor = network.open()
    for _ in range(3):
        sensor.send((b'{"topic":"break","payload":1}',))
    assert subscription.get(timeout=30).topic == "break"
    sensor.close()
    assert len([r for r in caplog.records if "this is a bug" in r.getMessage()]) == 2


@pytest.mark.slow
def test_an_unusable_socket_is_warned_of_once_and_tried_again(
    network: MemoryNetwork, open_over: OpenBus, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken(RecordingTransport):
        failures = 3

        def receive(self, sock):  # type: ignore[no-untyped-def]
            if self.failures:
                self.failures -= 1
                raise jsonbus.errors.TransportError("cannot receive: the cable is cut")
            return super().receive(sock)

    bus = open_over(Broken(network))
    subscription = bus.subscribe("x")
    sensor = network.open()
    sensor.send((b'{"topic":"x","payload":1}',))
    assert subscription.get(timeout=30).value == 1
    sensor.close()
    assert len([r for r in caplog.records if "cable" in r.getMessage()]) == 1
