"""Where transport, clock and core meet, in an event loop."""

from __future__ import annotations

import asyncio
import time
from types import SimpleNamespace

import pytest

from jsonbus.aio import loop
from tests.aio.running import asynctest, memory_buses, until


@asynctest
async def test_a_clock_that_is_set_is_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    async with memory_buses() as (network, open_over):
        bus = open_over(network.open())
        subscription = bus.subscribe("x")
        an_hour_later = SimpleNamespace(time=lambda: time.time() + 3600)
        monkeypatch.setattr(loop, "time", an_hour_later)

        async def is_an_hour_later() -> bool:
            await bus.publish("x", None)
            return (await subscription.get(timeout=30)).sent_at > time.time() + 1800

        assert await until(is_an_hour_later)


@asynctest
async def test_looking_from_many_tasks_while_others_publish_is_safe() -> None:
    async with memory_buses() as (network, open_over):
        bus, other = open_over(network.open()), open_over(network.open())
        done = asyncio.Event()

        async def look() -> None:
            while not done.is_set():
                bus.stats()
                bus.nodes()
                bus.subscriptions()
                bus.explain("x/1")
                bus.has_subscribers("x/1")
                await asyncio.sleep(0)

        async def change() -> None:
            for number in range(100):
                with bus.subscribe(f"x/{number % 7}") as subscription:
                    await bus.publish(subscription.pattern, number)
                    await other.publish(subscription.pattern, number)
                    await asyncio.sleep(0)

        looking = [asyncio.create_task(look()) for _ in range(2)]
        await asyncio.wait_for(asyncio.gather(*(change() for _ in range(4))), 60)
        done.set()
        await asyncio.wait_for(asyncio.gather(*looking), 60)
        assert bus.subscriptions() == {}
