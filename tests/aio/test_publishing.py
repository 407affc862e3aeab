"""The short way of publish(): as safe as the long one, and others still get their turn."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

import jsonbus
from jsonbus.errors import ClosedError, InvalidTopicError, LocalError, PayloadError
from jsonbus.frontend import outgoing as base_outgoing
from jsonbus.transport import MemoryNetwork
from tests.aio.running import asynctest, buses, memory_buses
from tests.sync.transports import RecordingTransport


async def open_with_lanes(network: MemoryNetwork) -> tuple[jsonbus.AsyncBus, jsonbus.AsyncBus]:
    """A bus that knows the fate of two topics, and one that wants the first of them."""
    bus, other = jsonbus.AsyncBus.over(network.open()), jsonbus.AsyncBus.over(network.open())
    other.subscribe("wanted")
    assert await bus.wait_for_subscribers("wanted", timeout=30)
    assert await bus.wait_until_sure(timeout=30)
    for _ in range(3):
        assert await bus.publish("wanted", 1)
        assert not await bus.publish("unwanted", 1)
    return bus, other


def refuse_from_elsewhere(
    run: Callable[[Coroutine[Any, Any, bool]], bool], bus: jsonbus.AsyncBus
) -> int:
    """How many publishes were refused there."""
    refused = 0
    for topic in ("wanted", "unwanted"):
        for _ in range(3):
            with pytest.raises(LocalError, match="event loop"):
                run(bus.publish(topic, "elsewhere"))
            refused += 1
    return refused


@pytest.mark.slow
@asynctest
async def test_another_thread_is_refused_on_the_short_way_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(base_outgoing, "LINGER_S", 3600.0)  # messages gather
    bus, other = await open_with_lanes(MemoryNetwork())
    refused: list[int] = []
    thread = threading.Thread(
        target=lambda: refused.append(refuse_from_elsewhere(asyncio.run, bus))
    )
    figures = bus.stats()
    thread.start()
    thread.join(30)
    assert refused == [6]
    for key in ("messages_published", "messages_suppressed"):
        assert bus.stats()[key] == figures[key]
    await bus.close()
    await other.close()


@pytest.mark.slow
def test_another_event_loop_in_the_same_thread_is_refused_on_the_short_way_too() -> None:
    with asyncio.Runner() as first:
        bus, other = first.run(open_with_lanes(MemoryNetwork()))
        for _ in range(4):
            first.run(asyncio.sleep(0))  # whatever queued leaves
        with asyncio.Runner() as second:
            assert refuse_from_elsewhere(second.run, bus) == 6
        assert first.run(bus.publish("wanted", 1))
        first.run(bus.close())
        first.run(other.close())


def test_what_another_event_loop_adds_to_messages_that_gather_is_sent_or_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(base_outgoing, "LINGER_S", 3600.0)
    transport = RecordingTransport(MemoryNetwork())

    async def open_and_gather() -> jsonbus.AsyncBus:
        bus = jsonbus.AsyncBus.over(transport, mode="basic")
        for number in range(3):
            await bus.publish("x", number)
        return bus

    with asyncio.Runner() as first:
        bus = first.run(open_and_gather())
        accepted = 3
        with asyncio.Runner() as second, pytest.raises(LocalError, match="event loop"):
            while accepted < 1000:
                second.run(bus.publish("x", accepted))
                accepted += 1
        first.run(bus.close())
    assert [value for _, value in transport.messages()] == list(range(accepted))


@pytest.mark.slow
@asynctest
async def test_a_closed_bus_refuses_what_it_sent_before() -> None:
    bus, other = await open_with_lanes(MemoryNetwork())
    await bus.close()
    for topic in ("wanted", "unwanted"):
        with pytest.raises(ClosedError):
            await bus.publish(topic, 1)
    await other.close()


@asynctest
async def test_wrong_topics_and_values_are_refused_while_messages_gather() -> None:
    async with memory_buses() as (network, open_over):
        transport = RecordingTransport(network)
        bus = open_over(transport, mode="basic")
        for number in range(3):
            await bus.publish("x", number)
        wrong: list[tuple[Any, Any, type[Exception]]] = [
            ("x", object(), PayloadError),
            ("a//b", 1, InvalidTopicError),
            (["x"], 1, InvalidTopicError),
            (None, 1, InvalidTopicError),
        ]
        for topic, value, error in wrong:
            with pytest.raises(error):
                await bus.publish(topic, value)
        await bus.publish("x", {3: "a key that is no string"})
        assert await bus.flush(timeout=30)
        values = [value for _, value in transport.messages()]
        assert values == [0, 1, 2, {"3": "a key that is no string"}]


@asynctest
async def test_a_subscription_that_comes_or_goes_ends_the_short_way() -> None:
    async with buses() as open_bus:
        bus, other = open_bus(), open_bus()
        theirs = other.subscribe("x")
        assert await bus.wait_for_subscribers("x", timeout=30)
        for number in range(5):
            assert await bus.publish("x", number)
        own = bus.subscribe("x")
        for number in range(5, 10):
            assert await bus.publish("x", number)
        own_values = [(await own.get(timeout=30)).value for _ in range(5)]
        assert own_values == [5, 6, 7, 8, 9]
        own.close()
        assert await bus.publish("x", 10)
        assert [(await theirs.get(timeout=30)).value for _ in range(11)] == list(range(11))
        assert own.dropped == 0


@asynctest
async def test_small_messages_without_a_pause_let_others_run() -> None:
    async with memory_buses() as (network, open_over):
        transport = RecordingTransport(network)
        bus = open_over(transport, mode="basic")
        seen: set[int] = set()

        async def watch() -> None:
            while True:
                seen.add(len(transport.sent))
                await asyncio.sleep(0)

        watching = asyncio.create_task(watch())
        for number in range(20_000):
            await bus.publish("x", number)
        watching.cancel()
        assert len(seen) > 3
        assert await bus.flush(timeout=30)
        assert [value for _, value in transport.messages()] == list(range(20_000))


@asynctest
async def test_many_tasks_lose_nothing_and_keep_their_own_order() -> None:
    async with memory_buses() as (network, open_over):
        transport = RecordingTransport(network)
        bus = open_over(transport, mode="basic")

        async def publish(task: int) -> None:
            for number in range(500):
                await bus.publish(f"task/{task}", number)
                if number % (task + 1) == 0:
                    await asyncio.sleep(0)

        await asyncio.wait_for(asyncio.gather(*map(publish, range(8))), 60)
        assert await bus.flush(timeout=30)
        sent = transport.messages()
        for task in range(8):
            assert [value for topic, value in sent if topic == f"task/{task}"] == list(range(500))
        assert len(sent) == 8 * 500
