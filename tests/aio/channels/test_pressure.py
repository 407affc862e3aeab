"""Who does not read holds up who sends, and nobody else; memory has a bound."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

import jsonbus
from jsonbus.aio.channel import Channel
from jsonbus.core.channel.budget import Budget
from jsonbus.core.channel.limits import INBOX_BYTES_MAX, OUTPUT_BYTES_MAX
from jsonbus.errors import ChannelClosedError, ChannelTimeoutError
from jsonbus.frontend.channels.manager import READ_BYTES
from tests.aio.channels.channel_pair import InTask, Pair, fill, open_pair
from tests.aio.running import asynctest, buses, until
from tests.channel_peers import BLOCK, LONG_S


async def open_more(pair: Pair) -> tuple[Channel, Channel]:
    """Another channel between the same two."""
    here = await pair.calling.connect("bound", "p", timeout=LONG_S, retry=True)
    return here, await pair.binding.accept(LONG_S)


@asynctest
async def test_who_does_not_read_holds_up_who_sends_and_nothing_is_lost() -> None:
    async with buses() as open_bus:
        here, there, *_ = await open_pair(open_bus)
        count = await fill(here, there)
        assert not here.try_send(b"no room")
        with pytest.raises(ChannelTimeoutError) as caught:
            await here.send(b"no room", timeout=0.01)
        assert (
            str(caught.value) == "there was no room for another message within 0.01 s (bound, 'p')"
        )
        with pytest.raises(ChannelTimeoutError):
            await here.send(b"no room", timeout=0)
        assert here.sent == count
        assert here._end is not None and there._end is not None
        assert here._end.output_bytes <= OUTPUT_BYTES_MAX + len(BLOCK) + 5
        assert there._end.inbox_bytes <= INBOX_BYTES_MAX + READ_BYTES + len(BLOCK)
        sending = InTask(here.send("at last"))
        for _ in range(count):
            assert await there.receive(LONG_S) == BLOCK
        assert await there.receive(LONG_S) == "at last"
        await sending.result()
        assert here.try_send("room again")
        assert await there.receive(LONG_S) == "room again"


@pytest.mark.slow
@asynctest
async def test_small_messages_fill_a_channel_too() -> None:
    async with buses() as open_bus:
        here, there, *_ = await open_pair(open_bus)
        for _ in range(80_000):
            await here.send(None)
        assert await until(
            lambda: there._connection is not None and not there._connection.interest[0]
        )
        assert there.pending < 45_000
        assert [await there.receive(LONG_S) for _ in range(80_000)] == [None] * 80_000


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


@asynctest
async def test_a_channel_that_is_full_or_flooded_does_not_hold_up_another() -> None:
    async with buses() as open_bus:
        pair = await open_pair(open_bus)
        here, there = await open_more(pair)
        flooding, flooded = await open_more(pair)
        await fill(pair.here, pair.there)
        stop = asyncio.Event()

        async def flood() -> None:
            while not stop.is_set():
                await flooding.send(BLOCK)
            await flooding.close(LONG_S)

        async def drain() -> int:
            return len([None async for _ in flooded])

        tasks = InTask(flood()), InTask(drain())
        for number in range(50):
            await here.send(number)
            assert await there.receive(LONG_S) == number
            await there.send(-number)
            assert await here.receive(LONG_S) == -number
        stop.set()
        for task in tasks:
            await task.result()


# --- All channels of a bus together ---------------------------------------------------------------


def set_budget(bus: jsonbus.AsyncBus, bytes_max: int, each_bytes: int) -> Any:
    """Give a bus less memory for the messages of its channels; returns its manager."""
    assert bus._loop.channels is not None
    manager = bus._loop.channels.manager
    manager.budget = Budget(bytes_max, each_bytes)
    return manager


@asynctest
async def test_large_messages_that_do_not_fit_together_come_one_after_the_other() -> None:
    async with buses() as open_bus:
        pair = await open_pair(open_bus)
        pairs = [(pair.here, pair.there)] + [await open_more(pair) for _ in range(4)]
        set_budget(pair.bound, 2 << 20, 64 << 10)
        large = [bytes([number]) * (1 << 20) for number in range(5)]

        async def send(number: int) -> None:
            for _ in range(4):
                await pairs[number][0].send(large[number])

        async def receive(number: int) -> None:
            for _ in range(4):
                assert await pairs[number][1].receive(LONG_S) == large[number]

        began_at = time.monotonic()
        calls = [InTask(each(number)) for number in range(5) for each in (send, receive)]
        for each in calls:
            await each.result()
        # Who waited for memory is told when there is some; the beats of its channel are no help.
        assert time.monotonic() - began_at < 1.9


@asynctest
async def test_messages_that_nobody_takes_do_not_keep_small_ones_from_others() -> None:
    async with buses() as open_bus:
        pair = await open_pair(open_bus)
        here, there = await open_more(pair)
        manager = set_budget(pair.bound, 256 << 10, 64 << 10)
        await pair.here.send(bytes(1 << 20))
        assert await until(lambda: pair.there.pending == 1)
        assert await until(lambda: manager.budget.is_short)
        for number in range(100):
            await here.send(number)
            assert await there.receive(LONG_S) == number
        await here.send(bytes(300 << 10))  # that is too much now
        with pytest.raises(ChannelTimeoutError):
            await there.receive(0.05)
        assert len(await pair.there.receive(LONG_S)) == 1 << 20
        assert len(await there.receive(LONG_S)) == 300 << 10
        assert await until(lambda: not manager.budget.is_short)


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
