"""Calls about channels that are cancelled: nothing is lost, spoilt or left behind."""

from __future__ import annotations

import asyncio
import random

import pytest

from jsonbus.errors import ChannelClosedError
from tests.aio.channels.channel_pair import InTask, fill, open_pair
from tests.aio.running import asynctest, buses, until
from tests.channel_peers import LONG_S


@asynctest
async def test_a_cancelled_wait_leaves_everything_as_it_was() -> None:
    async with buses() as open_bus:
        here, there, calling, _, binding = await open_pair(open_bus)
        count = await fill(here, there)
        for wait in (
            here.receive(),
            here.receive(LONG_S),
            binding.accept(),
            binding.accept(LONG_S),
            here.send(b"not sent"),
            here.send(b"not sent", LONG_S),
            calling.connect("nobody", "p", timeout=LONG_S, retry=True),
        ):
            task = asyncio.create_task(wait)
            await asyncio.sleep(0.01)
            assert not task.done()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        assert here.sent == count
        sending = InTask(here.send("sent"))
        for _ in range(count):
            assert await there.receive(LONG_S) != b"not sent"
        assert await there.receive(LONG_S) == "sent"
        await sending.result()
        await there.send("back")
        assert await here.receive(LONG_S) == "back"
        assert await until(lambda: calling.stats()["channel_attempts_failed"] == 1)
        await calling.connect("bound", "p", timeout=LONG_S, retry=True)
        await binding.accept(LONG_S)


@asynctest
async def test_a_connect_cancelled_anywhere_leaves_no_channel_open() -> None:
    async with buses() as open_bus:
        calling, bound = open_bus(), open_bus(name="desk")
        bound.bind("p", lambda channel: None)
        for turns in range(40):
            connecting = asyncio.create_task(
                calling.connect("desk", "p", timeout=LONG_S, retry=True)
            )
            for _ in range(turns):
                await asyncio.sleep(0)
            connecting.cancel()
            try:
                await (await connecting).close(LONG_S)
            except asyncio.CancelledError:
                pass
        assert await until(lambda: calling.stats()["channels_open"] == 0)
        assert await until(lambda: bound.stats()["channels_open"] == 0)


@asynctest
async def test_receivers_and_senders_that_are_cancelled_lose_no_message() -> None:
    async with buses() as open_bus:
        here, there, *_ = await open_pair(open_bus)
        dice = random.Random(1)
        sent, received = [], []

        async def send() -> None:
            number = 0
            while number < 300:
                sending = asyncio.create_task(here.send([number, bytes(20_000).hex()]))
                await asyncio.sleep(dice.choice((0, 0, 0.0005)))
                if not sending.done():
                    sending.cancel()
                try:
                    await sending
                    sent.append(number)
                except asyncio.CancelledError:
                    pass
                number += 1
            assert await here.close(LONG_S)

        async def receive() -> None:
            while True:
                receiving = asyncio.create_task(there.receive())
                await asyncio.sleep(dice.choice((0, 0, 0.0005)))
                if not receiving.done():
                    receiving.cancel()
                try:
                    received.append((await receiving)[0])
                except asyncio.CancelledError:
                    pass

        sending, receiving = InTask(send()), InTask(receive())
        await sending.result()
        with pytest.raises(ChannelClosedError):
            await receiving.result()
        assert received == sent
