"""A publisher that is faster than the rate limit, or than receivers on this host."""

from __future__ import annotations

import asyncio

import pytest

from jsonbus.core import pacing
from jsonbus.frontend import outgoing as base_outgoing
from jsonbus.transport import TransportInfo
from tests.aio.running import asynctest, memory_buses, until
from tests.sync.transports import RecordingTransport

BUFFER_BYTES = 1 << 20


class FullTransport(RecordingTransport):
    """Tells of a receive buffer on this host that is full."""

    queued = BUFFER_BYTES

    def describe(self) -> TransportInfo:
        return super().describe()._replace(queue_bytes_max=BUFFER_BYTES)

    def queued_bytes(self) -> int | None:
        return self.queued


@asynctest
async def test_nothing_leaves_while_a_receiver_is_full_and_everything_afterwards(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pacing, "STUCK_S", 3600.0)
    async with memory_buses() as (network, open_over):
        transport = FullTransport(network)
        bus = open_over(transport, mode="basic")
        for number in range(1000):
            assert await bus.publish("x", number)
        waits = bus.stats()["pacing_waits"]
        assert await until(lambda: bus.stats()["pacing_waits"] > waits + 2)
        assert transport.messages() == []
        assert not await bus.flush(timeout=0)
        transport.queued = 0
        assert await bus.flush(timeout=30)
        assert [value for _, value in transport.messages()] == list(range(1000))
        assert bus.stats()["pacing_given_up"] == 0


@asynctest
async def test_publishers_wait_for_a_full_receiver_and_the_event_loop_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pacing, "STUCK_S", 3600.0)
    monkeypatch.setattr(base_outgoing, "OUTPUT_BYTES_MAX", 10_000)
    async with memory_buses() as (network, open_over):
        transport = FullTransport(network)
        bus = open_over(transport, mode="basic")
        published: list[int] = []

        async def publish() -> None:
            for number in range(5000):
                await bus.publish("x", [number, "a value of some length"])
                published.append(number)

        publishing = asyncio.create_task(publish())
        assert await until(lambda: bus.stats()["pacing_waits"] > 5)
        # What fills the output, and at most another datagram before it is looked at.
        assert 100 < len(published) < 1000
        assert transport.messages() == []
        transport.queued = 0
        await asyncio.wait_for(publishing, 60)
        assert await bus.flush(timeout=30)
        assert [value[0] for _, value in transport.messages()] == list(range(5000))


@asynctest
async def test_a_receiver_that_never_reads_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pacing, "STUCK_S", 0.0)
    async with memory_buses() as (network, open_over):
        transport = FullTransport(network)
        bus = open_over(transport, mode="basic")
        for number in range(1000):
            await bus.publish("x", number)
        assert await bus.flush(timeout=30)
        assert [value for _, value in transport.messages()] == list(range(1000))
        assert bus.stats()["pacing_given_up"] >= 1


@asynctest
async def test_a_rate_limit_makes_datagrams_wait_and_loses_nothing() -> None:
    async with memory_buses() as (network, open_over):
        transport = RecordingTransport(network)
        bus = open_over(transport, mode="basic", rate_limit=1_000_000.0)
        for number in range(1000):
            await bus.publish("x", [number, "x" * 100])
        assert await bus.flush(timeout=30)
        assert [value[0] for _, value in transport.messages()] == list(range(1000))
        assert bus.stats()["pacing_waits"] > 0


@asynctest
async def test_closing_does_not_wait_for_a_full_receiver_longer_than_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pacing, "STUCK_S", 3600.0)
    async with memory_buses() as (network, open_over):
        transport = FullTransport(network)
        bus = open_over(transport, mode="basic")
        await bus.publish("x", 1)
        await bus.close(timeout=0.01)
        assert transport.messages() == []
        assert bus.stats()["datagrams_unsent"] >= 1
