"""Handlers: in order, one at a time for each subscription, free to use the bus."""

from __future__ import annotations

import asyncio
import logging

import pytest

import jsonbus
from tests.aio.running import asynctest, buses, until


@asynctest
async def test_a_handler_sees_its_messages_in_order_and_never_runs_twice_at_once() -> None:
    async with buses() as open_bus:
        bus = open_bus(workers=4)
        got: list[object] = []
        inside: list[int] = []
        most_inside: list[int] = []

        async def handler(message: jsonbus.Message) -> None:
            inside.append(1)
            most_inside.append(len(inside))
            await asyncio.sleep(0)
            got.append(message.value)
            inside.pop()

        bus.subscribe("x", handler, maxsize=10_000)
        for number in range(2000):
            await bus.publish("x", number)
        assert await until(lambda: len(got) == 2000)
        assert got == list(range(2000))
        assert max(most_inside) == 1


@asynctest
async def test_handlers_of_different_subscriptions_run_side_by_side_on_several_workers() -> None:
    async with buses() as open_bus:
        bus = open_bus(workers=2)
        arrived: list[str] = []
        met: list[str] = []

        async def meet(message: jsonbus.Message) -> None:
            arrived.append(message.topic)
            assert await until(lambda: len(arrived) == 2)
            met.append(message.topic)

        bus.subscribe("a", meet)
        bus.subscribe("b", meet)
        await bus.publish("a", 1)
        await bus.publish("b", 1)
        assert await until(lambda: sorted(met) == ["a", "b"])


@asynctest
async def test_a_slow_handler_does_not_keep_others_from_their_messages() -> None:
    async with buses() as open_bus:
        bus = open_bus(workers=2)
        go_on = asyncio.Event()
        got: list[object] = []
        bus.subscribe("slow", lambda message: go_on.wait())
        bus.subscribe("fast", lambda message: got.append(message.value))
        for number in range(10):
            await bus.publish("slow", number)
            await bus.publish("fast", number)
        assert await until(lambda: got == list(range(10)))
        go_on.set()


@asynctest
async def test_one_worker_runs_one_handler_at_a_time() -> None:
    async with buses() as open_bus:
        bus = open_bus(workers=1)
        got: list[str] = []

        async def handler(message: jsonbus.Message) -> None:
            got.append(f"{message.topic} begins")
            await asyncio.sleep(0)
            got.append(f"{message.topic} ends")

        bus.subscribe("a", handler)
        bus.subscribe("b", handler)
        await bus.publish("a", 1)
        await bus.publish("b", 1)
        assert await until(lambda: len(got) == 4)
        assert got == ["a begins", "a ends", "b begins", "b ends"]


@pytest.mark.parametrize("error", [ValueError, asyncio.CancelledError])
@pytest.mark.parametrize("is_async", [False, True])
@asynctest
async def test_a_handler_that_raises_is_logged_with_its_topic_and_gets_the_next_message(
    caplog: pytest.LogCaptureFixture, error: type[BaseException], is_async: bool
) -> None:
    async with buses() as open_bus:
        bus = open_bus()
        got: list[object] = []

        def plain(message: jsonbus.Message) -> None:
            if message.value == 0:
                raise error("spilt milk")
            got.append(message.value)

        async def handler(message: jsonbus.Message) -> None:
            await asyncio.sleep(0)
            plain(message)

        bus.subscribe("kitchen/*", handler if is_async else plain)
        await bus.publish("kitchen/floor", 0)
        await bus.publish("kitchen/floor", 1)
        assert await until(lambda: got == [1])
        failures = [record for record in caplog.records if record.levelno == logging.ERROR]
        assert len(failures) == 1
        assert "kitchen/floor" in failures[0].getMessage()
        assert "spilt milk" in caplog.text


@asynctest
async def test_a_handler_may_publish_subscribe_and_unsubscribe() -> None:
    async with buses() as open_bus:
        bus = open_bus()
        got: list[object] = []

        async def first(message: jsonbus.Message) -> None:
            subscription.close()
            bus.subscribe("second", lambda message: got.append(message.value))
            await bus.publish("second", message.value + 1)

        subscription = bus.subscribe("first", first)
        await bus.publish("first", 1)
        await bus.publish("first", 100)
        assert await until(lambda: got == [2])
        assert not bus.has_subscribers("first")


