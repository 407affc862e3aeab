"""Reliable topics over networks that lose, in an event loop."""

from __future__ import annotations

import asyncio
import logging
import time

import pytest

import jsonbus
from jsonbus.core.reliable import gaps, history
from jsonbus.core.reliable import pace as repair_pace
from jsonbus.errors import ClosedError, ConfigError
from tests.aio.running import asynctest, memory_buses, until
from tests.sync.transports import (
    LosingTransport,
    RecordingTransport,
    a_share,
    all_with,
    first_tries,
)


async def values(subscription: object, count: int) -> list[object]:
    return [(await subscription.get(timeout=30)).value for _ in range(count)]  # type: ignore[attr-defined]


def none(datagram: bytes) -> bool:
    return False


@pytest.mark.parametrize("seed", range(3))
@asynctest
async def test_everything_arrives_once_and_in_order_though_a_fifth_is_lost(seed: int) -> None:
    async with memory_buses() as (network, open_over):
        transports = [LosingTransport(network, none) for _ in range(3)]
        readers = [open_over(each) for each in transports[1:]]
        subscriptions = [reader.subscribe("t/*") for reader in readers]
        publisher = open_over(transports[0], reliable=True)
        assert await until(lambda: len(publisher.subscriptions().get("t/*", ())) == 2)
        for each, transport in enumerate(transports):
            transport.loses = a_share(0.2, 10 * seed + each)
        for number in range(200):
            assert await publisher.publish(f"t/{number % 2}", number)
            if number % 2:
                assert await publisher.flush()  # in many datagrams
        for reader, subscription in zip(readers, subscriptions, strict=True):
            got = await values(subscription, 200)
            for rest in (0, 1):
                assert [each for each in got if each % 2 == rest] == list(range(rest, 200, 2))
            stats = reader.stats()
            assert (stats["messages_lost"], stats["messages_given_up"]) == (0, 0)
            assert stats["messages_waiting_for_repair"] == 0
        assert transports[0].lost > 0
        assert sum(reader.stats()["naks_sent"] for reader in readers) > 0
        assert publisher.stats()["messages_repaired"] > 0


@pytest.mark.parametrize("of_the_bus", [False, True])
@pytest.mark.parametrize("of_the_call", [None, False, True])
@asynctest
async def test_the_call_beats_the_bus_and_none_is_as_the_bus_was_opened(
    of_the_bus: bool, of_the_call: bool | None
) -> None:
    async with memory_buses() as (network, open_over):
        transport = RecordingTransport(network)
        publisher = open_over(transport, reliable=of_the_bus)
        subscription = open_over(network.open()).subscribe("t")
        assert await publisher.wait_for_subscribers("t", timeout=30)
        for number in range(3):
            await publisher.publish("t", number, reliable=of_the_call)
        assert await values(subscription, 3) == [0, 1, 2]
        is_reliable = of_the_bus if of_the_call is None else of_the_call
        expected = [1, 2, 3] if is_reliable else [None] * 3
        assert await until(lambda: transport.sequences("t") == expected)


