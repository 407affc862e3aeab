"""Reading a subscription: waiting, order, overflow, cancelling, the end."""

from __future__ import annotations

import asyncio
import logging
import weakref
from dataclasses import dataclass

import pytest

import jsonbus
from jsonbus.aio.subscription import Subscription
from jsonbus.errors import ClosedError, InvalidTopicError, LocalError, QueueFullError
from tests.aio.running import asynctest, buses, memory_buses, until


async def take_all(subscription: Subscription) -> list[object]:
    """What is pending now."""
    return [(await subscription.get(timeout=0)).value for _ in range(subscription.pending)]


@asynctest
async def test_get_waits_for_a_message_and_no_longer_than_told() -> None:
    async with buses() as open_bus:
        bus = open_bus()
        subscription = bus.subscribe("x")
        with pytest.raises(TimeoutError, match="'x'"):
            await subscription.get(timeout=0)
        with pytest.raises(TimeoutError):
            await subscription.get(timeout=0.01)
        reading = asyncio.create_task(subscription.get())
        await asyncio.sleep(0)
        await bus.publish("x", 1)
        assert (await reading).value == 1


@asynctest
async def test_readers_share_the_messages() -> None:
    async with buses() as open_bus:
        bus = open_bus()
        subscription = bus.subscribe("x")
        got: list[int] = []

        async def read() -> None:
            async for message in subscription:
                got.append(message.value)
                await asyncio.sleep(0)

        readers = [asyncio.create_task(read()) for _ in range(3)]
        for number in range(200):
            await bus.publish("x", number)
        assert await until(lambda: len(got) == 200)
        subscription.close()
        await asyncio.gather(*readers)
        assert sorted(got) == list(range(200))


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
async def test_drop_oldest_keeps_the_newest_messages() -> None:
    async with buses() as open_bus:
        bus = open_bus()
        subscription = bus.subscribe("x", maxsize=3)
        for number in range(5):
            await bus.publish("x", number)
        assert (subscription.pending, subscription.dropped) == (3, 2)
        assert await take_all(subscription) == [2, 3, 4]
        assert bus.stats()["messages_dropped"] == 2


@asynctest
async def test_drop_newest_keeps_the_oldest_messages() -> None:
    async with buses() as open_bus:
        bus = open_bus()
        subscription = bus.subscribe("x", maxsize=3, overflow="drop_newest")
        for number in range(5):
            await bus.publish("x", number)
        assert (subscription.pending, subscription.dropped) == (3, 2)
        assert await take_all(subscription) == [0, 1, 2]


@asynctest
async def test_error_raises_where_messages_are_missing() -> None:
    async with buses() as open_bus:
        bus = open_bus()
        subscription = bus.subscribe("x", maxsize=2, overflow="error")
        for number in range(5):
            await bus.publish("x", number)
        assert await take_all(subscription) == [0, 1]
        with pytest.raises(QueueFullError) as caught:
            await subscription.get(timeout=0)
        assert (caught.value.pattern, caught.value.dropped) == ("x", 3)
        await bus.publish("x", 5)
        assert await take_all(subscription) == [5]


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
async def test_a_publisher_does_not_wait_for_a_reader_that_has_ended() -> None:
    async with buses() as open_bus:
        bus = open_bus()
        subscription = bus.subscribe("x", maxsize=1, overflow="block")
        await bus.publish("x", 0)
        await asyncio.create_task(subscription.get())
        for number in range(3):
            await bus.publish("x", number)
        assert subscription.pending == 3


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
        assert subscription.dropped == 3
        done.set()
        await reader


@asynctest
async def test_closing_wakes_readers_and_drops_and_counts_what_is_pending() -> None:
    async with buses() as open_bus:
        bus = open_bus()
        waiting, full = bus.subscribe("nothing"), bus.subscribe("x")
        reader = asyncio.create_task(waiting.get())
        await bus.publish("x", 1)
        await asyncio.sleep(0)
        waiting.close()
        full.close()
        with pytest.raises(ClosedError):
            await reader
        assert (full.pending, full.dropped, full.is_closed) == (0, 1, True)
        assert [message async for message in full] == []
        with pytest.raises(ClosedError):
            await full.get(timeout=0)
        assert bus.stats()["messages_dropped"] == 1
        full.close()


