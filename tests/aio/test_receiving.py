"""Receiving: what holds it up, what does not, what it survives."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

import pytest

import jsonbus
from jsonbus.aio import loop, receiving
from jsonbus.core import pacing
from jsonbus.core.node import Node
from jsonbus.core.settings import NodeSettings
from jsonbus.frontend import loop as base_loop
from jsonbus.transport import MemoryNetwork
from tests.aio.running import asynctest, buses, memory_buses, until
from tests.sync.transports import RecordingTransport


@asynctest
async def test_a_handler_with_block_gets_everything_however_slow_it_is() -> None:
    async with buses() as open_bus:
        publisher, reader = open_bus(), open_bus()
        got: list[object] = []
        may_go_on = asyncio.Event()

        async def handler(message: jsonbus.Message) -> None:
            await may_go_on.wait()
            got.append(message.value)

        reader.subscribe("x", handler, maxsize=2, overflow="block")
        assert await publisher.wait_for_subscribers("x", timeout=30)
        for number in range(50):
            await publisher.publish("x", number)
        may_go_on.set()
        assert await until(lambda: got == list(range(50)))


@asynctest
async def test_readers_get_their_turn_long_before_a_flood_has_been_read() -> None:
    async with memory_buses() as (network, open_over):
        elsewhere = RecordingTransport(MemoryNetwork())
        publisher = open_over(elsewhere, mode="basic", datagram_bytes_max=1400)
        for number in range(1000):
            await publisher.publish("x", number)
        assert await publisher.flush(timeout=30)
        bus = open_over(network.open())
        subscription = bus.subscribe("x", maxsize=1000)
        stranger = network.open()
        for datagram in elsewhere.sent:
            stranger.send((datagram,))
        stranger.close()
        steps: list[int] = []
        while subscription.pending < 1000:
            before = subscription.pending
            await asyncio.sleep(0)
            steps.append(subscription.pending - before)
        # A datagram that was begun is read to its end.
        assert max(steps) < receiving.MESSAGES_MAX + 100
        got = [(await subscription.get(timeout=0)).value for _ in range(1000)]
        assert got == list(range(1000))


@asynctest
async def test_control_datagrams_that_wait_are_all_read_before_the_node_acts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(receiving, "READ_ON_S", 60.0)  # however slow the machine
    async with memory_buses() as (network, open_over):
        bus = open_over(network.open(), mode="basic")
        stranger = network.open()
        for number in range(40):
            node = Node(NodeSettings(f"stranger-{number}", 1, "stranger"), random.Random(1))
            node.open(0.0)
            assert stranger.send(node.outbox.take(0.0))
        stranger.close()
        assert bus.stats()["datagrams_received"] <= 1
        for _ in range(3):  # one for the selector, one for the bus's own datagram
            await asyncio.sleep(0)
        assert bus.stats()["datagrams_received"] >= 40


@asynctest
async def test_a_flood_within_one_event_loop_overruns_no_mailbox(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pacing, "STUCK_S", 3600.0)  # however long it is kept from reading
    async with buses() as open_bus:
        publisher, reader = open_bus(), open_bus()
        subscription = reader.subscribe("x")
        assert await publisher.wait_for_subscribers("x", timeout=30)

        async def read() -> list[int]:
            return [(await anext(subscription)).value for _ in range(20_000)]

        reading = asyncio.create_task(read())
        for number in range(20_000):
            assert await publisher.publish("x", number)
        assert await asyncio.wait_for(reading, 60) == list(range(20_000))
        figures = reader.stats()
        assert figures["messages_dropped"] == figures["messages_lost"] == 0


@pytest.mark.parametrize("count", [1, 3])
@asynctest
async def test_a_flood_within_one_event_loop_overruns_no_handlers(
    monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    monkeypatch.setattr(pacing, "STUCK_S", 3600.0)
    async with buses() as open_bus:
        publisher, reader = open_bus(), open_bus(workers=1)
        got: list[list[int]] = [[] for _ in range(count)]

        def append_to(values: list[int]) -> Callable[[jsonbus.Message], None]:
            return lambda message: values.append(message.value)

        for values in got:
            reader.subscribe("x", append_to(values))
        assert await publisher.wait_for_subscribers("x", timeout=30)
        for number in range(20_000):
            assert await publisher.publish("x", number)
        assert await until(lambda: all(len(values) == 20_000 for values in got))
        assert got == [list(range(20_000))] * count
        assert reader.stats()["messages_dropped"] == 0


@pytest.mark.slow
@asynctest
async def test_interfaces_that_came_or_went_are_followed_and_announced_to() -> None:
    class Moving(RecordingTransport):
        moves = 0

        def rejoin(self) -> bool:
            self.moves += 1
            return self.moves == 2

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "INTERFACES_S", 0.01)
        patch.setattr(base_loop, "INTERFACES_S", 0.01)
        async with memory_buses() as (network, open_over):
            transport = Moving(network)
            bus = open_over(transport)
            assert await bus.wait_until_sure(timeout=30)
            assert await until(lambda: transport.moves > 2)
            announced = bus.stats()["announcements_sent"]
            transport.moves = 0  # once more, and nothing else is to be said
            assert await until(lambda: bus.stats()["announcements_sent"] > announced)


@asynctest
async def test_a_timer_that_fails_is_logged_and_the_timers_go_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Broken(RecordingTransport):
        looked = 0

        def rejoin(self) -> bool:
            self.looked += 1
            if self.looked == 1:
                raise ZeroDivisionError
            return False

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "INTERFACES_S", 0.01)
        patch.setattr(base_loop, "INTERFACES_S", 0.01)
        async with memory_buses() as (network, open_over):
            transport = Broken(network)
            open_over(transport)
            assert await until(lambda: transport.looked > 2)
            assert len([r for r in caplog.records if "this is a bug" in r.getMessage()]) == 1
