"""A publisher that closes right after its last reliable message."""

from __future__ import annotations

import asyncio

import pytest

from tests.aio.running import asynctest, memory_buses
from tests.sync.traffic.test_reliable_closing import ForgetfulTransport


@asynctest
async def test_what_was_lost_of_the_last_messages_is_repaired_before_the_bus_is_gone() -> None:
    async with memory_buses() as (network, open_over):
        reader = open_over(network.open())
        subscription = reader.subscribe("t")
        transport = ForgetfulTransport(network, b'"the last one"', times=2)
        async with open_over(transport, reliable=True) as publisher:
            assert await publisher.wait_for_subscribers("t", timeout=30)
            assert await publisher.publish("t", "first")
            assert (await subscription.get(timeout=30)).value == "first"
            assert await publisher.publish("t", "the last one")
        assert publisher.is_closed
        assert transport.times == 0
        assert (await subscription.get(timeout=30)).value == "the last one"
        assert reader.stats()["messages_lost"] == 0


@asynctest
async def test_a_close_that_is_cancelled_while_it_stays_closes_at_once() -> None:
    async with memory_buses() as (network, open_over):
        reader, publisher = open_over(network.open()), open_over(network.open())
        reader.subscribe("t")
        assert await publisher.wait_for_subscribers("t", timeout=30)
        assert await publisher.publish("t", 1, reliable=True)
        closing = asyncio.create_task(publisher.close())
        await asyncio.sleep(0)
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        assert publisher.is_closed