@asynctest
async def test_leaving_the_with_block_unsubscribes() -> None:
    async with buses() as open_bus:
        bus = open_bus()
        with bus.subscribe("x") as subscription:
            assert bus.has_subscribers("x")
        assert subscription.is_closed
        assert not bus.has_subscribers("x")


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
async def test_messages_of_the_wrong_type_are_dropped_counted_and_warned_of_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with buses() as open_bus:
        bus = open_bus()
        subscription = bus.subscribe("s", as_type=Reading)
        handled: list[object] = []
        handling = bus.subscribe("s", handler=lambda m: handled.append(m.value), as_type=Reading)
        with caplog.at_level(logging.WARNING, "jsonbus.bus"):
            for value in ({"temp": "hot"}, {"temp": "cold"}, {"temp": 1.0}):
                await bus.publish("s", value)
            assert (await subscription.get(timeout=30)).value == Reading(1.0)
            assert await until(lambda: handled == [Reading(1.0)])
        assert (subscription.dropped, handling.dropped) == (2, 2)
        assert len([r for r in caplog.records if "wrong type" in r.getMessage()]) == 1


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
async def test_many_messages_are_taken_at_once() -> None:
    async with buses() as open_bus:
        bus = open_bus()
        subscription = bus.subscribe("x")
        for number in range(5):
            await bus.publish("x", number)
        assert await until(lambda: subscription.pending == 5)
        assert [each.value for each in await subscription.get_many(3)] == [0, 1, 2]
        assert [each.value for each in await subscription.get_many(3, timeout=0)] == [3, 4]
        with pytest.raises(TimeoutError):
            await subscription.get_many(3, timeout=0)
        with pytest.raises(jsonbus.errors.ConfigError):
            await subscription.get_many(0)


@asynctest
async def test_taking_many_waits_for_the_first_and_leaves_out_wrong_types() -> None:
    async with buses() as open_bus:
        bus = open_bus()
        subscription = bus.subscribe("x", as_type=Reading)
        taking = asyncio.create_task(subscription.get_many(10, timeout=60))
        await asyncio.sleep(0)
        await bus.publish("x", "no reading")
        await bus.publish("x", {"temp": 1.0})
        assert [each.value for each in await taking] == [Reading(1.0)]
        assert subscription.dropped == 1


@asynctest
async def test_what_several_patterns_match_comes_once_and_in_order() -> None:
    async with buses() as open_bus:
        reader, bus = open_bus(), open_bus()
        subscription = reader.subscribe(["a/*", "*/last", "**", "b"])
        assert await bus.wait_for_subscribers("b", timeout=30)
        topics = ["a/x", "b", "c/last", "a/last", "b"] * 20
        for topic in topics:
            await bus.publish(topic, None)
        assert [(await subscription.get(timeout=30)).topic for _ in topics] == topics
        subscription.close()
        assert await until(lambda: not bus.has_subscribers("b"))
        assert subscription.dropped == 0


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


@asynctest
async def test_patterns_can_be_added_and_removed() -> None:
    async with buses() as open_bus:
        bus, other = open_bus(), open_bus()
        subscription = bus.subscribe("a/*")
        assert subscription.add_pattern("a/**")
        assert subscription.add_pattern("b")
        assert not subscription.add_pattern("b")
        assert subscription.patterns == ("a/*", "a/**", "b")
        assert await other.wait_for_subscribers("b", timeout=30)
        assert await other.publish("a/1", 1) and await other.publish("b", 2)
        assert [(await subscription.get(timeout=30)).value for _ in range(2)] == [1, 2]
        assert subscription.remove_pattern("b")
        assert not subscription.remove_pattern("b")
        assert await until(lambda: not other.has_subscribers("b"))
        assert subscription.remove_pattern("a/*")
        assert await other.publish("a/1", 3)
        assert (await subscription.get(timeout=30)).value == 3
        assert subscription.pending == 0


@asynctest
async def test_a_subscription_without_patterns_waits_for_the_next() -> None:
    async with buses() as open_bus:
        bus = open_bus()
        subscription = bus.subscribe("a")
        subscription.remove_pattern("a")
        assert not bus.has_subscribers("a")
        subscription.add_pattern("b")
        assert await bus.publish("b", 2)
        assert (await subscription.get(timeout=30)).value == 2


@asynctest
async def test_a_pattern_that_is_refused_changes_nothing() -> None:
    async with buses() as open_bus:
        bus = open_bus()
        subscription = bus.subscribe("a")
        with pytest.raises(InvalidTopicError):
            subscription.add_pattern("b//c")
        assert subscription.patterns == ("a",)
        with pytest.raises(LocalError, match="served"):
            bus.serve("add", print).add_pattern("b")
        subscription.close()
        with pytest.raises(ClosedError):
            subscription.add_pattern("b")
