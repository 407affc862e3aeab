"""One timer for all of a node's."""

from __future__ import annotations

import asyncio
from time import monotonic

from jsonbus.aio.timer import Timer
from tests.aio.running import asynctest


@asynctest
async def test_an_alarm_rings_once_not_before_the_earliest_instant_it_was_set_to() -> None:
    rung: asyncio.Future[float] = asyncio.get_running_loop().create_future()
    timer = Timer(asyncio.get_running_loop(), lambda: rung.set_result(monotonic()))
    begun_at = monotonic()
    timer.set(begun_at + 600)
    timer.set(begun_at + 0.02)
    timer.set(begun_at + 300)
    assert await asyncio.wait_for(rung, 30) >= begun_at + 0.015


@asynctest
async def test_an_alarm_may_be_set_again_by_whom_it_wakes() -> None:
    rings: list[float] = []
    third = asyncio.Event()

    def ring() -> None:
        rings.append(monotonic())
        if len(rings) == 3:
            third.set()
        else:
            timer.set(monotonic())

    timer = Timer(asyncio.get_running_loop(), ring)
    timer.set(monotonic() - 1)
    await asyncio.wait_for(third.wait(), 30)


@asynctest
async def test_a_cancelled_alarm_does_not_ring() -> None:
    rung: list[int] = []
    timer = Timer(asyncio.get_running_loop(), lambda: rung.append(1))
    timer.cancel()
    timer.set(monotonic())
    timer.cancel()
    for _ in range(10):
        await asyncio.sleep(0.001)
    assert rung == []
