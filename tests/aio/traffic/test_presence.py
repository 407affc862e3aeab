"""Handlers of nodes that join, leave or expire, in an event loop."""

from __future__ import annotations

import asyncio
import logging

import pytest

import jsonbus
from jsonbus.core.events import NodeJoined, NodeLeft
from jsonbus.errors import ClosedError, ConfigError, LocalError
from jsonbus.frontend import watch as watching
from tests.aio.running import asynctest, buses, memory_buses, until


def tell(bus: jsonbus.AsyncBus, *events: NodeJoined | NodeLeft) -> None:
    """As if the node of the bus had noticed that, all in one step."""

    def act(node: object, now: float) -> None:
        for event in events:
            bus._node._emit(event)

    bus._loop.call(act)


def joined(name: str) -> NodeJoined:
    return NodeJoined(f"id-{name}", name)


@asynctest
async def test_async_handlers_see_one_event_after_the_other() -> None:
    async with memory_buses() as (network, open_over):
        bus = open_over(network.open(), workers=4)
        steps: list[str] = []

        async def handler(event: jsonbus.NodeEvent) -> None:
            steps.append(f"{event.name} begins")
            await asyncio.sleep(0.001)
            steps.append(f"{event.name} ends")

        bus.on_node(handler)
        tell(bus, joined("a"), joined("b"))
        assert await until(lambda: len(steps) == 4)
        assert steps == ["a begins", "a ends", "b begins", "b ends"]


def test_a_handler_that_fails_is_logged_and_told_of_the_next(
    caplog: pytest.LogCaptureFixture,
) -> None:
    @asynctest
    async def run() -> None:
        async with memory_buses() as (network, open_over):
            bus = open_over(network.open())
            got: list[str] = []

            async def fail(event: jsonbus.NodeEvent) -> None:
                got.append(event.name)
                raise asyncio.CancelledError if event.name == "a" else ValueError

            bus.on_node(fail)
            tell(bus, joined("a"), joined("b"), joined("c"))
            assert await until(lambda: got == ["a", "b", "c"] and len(caplog.records) == 3)

    with caplog.at_level(logging.ERROR, "jsonbus"):
        run()
    assert "the handler of nodes failed on NodeEvent(kind='joined', node='id-a'" in caplog.text


@asynctest
async def test_a_handler_may_use_the_bus() -> None:
    async with memory_buses() as (network, open_over):
        bus = open_over(network.open())
        seen: list[int] = []

        async def look(event: jsonbus.NodeEvent) -> None:
            bus.subscribe("x")
            await bus.publish("x", 1)
            seen.append(len(bus.nodes()))

        bus.on_node(look)
        tell(bus, joined("a"))
        assert await until(lambda: seen)


@asynctest
async def test_a_slow_handler_holds_up_neither_the_bus_nor_others() -> None:
    async with buses() as open_bus:
        bus = open_bus(name="kitchen", workers=2)
        go_on = asyncio.Event()
        got: list[str] = []
        bus.on_node(lambda event: go_on.wait())
        bus.on_node(lambda event: got.append(event.name))
        open_bus(name="hall")
        assert await until(lambda: got == ["hall"])
        open_bus(name="attic")
        assert await until(lambda: got == ["hall", "attic"])
        go_on.set()


def test_what_waits_is_bounded_and_what_is_dropped_is_counted(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(watching, "EVENTS_MAX", 3)

    @asynctest
    async def run() -> None:
        async with memory_buses() as (network, open_over):
            bus = open_over(network.open())
            started, go_on = asyncio.Event(), asyncio.Event()
            got: list[str] = []

            async def wait(event: jsonbus.NodeEvent) -> None:
                started.set()
                await go_on.wait()
                got.append(event.name)

            watch = bus.on_node(wait)
            tell(bus, joined("first"))
            await started.wait()
            for name in "abcde":
                tell(bus, joined(name))
            assert (watch.pending, watch.dropped) == (3, 2)
            assert bus.stats()["node_events_dropped"] == 2
            assert "3 pending" in repr(watch)
            go_on.set()
            assert await until(lambda: got == ["first", "c", "d", "e"])
            watch.close()
            assert bus.stats()["node_events_dropped"] == 2

    run()
    assert caplog.text.count("a handler of nodes is too slow") == 1


@asynctest
async def test_closing_forgets_what_waits_without_counting_it_as_dropped() -> None:
    async with memory_buses() as (network, open_over):
        bus = open_over(network.open())
        started, go_on = asyncio.Event(), asyncio.Event()
        got: list[str] = []

        async def wait(event: jsonbus.NodeEvent) -> None:
            got.append(event.name)
            started.set()
            await go_on.wait()

        watch = bus.on_node(wait)
        tell(bus, *(joined(name) for name in "abc"))
        await started.wait()
        tell(bus, joined("d"))
        watch.close()
        assert (watch.pending, watch.dropped) == (0, 0)
        assert bus.stats()["node_events_dropped"] == 0
        go_on.set()
        await bus.close()
        assert got == ["a"]
        assert bus.stats()["node_events_dropped"] == 0


@asynctest
async def test_a_handler_may_close_the_bus() -> None:
    async with memory_buses() as (network, open_over):
        bus = open_over(network.open())
        watch = bus.on_node(lambda event: bus.close())
        tell(bus, joined("a"))
        assert await until(lambda: bus.is_closed and watch.is_closed)


@asynctest
async def test_a_watch_whose_workers_were_cancelled_goes_on_with_the_next_event() -> None:
    async with memory_buses() as (network, open_over):
        bus = open_over(network.open())
        started = asyncio.Event()
        got: list[str] = []

        async def handler(event: jsonbus.NodeEvent) -> None:
            started.set()
            if event.name == "a":
                await asyncio.Event().wait()
            got.append(event.name)

        bus.on_node(handler)
        tell(bus, joined("a"))
        await started.wait()
        for task in asyncio.all_tasks():
            if task.get_name().startswith("jsonbus-worker"):
                task.cancel()
        assert await until(lambda: not bus._loop.workers._tasks)
        tell(bus, joined("b"))
        assert await until(lambda: got == ["b"])


@asynctest
async def test_only_a_function_is_taken_and_only_by_an_open_bus_at_home() -> None:
    async with memory_buses() as (network, open_over):
        bus = open_over(network.open())
        with pytest.raises(ConfigError):
            bus.on_node("print")  # type: ignore[arg-type]
        with pytest.raises(LocalError):
            await asyncio.to_thread(bus.on_node, print)
        await bus.close()
        with pytest.raises(ClosedError):
            bus.on_node(print)
