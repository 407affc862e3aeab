"""Sending: at once when idle, together under load, in order, and never lost without a count."""

from __future__ import annotations

import asyncio

import pytest

from jsonbus.aio import loop, outgoing
from jsonbus.frontend import loop as base_loop
from jsonbus.frontend import outgoing as base_outgoing
from jsonbus.frontend.opening import LOOPBACK_DATAGRAM_BYTES
from jsonbus.transport import TransportInfo
from jsonbus.transport.base import Interface
from tests.aio.running import asynctest, buses, memory_buses, until
from tests.sync.transports import RecordingTransport

# Mode basic sends everything from the start: no joining, no lists. Its heartbeats may still come in
# between; no test may depend on there being none.


@asynctest
async def test_a_lone_publish_has_left_when_it_returns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base_outgoing, "LINGER_S", 0.0)  # each is alone, however soon after another
    async with memory_buses() as (network, open_over):
        transport = RecordingTransport(network)
        bus = open_over(transport, mode="basic")
        assert await bus.flush(timeout=30)
        for number in range(10):
            await bus.publish("x", number)
            assert transport.messages()[-1] == ("x", number)


@pytest.mark.parametrize("turns", [0, 1])
@asynctest
async def test_what_is_published_in_one_turn_after_another_shares_datagrams(
    monkeypatch: pytest.MonkeyPatch, turns: int
) -> None:
    monkeypatch.setattr(base_outgoing, "LINGER_S", 3600.0)
    async with memory_buses() as (network, open_over):
        transport = RecordingTransport(network)
        bus = open_over(transport, mode="basic")
        assert await bus.flush(timeout=30)
        for number in range(11):
            await bus.publish("x", number)
            for _ in range(turns):
                await asyncio.sleep(0)
        assert transport.batches() == [[("x", 0)]]
        # One turn in which nothing comes, and what queued leaves by itself.
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert transport.batches() == [[("x", 0)], [("x", number) for number in range(1, 11)]]


@asynctest
async def test_messages_that_fill_a_datagram_do_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base_outgoing, "LINGER_S", 3600.0)
    monkeypatch.setattr(outgoing, "TURN_BYTES_MAX", 1 << 30)  # nobody has to yield
    async with memory_buses() as (network, open_over):
        transport = RecordingTransport(network)
        bus = open_over(transport, mode="basic", datagram_bytes_max=1400)
        assert await bus.flush(timeout=30)
        for number in range(1000):
            await bus.publish("x", [number, "a value of some length"])
        batches = transport.batches()
        assert len(batches[0]) == 1
        assert all(20 < len(batch) <= 100 for batch in batches[1:])
        assert 900 < len(transport.messages()) <= 1000
        assert all(len(datagram) <= 1400 for datagram in transport.sent)
        assert await bus.flush(timeout=30)
        assert [value[0] for _, value in transport.messages()] == list(range(1000))
        assert bus.stats()["messages_sent"] == bus.stats()["messages_published"] == 1000


