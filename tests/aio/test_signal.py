"""Waking every task that waits."""

from __future__ import annotations

import asyncio

from jsonbus.aio.signal import Signal
from tests.aio.running import asynctest


@asynctest
async def test_all_who_wait_are_woken_and_nobody_who_comes_later() -> None:
    signal = Signal(asyncio.get_running_loop())
    early = [asyncio.create_task(signal.wait()) for _ in range(3)]
    await asyncio.sleep(0)
    signal.fire()
    late = asyncio.create_task(signal.wait())
    await asyncio.wait_for(asyncio.gather(*early), 30)
    assert not late.done()
    signal.fire()
    await asyncio.wait_for(late, 30)


@asynctest
async def test_one_who_was_cancelled_is_no_trouble() -> None:
    signal = Signal(asyncio.get_running_loop())
    staying, leaving = (asyncio.create_task(signal.wait()) for _ in range(2))
    await asyncio.sleep(0)
    leaving.cancel()
    signal.fire()
    await asyncio.wait_for(staying, 30)
    assert (await asyncio.gather(leaving, return_exceptions=True))[0] is not None
    signal.fire()
