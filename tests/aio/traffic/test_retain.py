"""The last value of a topic for who comes later, in an event loop."""

from __future__ import annotations

import pytest

import jsonbus
from tests.aio.running import asynctest, buses, memory_buses, until
from tests.sync.transports import LosingTransport, first_tries


def look_at(message: jsonbus.Message) -> tuple[str, object, bool]:
    return message.topic, message.value, message.retained


async def read(subscription: object, count: int = 1) -> list[tuple[str, object, bool]]:
    return [look_at(await subscription.get(timeout=30)) for _ in range(count)]  # type: ignore[attr-defined]


@pytest.mark.slow
@asynctest
async def test_a_late_subscriber_gets_the_last_value_flagged_and_then_fresh_ones() -> None:
    async with buses() as open_bus:
        publisher = open_bus(name="hall")
        assert await publisher.wait_until_sure(timeout=30)  # until then it holds what it publishes
        assert await publisher.publish("door", "open", retain=True)
        assert await publisher.publish("door", "closed", retain=True)  # though nobody is there
        subscription = open_bus().subscribe("door")
        assert await read(subscription) == [("door", "closed", True)]
        await publisher.publish("door", "open", retain=True)
        assert await read(subscription) == [("door", "open", False)]
        assert publisher.stats()["values_retained"] == 1


@pytest.mark.slow
@asynctest
async def test_who_restarts_gets_it_again() -> None:
    async with buses() as open_bus:
        publisher = open_bus()
        assert await publisher.wait_until_sure(timeout=30)
        await publisher.publish("door", "open", retain=True)
        for _ in range(2):
            reader = open_bus(name="reader")
            assert await read(reader.subscribe("door")) == [("door", "open", True)]
            await reader.close()


@asynctest
async def test_a_second_subscription_of_the_same_bus_gets_it_at_once() -> None:
    async with buses() as open_bus:
        publisher, reader = open_bus(), open_bus()
        first = reader.subscribe("door")
        assert await publisher.wait_for_subscribers("door", timeout=30)
        await publisher.publish("door", "open", retain=True)
        assert await read(first) == [("door", "open", False)]
        assert await read(reader.subscribe("*")) == [("door", "open", True)]
        assert first.pending == 0


@asynctest
async def test_the_publisher_and_handlers_get_it_when_they_subscribe() -> None:
    async with buses() as open_bus:
        bus = open_bus()
        await bus.publish("door", {"is": "open"}, retain=True)
        got: list[jsonbus.Message] = []
        bus.subscribe("door", got.append)
        assert await until(lambda: got)
        assert look_at(got[0]) == ("door", {"is": "open"}, True)


@pytest.mark.slow
@asynctest
async def test_none_ends_it_and_is_a_message_itself() -> None:
    async with buses() as open_bus:
        publisher, reader = open_bus(), open_bus()
        subscription = reader.subscribe("door")
        assert await publisher.wait_for_subscribers("door", timeout=30)
        assert await publisher.wait_until_sure(timeout=30)
        await publisher.publish("door", "open", retain=True)
        await publisher.publish("door", None, retain=True)
        await publisher.publish("bell", 1, retain=True)
        assert [value for _, value, _ in await read(subscription, 2)] == ["open", None]
        assert await read(open_bus().subscribe("*")) == [("bell", 1, True)]
        assert await read(reader.subscribe("*")) == [("bell", 1, True)]
        assert publisher.stats()["values_retained"] == 1


@pytest.mark.parametrize("size", [10, 20_000])
@asynctest
async def test_retained_and_reliable_go_together(size: int) -> None:
    async with memory_buses() as (network, open_over):
        reader = open_over(network.open())
        first = reader.subscribe("t")
        publisher = open_over(LosingTransport(network, first_tries(1.0, 0)))
        assert await publisher.wait_for_subscribers("t", timeout=30)
        for number in range(3):
            await publisher.publish("t", [number, "x" * size], retain=True, reliable=True)
        assert [value[0] for _, value, _ in await read(first, 3)] == [0, 1, 2]  # type: ignore[index]
        for subscription in (reader.subscribe("*"), open_over(network.open()).subscribe("t")):
            ((_, value, is_retained),) = await read(subscription)
            assert (value[0], is_retained) == (2, True)  # type: ignore[index]