@asynctest
async def test_a_handler_that_closes_its_subscription_gets_no_more() -> None:
    async with buses() as open_bus:
        bus = open_bus()
        got: list[object] = []

        def handler(message: jsonbus.Message) -> None:
            got.append(message.value)
            subscription.close()

        subscription = bus.subscribe("x", handler)
        for number in range(100):
            await bus.publish("x", number)
        assert await until(lambda: bus.stats()["messages_unread"] == 99)
        assert subscription.dropped == 0
        assert got == [0]


@asynctest
async def test_a_handler_may_publish_to_itself_with_block() -> None:
    async with buses() as open_bus:
        bus = open_bus()
        got: list[int] = []

        async def handler(message: jsonbus.Message) -> None:
            got.append(message.value)
            if message.value < 5:
                await bus.publish("x", message.value + 1)
                await bus.publish("x", message.value + 1)

        bus.subscribe("x", handler, maxsize=1, overflow="block")
        await bus.publish("x", 0)
        assert await until(lambda: len(got) == 2**6 - 1)


@asynctest
async def test_an_idle_bus_has_no_task_and_a_cancelled_worker_is_replaced() -> None:
    async with buses() as open_bus:
        bus = open_bus()
        got: list[object] = []

        async def handler(message: jsonbus.Message) -> None:
            if message.value == "stay":
                await asyncio.Event().wait()
            got.append(message.value)

        def workers() -> list[asyncio.Task[object]]:
            names = ((task, task.get_name()) for task in asyncio.all_tasks())
            return [task for task, name in names if name.startswith("jsonbus-worker")]

        bus.subscribe("x", handler)
        assert workers() == []
        await bus.publish("x", "stay")
        await bus.publish("x", 1)
        assert await until(workers)
        await asyncio.sleep(0)
        workers()[0].cancel()
        assert await until(lambda: not workers())
        await bus.publish("x", 2)
        assert await until(lambda: got == [1, 2])


@asynctest
async def test_requests_are_answered_side_by_side_by_default() -> None:
    async with buses() as open_bus:
        serving, asking = open_bus(), open_bus()
        together = asyncio.Barrier(5)

        async def answer(request: jsonbus.Request) -> object:
            await together.wait()
            return request.value

        serving.serve("slow", answer)
        assert await until(lambda: any("slow" in each.serves for each in asking.nodes()))
        asked = [asking.request("slow", number, timeout=60) for number in range(5)]
        assert await asyncio.gather(*asked) == list(range(5))


@asynctest
async def test_no_more_requests_are_answered_at_once_than_there_are_workers() -> None:
    async with buses() as open_bus:
        bus = open_bus(workers=2)
        inside, most = 0, 0

        async def answer(request: jsonbus.Request) -> None:
            nonlocal inside, most
            inside += 1
            most = max(most, inside)
            for _ in range(10):
                await asyncio.sleep(0)
            inside -= 1

        bus.serve("slow", answer)
        await asyncio.gather(*[bus.request("slow", timeout=60) for _ in range(20)])
        assert most == 2


@asynctest
async def test_a_service_may_ask_itself_as_long_as_a_worker_is_left() -> None:
    async with buses() as open_bus:
        bus = open_bus(workers=4)

        async def factorial(request: jsonbus.Request) -> int:
            n: int = request.value
            return 1 if n <= 1 else n * await bus.request("factorial", n - 1, timeout=60)

        bus.serve("factorial", factorial)
        assert await bus.request("factorial", 4, timeout=60) == 24
        with pytest.raises(jsonbus.RequestFailedError, match="failed to serve 'factorial'"):
            await bus.request("factorial", 5, timeout=60)


@asynctest
async def test_requests_that_never_wait_leave_other_tasks_their_turns() -> None:
    async with buses() as open_bus:
        bus = open_bus()
        served, turns = 0, 0

        def answer(request: jsonbus.Request) -> None:
            nonlocal served
            served += 1

        async def count_turns() -> None:
            nonlocal turns
            while served < 1_000:
                turns += 0 < served
                await asyncio.sleep(0)

        bus.serve("quick", answer)
        counting = asyncio.create_task(count_turns())
        await asyncio.gather(*[bus.request("quick", timeout=60) for _ in range(1_000)])
        await counting
        assert turns >= 3
