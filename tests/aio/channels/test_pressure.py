"""Who does not read holds up who sends, and nobody else; memory has a bound."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

import jsonbus
from jsonbus.aio.channel import Channel
from jsonbus.core.channel.budget import Budget
from jsonbus.errors import ChannelClosedError, ChannelTimeoutError
from tests.aio.channels.channel_pair import InTask, Pair, fill, open_pair
from tests.aio.running import asynctest, buses, until
from tests.channel_peers import BLOCK, LONG_S


async def open_more(pair: Pair) -> tuple[Channel, Channel]:
    """Another channel between the same two."""
    here = await pair.calling.connect("bound", "p", timeout=LONG_S, retry=True)
    return here, await pair.binding.accept(LONG_S)


@pytest.mark.parametrize("closes", ["here", "there", "calling", "bound"])
@asynctest
async def test_who_waits_for_room_is_woken_when_somebody_closes(closes: str) -> None:
    async with buses() as open_bus:
        pair = await open_pair(open_bus)
        await fill(pair.here, pair.there)

        async def send() -> None:
            while True:  # who closes reads on until it is confirmed: there may be room before
                await pair.here.send(BLOCK)

        sending = [InTask(send()) for _ in range(3)]
        assert await until(lambda: len(pair.here._room._waiters) == 3)
        closing = InTask(getattr(pair, closes).close(0.3))
        for each in sending:
            with pytest.raises(ChannelClosedError):
                await each.result()
        await closing.result()


@asynctest
async def test_a_slow_handler_holds_up_who_sends_to_it() -> None:
    async with buses() as open_bus:
        here, there, *_ = await open_pair(open_bus)
        go_on = asyncio.Event()
        heard: list[bytes] = []

        async def handle(value: bytes) -> None:
            await go_on.wait()
            heard.append(value)

        there.on_message(handle)
        count = await fill(here, there)
        assert not here.try_send(BLOCK)
        go_on.set()
        await here.send(b"last", LONG_S)
        assert await until(lambda: len(heard) == count + 1)
        assert heard[-1] == b"last"


# --- All channels of a bus together ---------------------------------------------------------------


def set_budget(bus: jsonbus.AsyncBus, bytes_max: int, each_bytes: int) -> Any:
    """Give a bus less memory for the messages of its channels; returns its manager."""
    assert bus._loop.channels is not None
    manager = bus._loop.channels.manager
    manager.budget = Budget(bytes_max, each_bytes)
    return manager


@asynctest
async def test_waiting_for_a_message_while_memory_is_short_costs_nothing() -> None:
    async with buses() as open_bus:
        pair = await open_pair(open_bus)
        here, there = await open_more(pair)
        manager = set_budget(pair.bound, 256 << 10, 64 << 10)
        await pair.here.send(bytes(1 << 20))
        assert await until(lambda: pair.there.pending == 1)
        assert await until(lambda: manager.budget.is_short)
        waiting = InTask(there.receive(LONG_S))
        assert await until(lambda: there._changed._waiters)
        before_s = time.process_time()
        with pytest.raises(ChannelTimeoutError):
            await here.receive(0.2)
        assert time.process_time() - before_s < 0.1
        await here.send("now")
        assert await waiting.result() == "now"
