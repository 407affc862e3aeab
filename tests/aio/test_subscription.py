"""Reading a subscription: waiting, order, overflow, cancelling, the end."""

from __future__ import annotations

import asyncio
import logging
import weakref
from dataclasses import dataclass

import pytest

import jsonbus
from jsonbus.aio.subscription import Subscription
from jsonbus.errors import LocalError
from tests.aio.running import asynctest, buses, memory_buses, until


async def take_all(subscription: Subscription) -> list[object]:
    """What is pending now."""
    return [(await subscription.get(timeout=0)).value for _ in range(subscription.pending)]


@asynctest
async def test_a_reader_that_is_cancelled_takes_no_message_with_it() -> None:
    async with buses() as open_bus:
        bus = open_bus()
        subscription = bus.subscribe("x")
        first, second = (asyncio.create_task(subscription.get()) for _ in range(2))
        await asyncio.sleep(0)
        await bus.publish("x", 1)  # wakes the first, which is cancelled before it can run
        first.cancel()
        assert (await asyncio.wait_for(second, 30)).value == 1
        assert first.cancelled()
        third = asyncio.create_task(subscription.get())
        await asyncio.sleep(0)
        third.cancel()
        await asyncio.sleep(0)
        await bus.publish("x", 2)
        assert (await subscription.get(timeout=30)).value == 2


@asynctest
async def test_block_keeps_everything_for_a_task_that_publishes_before_it_reads() -> None:
    async with buses() as open_bus:
        bus = open_bus()
        subscription = bus.subscribe("x", maxsize=2, overflow="block")
        for number in range(10):
            await bus.publish("x", number)
        assert (subscription.pending, subscription.dropped) == (10, 0)
        assert await take_all(subscription) == list(range(10))
        # The same task has read by now: it would wait for itself.
        for number in range(10):
            await bus.publish("x", number)
        assert await take_all(subscription) == list(range(10))


@asynctest
async def test_block_makes_a_publisher_wait_for_another_task_that_reads() -> None:
    async with buses() as open_bus:
        bus = open_bus()
        subscription = bus.subscribe("x", maxsize=4, overflow="block")
        may_read = asyncio.Semaphore(0)
        got: list[object] = []

        async def read() -> None:
            async for message in subscription:
                got.append(message.value)
                await may_read.acquire()

        published: list[int] = []

        async def publish() -> None:
            for number in range(20):
                await bus.publish("x", number)
                published.append(number)

        reader = asyncio.create_task(read())
        await bus.publish("x", "first")
        assert await until(lambda: got == ["first"])

        publisher = asyncio.create_task(publish())
        # Four fit; the fifth is there, but its publish waits.
        assert await until(lambda: subscription.pending == 5)
        assert published == [0, 1, 2, 3]
        for _ in range(100):
            may_read.release()
        await asyncio.wait_for(publisher, 30)
        assert await until(lambda: len(got) == 21)
        assert got == ["first", *range(20)]
        subscription.close()
        await reader


@asynctest
async def test_closing_ends_a_publisher_that_waits() -> None:
    async with buses() as open_bus:
        bus = open_bus()
        subscription = bus.subscribe("x", maxsize=1, overflow="block")
        done = asyncio.Event()

        async def read_one_and_stay() -> None:
            await subscription.get()
            await done.wait()

        reader = asyncio.create_task(read_one_and_stay())
        await asyncio.sleep(0)
        await bus.publish("x", 0)
        publishers = [asyncio.create_task(bus.publish("x", n)) for n in range(3)]
        assert await until(lambda: subscription.pending == 3)
        subscription.close()
        assert await asyncio.wait_for(asyncio.gather(*publishers), 30) == [True] * 3
        assert bus.stats()["messages_unread"] == 3
        assert subscription.dropped == 0
        done.set()
        await reader


@asynctest
async def test_a_subscription_with_a_handler_is_not_read() -> None:
    async with buses() as open_bus:
        subscription = open_bus().subscribe("x", print)
        with pytest.raises(LocalError, match="handler"):
            await subscription.get(timeout=0)
        with pytest.raises(LocalError, match="handler"):
            async for _ in subscription:
                pass


@dataclass
class Reading:
    temp: float


@asynctest
async def test_a_handler_that_is_too_slow_with_error_is_warned_of(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with buses() as open_bus:
        bus = open_bus()
        go_on = asyncio.Event()
        got: list[object] = []

        async def handler(message: jsonbus.Message) -> None:
            got.append(message.value)
            await go_on.wait()

        subscription = bus.subscribe("x", handler, maxsize=1, overflow="error")
        with caplog.at_level(logging.WARNING, "jsonbus.bus"):
            await bus.publish("x", 0)
            assert await until(lambda: got == [0])
            for number in range(1, 4):
                await bus.publish("x", number)
            go_on.set()
            assert await until(lambda: "lost 2 messages" in caplog.text)
        assert subscription.dropped == 2


@asynctest
async def test_a_bus_lives_as_long_as_one_of_its_subscriptions() -> None:
    async with memory_buses() as (network, open_over):

        def open_and_keep_the_subscription() -> tuple[Subscription, weakref.ref[jsonbus.AsyncBus]]:
            bus = jsonbus.AsyncBus.over(network.open())
            return bus.subscribe("x"), weakref.ref(bus)

        subscription, bus = open_and_keep_the_subscription()
        publisher = open_over(network.open())
        assert await publisher.wait_for_subscribers("x", timeout=30)
        await publisher.publish("x", 1)
        assert (await subscription.get(timeout=30)).value == 1
        kept = bus()
        assert kept is not None
        await kept.close()


@asynctest
async def test_a_handler_may_take_messages_in_batches(caplog: pytest.LogCaptureFixture) -> None:
    async with buses() as open_bus:
        bus = open_bus()
        go_on = asyncio.Event()
        batches: list[list[object]] = []

        async def handle(messages: list[jsonbus.Message]) -> None:
            batches.append([each.value for each in messages])
            await go_on.wait()
            if 5 in batches[-1]:
                raise RuntimeError("not five")

        bus.subscribe("x", handle, in_batches=True)
        await bus.publish("x", 0)
        assert await until(lambda: batches == [[0]])
        for number in range(1, 10):
            await bus.publish("x", number)
        go_on.set()
        assert await until(lambda: sum(batches, []) == list(range(10)))
        assert len(batches) < 10
        assert await until(lambda: "failed on" in caplog.text)
        await bus.publish("x", 10)
        assert await until(lambda: batches[-1] == [10])


@asynctest
async def test_a_subscription_tells_whether_its_handler_has_done_all() -> None:
    async with buses() as open_bus:
        bus = open_bus()
        began, go_on = asyncio.Event(), asyncio.Event()

        async def handle(message: jsonbus.Message) -> None:
            began.set()
            await go_on.wait()

        subscription = bus.subscribe("x", handle)
        assert not subscription.is_handling
        await bus.publish("x", 0)
        await began.wait()
        assert subscription.is_handling and not subscription.pending
        go_on.set()
        assert await until(lambda: not subscription.is_handling)
