"""The receive thread: what holds it up, what does not, what it survives."""

from __future__ import annotations

import threading

import pytest

import jsonbus
from jsonbus.frontend import loop as base_loop
from jsonbus.frontend import subscription as base
from jsonbus.sync import loop
from jsonbus.transport import MemoryNetwork
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