@asynctest
async def test_messages_that_fill_a_datagram_each_leave_together_in_a_flood(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(base_outgoing, "LINGER_S", 3600.0)
    async with memory_buses() as (network, open_over):
        transport = RecordingTransport(network)
        bus = open_over(transport, mode="basic", datagram_bytes_max=1400)
        assert await bus.flush(timeout=30)
        before = len(transport.runs)
        for number in range(200):
            await bus.publish("x", [number, "x" * 1000])
        assert await bus.flush(timeout=30)
        runs = [len(run) for run in transport.runs[before:]]
        assert runs[0] == 1  # not yet a flood
        assert max(runs) > base_outgoing.BATCH_DATAGRAMS_MAX // 2
        assert len(runs) < 60
        assert [value[0] for _, value in transport.messages()] == list(range(200))


@asynctest
async def test_messages_of_all_sizes_and_topics_keep_their_order() -> None:
    async with memory_buses() as (network, open_over):
        transport = RecordingTransport(network)
        bus = open_over(transport, mode="basic")
        sizes = (1, 10, 3000, 1, 1, 500, 20_000, 1, 1500)
        for number in range(500):
            value = [number, "x" * sizes[number % len(sizes)]]
            await bus.publish(f"topic/{number % 4}", value)
            if number % 50 == 0:
                await asyncio.sleep(0)
        assert await bus.flush(timeout=30)
        assert [value[0] for _, value in transport.messages()] == list(range(500))


@asynctest
async def test_a_publisher_that_never_yields_is_sent_for_and_lets_others_run() -> None:
    async with memory_buses() as (network, open_over):
        transport = RecordingTransport(network)
        bus = open_over(transport, mode="basic")
        turns: list[int] = []

        async def watch() -> None:
            while True:
                turns.append(len(transport.messages()))
                await asyncio.sleep(0)

        watching = asyncio.create_task(watch())
        for number in range(500):
            await bus.publish("x", [number, "x" * 1000])
        watching.cancel()
        assert len(set(turns)) > 2
        assert await bus.flush(timeout=30)
        assert [value[0] for _, value in transport.messages()] == list(range(500))


@pytest.mark.slow
@asynctest
async def test_publishing_what_nobody_wants_without_a_pause_lets_others_run() -> None:
    async with buses() as open_bus:
        publisher, reader = open_bus(), open_bus()
        assert await publisher.wait_until_sure(timeout=30)
        asyncio.get_running_loop().call_later(0.05, reader.subscribe, "x")
        deadline = asyncio.get_running_loop().time() + 60
        while not publisher.has_subscribers("x"):
            await publisher.publish("x", 1)
            assert asyncio.get_running_loop().time() < deadline


@asynctest
async def test_a_datagram_the_kernel_had_no_room_for_is_sent_later_and_once() -> None:
    async with memory_buses() as (network, open_over):
        transport = RecordingTransport(network)
        bus = open_over(transport, mode="basic")
        assert await bus.flush(timeout=30)
        transport.inner.is_jammed = True
        assert await bus.publish("x", 1)
        assert await bus.publish("x", 2)
        assert transport.messages() == []
        transport.inner.is_jammed = False
        assert await bus.flush(timeout=30)
        assert transport.messages() == [("x", 1), ("x", 2)]
        assert bus.stats()["datagrams_unsent"] == 0


@asynctest
async def test_publishers_that_outrun_the_network_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base_outgoing, "STALL_S", 600.0)
    async with memory_buses() as (network, open_over):
        transport = RecordingTransport(network)
        bus = open_over(transport, mode="basic")
        assert await bus.flush(timeout=30)
        transport.inner.is_jammed = True
        published: list[int] = []
        value = "x" * 10_000

        async def publish(pause_s: float | None) -> None:
            for number in range(300):
                await bus.publish("big", [number, value])
                published.append(number)
                if pause_s is not None:
                    await asyncio.sleep(pause_s)

        publishers = [asyncio.create_task(publish(None)), asyncio.create_task(publish(0))]
        assert await until(lambda: len(published) >= base_outgoing.OUTPUT_BYTES_MAX // 12_500)
        assert len(published) <= base_outgoing.OUTPUT_BYTES_MAX // 10_000 + 2
        transport.inner.is_jammed = False
        await asyncio.wait_for(asyncio.gather(*publishers), 60)
        assert await bus.flush(timeout=60)
        numbers = [message[1][0] for message in transport.messages()]
        assert sorted(numbers) == sorted([*range(300)] * 2)


@asynctest
async def test_what_gathers_when_the_bus_is_closed_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base_outgoing, "LINGER_S", 3600.0)
    async with memory_buses() as (network, open_over):
        transport = RecordingTransport(network)
        bus = open_over(transport, mode="basic")
        for number in range(20):
            await bus.publish("x", number)
        assert len(transport.messages()) < 20
        await bus.close()
        assert [value for _, value in transport.messages()] == list(range(20))
        assert bus.stats()["datagrams_unsent"] == 0


@pytest.mark.slow
@asynctest
async def test_datagrams_are_as_large_as_the_path_allows(monkeypatch: pytest.MonkeyPatch) -> None:
    class Moving(RecordingTransport):
        address = "127.0.0.1"
        moves = 0

        def describe(self) -> TransportInfo:
            interface = Interface("some", self.address, index=1)
            return super().describe()._replace(interfaces=(interface,))

        def rejoin(self) -> bool:
            self.moves += 1
            return True

    monkeypatch.setattr(loop, "INTERFACES_S", 0.01)
    monkeypatch.setattr(base_loop, "INTERFACES_S", 0.01)
    async with memory_buses() as (network, open_over):
        transport = Moving(network)
        bus = open_over(transport, mode="basic")

        async def publish() -> list[int]:
            begin = len(transport.sent)
            for number in range(300):
                await bus.publish("x", [number, "a value of some length"])
            assert await bus.flush(timeout=30)
            return [len(datagram) for datagram in transport.sent[begin:]]

        assert 1400 < max(await publish()) <= LOOPBACK_DATAGRAM_BYTES
        transport.address = "192.0.2.1"
        moves = transport.moves
        assert await until(lambda: transport.moves > moves + 1)
        assert 1000 < max(await publish()) <= 1400
