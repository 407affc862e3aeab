"""Sending: at once when idle, together under load, in order, and never lost without a count."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence

import pytest

from jsonbus.frontend import outgoing as base_outgoing
from jsonbus.transport import MemoryNetwork
from tests.bus.conftest import OpenBus
from tests.helpers import wait_until
from tests.sync.transports import RecordingTransport

# Mode basic sends everything from the start: no joining, no lists. Its heartbeats may still come in
# between, from the receive thread; no test may depend on there being none.


def test_a_network_that_is_stuck_for_long_is_like_one_that_is_down(
    network: MemoryNetwork,
    open_over: OpenBus,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(base_outgoing, "STALL_S", 0.05)
    transport = RecordingTransport(network)
    bus = open_over(transport, mode="basic")
    assert bus.flush(timeout=30)
    transport.inner.is_jammed = True
    assert bus.publish("x", 1)
    assert bus.publish("x", 2)
    assert wait_until(lambda: bus.flush(timeout=0))
    assert bus.stats()["datagrams_unsent"] >= 1
    transport.inner.is_jammed = False
    assert bus.publish("x", 3)
    assert bus.flush(timeout=30)
    assert transport.messages() == [("x", 3)]
    assert len([r for r in caplog.records if "taken nothing" in r.getMessage()]) == 1


def test_what_found_no_room_is_tried_again_as_the_same_run(
    network: MemoryNetwork, open_over: OpenBus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(base_outgoing, "LINGER_S", 0.0)  # nothing waits for company

    class Trying(RecordingTransport):
        """Remembers what it was given; the transport knows by it who needs not take it again."""

        def send(self, run: Sequence[bytes]) -> bool:
            tries.append(run)
            return super().send(run)

    tries: list[Sequence[bytes]] = []
    transport = Trying(network)
    bus = open_over(transport, mode="basic")
    bus.publish("x", "a topic for the first time")
    assert bus.flush(timeout=30)
    for value in ("alone", "in slices " * 5_000):
        transport.inner.is_jammed = True
        tries.clear()
        publish = threading.Thread(target=bus.publish, args=("x", value))
        publish.start()
        assert wait_until(lambda: len(tries) > 3)
        assert all(each is tries[0] for each in tries)
        transport.inner.is_jammed = False
        publish.join(30)
        assert bus.flush(timeout=30)


def test_a_network_that_is_down_is_counted_warned_of_once_and_raises_nothing(
    network: MemoryNetwork, open_over: OpenBus, caplog: pytest.LogCaptureFixture
) -> None:
    transport = network.open()
    bus, other = open_over(transport), open_over(network.open())
    subscription = other.subscribe("x")
    assert bus.wait_for_subscribers("x", timeout=30)
    with caplog.at_level(logging.WARNING, "jsonbus.bus"):
        transport.is_plugged = False
        for number in range(5):
            bus.publish("x", number)
        assert wait_until(lambda: bus.flush(timeout=0))
    assert bus.stats()["datagrams_unsent"] >= 1
    assert bus.stats()["send_failures"] >= 1
    assert len([r for r in caplog.records if "not sent" in r.getMessage()]) == 1

    transport.is_plugged = True
    bus.publish("x", "again")
    assert subscription.get(timeout=30).value == "again"
    # Others may have missed what it announced meanwhile, so it announces itself anew.
    assert wait_until(lambda: bus.id in {node.node for node in other.nodes()})


def test_a_jammed_network_does_not_keep_a_bus_from_receiving(
    network: MemoryNetwork, open_over: OpenBus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(base_outgoing, "STALL_S", 600.0)
    transport = network.open()
    jammed, other = open_over(transport), open_over(network.open())
    subscription = jammed.subscribe("x")
    assert other.wait_for_subscribers("x", timeout=30)
    transport.is_jammed = True
    jammed.subscribe("new")  # its announcement finds no room
    for number in range(3):
        other.publish("x", number)
    assert [subscription.get(timeout=30).value for _ in range(3)] == [0, 1, 2]
    transport.is_jammed = False
    assert other.wait_for_subscribers("new", timeout=30)


def test_messages_published_just_before_closing_arrive(open_bus: OpenBus) -> None:
    reader = open_bus()
    subscription = reader.subscribe("x")
    with open_bus() as publisher:
        for number in range(50):
            publisher.publish("x", number)
    got = [subscription.get(timeout=30).value for _ in range(50)]
    assert got == list(range(50))