@pytest.fixture
def haste(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is asked for in vain is given up soon, though its publisher is there."""
    monkeypatch.setattr(gaps, "HISTORY_AGE_S", 0.5)


@pytest.mark.slow
@pytest.mark.usefixtures("haste")
def test_what_is_asked_for_in_vain_is_told_and_what_follows_arrives(
    caplog: pytest.LogCaptureFixture,
) -> None:
    @asynctest
    async def run() -> None:
        async with memory_buses() as (network, open_over):
            transport = LosingTransport(network, all_with("gone", "likewise"))
            publisher = open_over(transport, name="kitchen")
            reader = open_over(network.open())
            told: list[jsonbus.GapEvent] = []

            @reader.on_gap
            async def note(gap: jsonbus.GapEvent) -> None:
                await asyncio.sleep(0)
                told.append(gap)

            ended: list[jsonbus.GapEvent] = []
            reader.on_gap(ended.append).close()
            subscription = reader.subscribe("t")
            assert await publisher.wait_for_subscribers("t", timeout=30)
            assert await until(lambda: "kitchen" in {info.name for info in reader.nodes()})
            before = time.time()
            for value in ("first", "gone", "likewise", "last"):
                await publisher.publish("t", value, reliable=True)
                assert await publisher.flush()  # one to a datagram: only those two are lost
            assert await values(subscription, 2) == ["first", "last"]
            assert await until(lambda: told)
            (gap,) = told
            assert (gap.node, gap.name, gap.topic) == (publisher.id, "kitchen", "t")
            assert (gap.first, gap.last, gap.count) == (2, 3, 2)
            assert before <= gap.at <= time.time()
            stats = reader.stats()
            assert (stats["messages_given_up"], stats["gap_events_dropped"]) == (2, 0)
            assert ended == []

    with caplog.at_level(logging.WARNING, "jsonbus"):
        run()
    assert "2 messages of node 'kitchen'" in caplog.text
    assert "to the reliable topic 't' were given up" in caplog.text


@asynctest
async def test_only_a_function_is_taken_and_only_by_an_open_bus() -> None:
    async with memory_buses() as (network, open_over):
        bus = open_over(network.open())
        with pytest.raises(ConfigError):
            bus.on_gap("print")  # type: ignore[arg-type]
        await bus.close()
        with pytest.raises(ClosedError):
            bus.on_gap(print)


@pytest.mark.slow
def test_a_publisher_waits_while_the_history_is_full(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "HISTORY_TOPIC_MESSAGES_MAX", 32)

    @asynctest
    async def run() -> None:
        async with memory_buses() as (network, open_over):
            subscription = open_over(network.open()).subscribe("t")
            transport = LosingTransport(network, none)
            publisher = open_over(transport, reliable=True)
            assert await publisher.wait_for_subscribers("t", timeout=30)
            transport.loses = first_tries(0.1, 1)
            for number in range(100):
                await publisher.publish("t", number)
                assert publisher.stats()["messages_kept_for_repair"] <= 32
            assert await values(subscription, 100) == list(range(100))
            assert publisher.stats()["reliable_waits"] > 0

    run()


def test_closing_ends_the_wait_of_a_publisher(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "HISTORY_TOPIC_MESSAGES_MAX", 4)
    monkeypatch.setattr(history, "HISTORY_KEEP_MIN_S", 1000.0)
    monkeypatch.setattr(repair_pace, "HISTORY_KEEP_MIN_S", 1000.0)

    @asynctest
    async def run() -> None:
        async with memory_buses() as (network, open_over):
            publisher, reader = open_over(network.open(), reliable=True), open_over(network.open())
            reader.subscribe("t", lambda message: None)
            assert await publisher.wait_for_subscribers("t", timeout=30)
            for number in range(4):
                await publisher.publish("t", number)
            task = asyncio.create_task(publisher.publish("t", 4))
            assert await until(lambda: publisher.stats()["reliable_waits"] > 1)
            # Only reliable messages to that topic wait.
            assert await publisher.publish("t", "hurried", reliable=False)
            await publisher.close()
            with pytest.raises(ClosedError):
                await task

    run()


@asynctest
async def test_publishing_reliably_from_inside_a_handler() -> None:
    async with memory_buses() as (network, open_over):
        asking, answering = LosingTransport(network, none), LosingTransport(network, none)
        asker, answerer = open_over(asking, reliable=True), open_over(answering, reliable=True)
        replies = asker.subscribe("reply")

        @answerer.on("ask")
        async def answer(message: jsonbus.Message) -> None:
            await answerer.publish("reply", message.value)

        assert await asker.wait_for_subscribers("ask", timeout=30)
        assert await answerer.wait_for_subscribers("reply", timeout=30)
        asking.loses, answering.loses = a_share(0.2, 3), a_share(0.2, 4)
        for number in range(100):
            await asker.publish("ask", number)
        assert await values(replies, 100) == list(range(100))
