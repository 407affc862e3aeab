"""The receive thread: what holds it up, what does not, what it survives."""

from __future__ import annotations

import math
import socket
import threading
from collections.abc import Iterator
from contextlib import closing
from itertools import count, repeat

import pytest

import jsonbus
from jsonbus.core.wire.encode_messages import Stamp, encode_message
from jsonbus.frontend import loop as base_loop
from jsonbus.frontend import subscription as base
from jsonbus.sync import loop, receiving
from jsonbus.transport import MemoryNetwork
from jsonbus.transport.base import Received
from tests.core.link import forge_presence
from tests.helpers import wait_until
from tests.sync.conftest import OpenBus
from tests.sync.transports import RecordingTransport


def test_a_handler_with_block_gets_everything_however_slow_it_is(open_bus: OpenBus) -> None:
    publisher, reader = open_bus(), open_bus()
    got: list[object] = []
    may_go_on = threading.Event()

    def handler(message: jsonbus.Message) -> None:
        assert may_go_on.wait(60)
        got.append(message.value)

    reader.subscribe("x", handler, maxsize=2, overflow="block")
    assert publisher.wait_for_subscribers("x", timeout=30)
    for number in range(50):
        publisher.publish("x", number)
    may_go_on.set()
    assert wait_until(lambda: got == list(range(50)))


@pytest.mark.slow
def test_interfaces_that_came_or_went_are_followed_and_announced_to(
    network: MemoryNetwork, open_over: OpenBus, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Moving(RecordingTransport):
        moves = 0

        def rejoin(self) -> bool:
            self.moves += 1
            return self.moves == 2

    for module in (base_loop, loop):
        monkeypatch.setattr(module, "INTERFACES_S", 0.01)
    transport = Moving(network)
    bus = open_over(transport)
    assert bus.wait_until_sure(timeout=30)
    assert wait_until(lambda: transport.moves > 2)
    announced = bus.stats()["announcements_sent"]
    transport.moves = 0  # once more, and nothing else is to be said
    assert wait_until(lambda: bus.stats()["announcements_sent"] > announced)


def test_messages_that_nobody_reads_are_bounded_with_block_too(
    open_bus: OpenBus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(base, "EXCESS_MAX", 20)
    bus = open_bus()
    subscription = bus.subscribe("x", maxsize=10, overflow="block")
    for number in range(50):  # by the only thread there is: waiting would never end
        assert bus.publish("x", number)
    assert (subscription.pending, subscription.dropped) == (30, 20)
    assert [subscription.get(timeout=30).value for _ in range(30)] == list(range(30))


class Flooded(RecordingTransport):
    """Something comes at every look, once there is a flood."""

    flood: Iterator[bytes] | None = None
    flooded = 0  # datagrams of it that were read

    def receive(self, sock: socket.socket) -> Received | None:
        if self.flood is None:
            return super().receive(sock)
        self.flooded += 1
        return (next(self.flood),), ("10.0.0.9", 2416)


def open_flooded(network: MemoryNetwork, open_over: OpenBus) -> tuple[jsonbus.Bus, Flooded]:
    """A bus that publishes to x; for a control datagram it reads on as long as it may."""
    transport = Flooded(network)
    bus, reader = open_over(transport), open_over(network.open())
    reader.subscribe("x", maxsize=100_000)
    assert bus.wait_for_subscribers("x", timeout=30)
    assert bus.wait_until_sure(timeout=30)
    return bus, transport


def flood(network: MemoryNetwork, transport: Flooded, datagrams: Iterator[bytes]) -> None:
    transport.flood = datagrams
    with closing(network.open()) as member:
        member.send([b"{}"])  # makes it look
    assert wait_until(lambda: transport.flooded > 10)


@pytest.mark.slow
def test_batched_messages_leave_while_control_datagrams_are_read(
    network: MemoryNetwork, open_over: OpenBus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(receiving, "READ_ON_S", math.inf)
    monkeypatch.setattr(receiving, "READ_ON_MAX", math.inf)
    bus, transport = open_flooded(network, open_over)
    flood(network, transport, repeat(forge_presence()))
    for number in range(10):  # the first leaves at once
        bus.publish("x", number)
    has_left = wait_until(lambda: ("x", 9) in transport.messages())
    transport.flood = None
    assert has_left


@pytest.mark.slow
def test_timers_go_on_while_messages_that_nobody_wants_follow_a_control_datagram(
    network: MemoryNetwork, open_over: OpenBus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(receiving, "READ_ON_S", math.inf)
    monkeypatch.setattr(receiving, "READ_ON_MAX", math.inf)
    bus, transport = open_flooded(network, open_over)
    before = bus.stats()["datagrams_sent"]
    stamp = Stamp("stranger", 1)
    unwanted = (encode_message(stamp, b'"nobody"', b"1", number, 0) for number in count(1))
    flood(network, transport, unwanted)
    goes_on = wait_until(lambda: bus.stats()["datagrams_sent"] > before + 1)
    transport.flood = None
    assert goes_on
