"""Receiving: what holds it up, what does not, what it survives."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

import pytest

import jsonbus
from jsonbus.aio import loop, receiving
from jsonbus.core import pacing
from jsonbus.frontend import loop as base_loop
from jsonbus.transport import MemoryNetwork
from tests.aio.running import asynctest, buses, memory_buses, until
from tests.sync.transports import RecordingTransport


@asynctest
async def test_a_full_mailbox_with_block_stops_receiving_and_loses_nothing() -> None:
    async with buses() as open_bus:
        publisher, reader = open_bus(batching=False), open_bus()
        subscription = reader.subscribe("x", maxsize=4, overflow="block")
        assert await publisher.wait_for_subscribers("x", timeout=30)
        for number in range(40):
            await publisher.publish("x", number)
        assert await until(lambda: subscription.pending >= 4)
        got = [(await subscription.get(timeout=30)).value for _ in range(40)]
        assert got == list(range(40))
        assert subscription.dropped == 0


@asynctest
async def test_what_the_kernel_drops_while_a_mailbox_is_full_is_counted() -> None:
    async with memory_buses() as (network, open_over):
        publisher = open_over(network.open(), batching=False)
        reader = open_over(network.open(buffer_datagrams=4))
        subscription = reader.subscribe("x", maxsize=2, overflow="block")
        assert await publisher.wait_for_subscribers("x", timeout=30)
        for number in range(40):
            await publisher.publish("x", number)
            await asyncio.sleep(0)
        assert await until(lambda: reader.stats()["kernel_drops"] > 0)
        got = [(await subscription.get(timeout=30)).value for _ in range(3)]
        assert got == [0, 1, 2]


@pytest.mark.slow
@asynctest
async def test_a_bus_that_is_held_up_still_lives() -> None:
    async with memory_buses() as (network, open_over):
        publisher, reader = open_over(network.open()), open_over(network.open())
        subscription = reader.subscribe("x", maxsize=1, overflow="block")
        assert await publisher.wait_for_subscribers("x", timeout=30)
        await publisher.publish("x", 0)
        assert await until(lambda: subscription.pending)
        sent = reader.stats()["presences_sent"]
        assert await until(lambda: reader.stats()["presences_sent"] > sent)
        assert await reader.publish("x", 1)  # its own subscription wants it
        assert [(await subscription.get(timeout=30)).value for _ in range(2)] == [0, 1]
        await publisher.publish("x", 2)
        assert (await subscription.get(timeout=30)).value == 2


@asynctest
async def test_closing_the_subscription_that_holds_up_lets_the_others_go_on() -> None:
    async with buses() as open_bus:
        publisher, reader = open_bus(batching=False), open_bus()
        full = reader.subscribe("x", maxsize=1, overflow="block")
        other = reader.subscribe("x")
        assert await publisher.wait_for_subscribers("x", timeout=30)
        for number in range(20):
            await publisher.publish("x", number)
        assert await until(lambda: full.pending)
        full.close()
        got = [(await other.get(timeout=30)).value for _ in range(20)]
        assert got == list(range(20))


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


@pytest.mark.slow
@asynctest
async def test_after_not_listening_for_long_a_node_doubts_what_it_knows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(base_loop, "DEAF_S", 0.0)
    async with memory_buses() as (network, open_over):
        publisher, reader = open_over(network.open()), open_over(network.open())
        subscription = reader.subscribe("x", maxsize=1, overflow="block")
        assert await publisher.wait_for_subscribers("x", timeout=30)
        assert await reader.wait_until_sure(timeout=30)
        announced = reader.stats()["announcements_sent"]
        await publisher.publish("x", 0)
        assert (await subscription.get(timeout=30)).value == 0
        assert await until(lambda: reader.stats()["announcements_sent"] > announced)


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
            stranger.send(datagram)
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


@asynctest
async def test_bad_datagrams_are_counted_and_warned_of_and_stop_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with memory_buses() as (network, open_over):
        bus = open_over(network.open())
        subscription = bus.subscribe("x")
        stranger = network.open()
        with caplog.at_level(logging.WARNING, "jsonbus.bus"):
            for _ in range(3):
                stranger.send(b"\xff\x00 not json\nforged line")
            stranger.send(b'{"topic":"x","payload":1}')
            assert (await subscription.get(timeout=30)).value == 1
        stranger.close()
        assert bus.stats()["datagrams_rejected"] == 3
        assert await until(lambda: "dropped" in caplog.text)
        warnings = [r.getMessage() for r in caplog.records if "dropped" in r.getMessage()]
        assert len(warnings) == 1
        assert "\n" not in warnings[0]


@asynctest
async def test_a_bug_in_the_loop_is_logged_and_the_loop_goes_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Broken(RecordingTransport):
        failures = 2

        def receive(self, sock):  # type: ignore[no-untyped-def]
            received = super().receive(sock)
            if received is not None and b'"break"' in received[0] and self.failures:
                self.failures -= 1
                raise ZeroDivisionError
            return received

    async with memory_buses() as (network, open_over):
        bus = open_over(Broken(network))
        subscription = bus.subscribe("**")
        sensor = network.open()
        for _ in range(3):
            sensor.send(b'{"topic":"break","payload":1}')
        assert (await subscription.get(timeout=30)).topic == "break"
        sensor.close()
        assert len([r for r in caplog.records if "this is a bug" in r.getMessage()]) == 2


@asynctest
async def test_an_unusable_socket_is_warned_of_once_and_tried_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Broken(RecordingTransport):
        failures = 3

        def receive(self, sock):  # type: ignore[no-untyped-def]
            if self.failures:
                self.failures -= 1
                raise jsonbus.errors.TransportError("cannot receive: the cable is cut")
            return super().receive(sock)

    async with memory_buses() as (network, open_over):
        bus = open_over(Broken(network))
        subscription = bus.subscribe("x")
        sensor = network.open()
        sensor.send(b'{"topic":"x","payload":1}')
        assert (await subscription.get(timeout=30)).value == 1
        sensor.close()
        assert len([r for r in caplog.records if "cable" in r.getMessage()]) == 1


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
