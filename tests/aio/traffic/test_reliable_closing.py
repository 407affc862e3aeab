"""A publisher that closes right after its last reliable message."""

from __future__ import annotations

import asyncio

import pytest

from tests.aio.running import asynctest, memory_buses


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
