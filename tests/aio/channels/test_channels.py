"""Ports that are bound, and attempts to connect to them: granted, refused, repeated."""

from __future__ import annotations

import asyncio
import threading

from tests.aio.channels.channel_pair import InTask
from tests.aio.running import asynctest, buses
from tests.channel_peers import LONG_S, count_descriptors


@asynctest
async def test_many_tasks_accept_and_each_channel_goes_to_one() -> None:
    async with buses() as open_bus:
        calling, bound = open_bus(), open_bus(name="desk")
        binding = bound.bind("p")
        accepting = [InTask(binding.accept(LONG_S)) for _ in range(8)]
        for number in range(8):
            await (await calling.connect("desk", "p", timeout=LONG_S, retry=True)).send(number)
        accepted = [await each.result() for each in accepting]
        assert sorted([await each.receive(LONG_S) for each in accepted]) == list(range(8))


@asynctest
async def test_a_channel_costs_no_thread_and_no_task_however_many_there_are() -> None:
    async with buses() as open_bus:
        calling, bound = open_bus(), open_bus(name="desk")
        threads, tasks = threading.active_count(), len(asyncio.all_tasks())
        descriptors = count_descriptors()
        binding = bound.bind("p")
        for _ in range(20):
            await calling.connect("desk", "p", timeout=LONG_S, retry=True)
            await binding.accept(LONG_S)
        assert (threading.active_count(), len(asyncio.all_tasks())) == (threads, tasks)
        assert count_descriptors() >= descriptors + 40
        await calling.close()
        await bound.close()
        assert count_descriptors() < descriptors
