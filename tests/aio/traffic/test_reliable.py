"""Reliable topics over networks that lose, in an event loop."""

from __future__ import annotations

import asyncio

import pytest

from jsonbus.errors import ClosedError, ConfigError
from tests.aio.running import asynctest, memory_buses, until


@asynctest
async def test_only_a_function_is_taken_and_only_by_an_open_bus() -> None:
    async with memory_buses() as (network, open_over):
        bus = open_over(network.open())
        with pytest.raises(ConfigError):
            bus.on_gap("print")  # type: ignore[arg-type]
        await bus.close()
        with pytest.raises(ClosedError):
            bus.on_gap(print)


@pytest.mark.slow
@asynctest
async def test_what_waits_for_the_network_is_not_more_than_can_be_repaired() -> None:
    async with memory_buses() as (network, open_over):
        transport = network.open()
        bus = open_over(transport, mode="basic")

        async def publish() -> None:
            for number in range(40_000):
                await bus.publish("t", number % 10, reliable=True)

        assert await bus.flush(timeout=30)
        transport.is_jammed = True
        publisher = asyncio.create_task(publish())
        assert await until(lambda: publisher.done() or bus.stats()["reliable_waits"])
        transport.is_jammed = False
        await publisher
        assert await bus.flush(timeout=30)
        assert bus._node.reliable._history.pushed_out == 0
