"""Handlers of nodes that join, leave or expire, in an event loop."""

from __future__ import annotations

import asyncio
import logging
import time

import pytest

import jsonbus
from jsonbus.core.events import NodeJoined, NodeLeft
from jsonbus.core.wire.frames import About
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


def names(events: list[jsonbus.NodeEvent]) -> list[tuple[str, str]]:
    return [(event.kind, event.name) for event in events]


@asynctest
async def test_a_node_that_joins_and_leaves_is_reported() -> None:
    async with buses() as open_bus:
        bus = open_bus(name="kitchen")
        got: list[jsonbus.NodeEvent] = []
        bus.on_node(got.append)
        before = time.time()
        hall = open_bus(name="hall")
        assert await until(lambda: got)
        await hall.close()
        assert await until(lambda: len(got) == 2)
        assert names(got) == [("joined", "hall"), ("left", "hall")]
        assert {event.node for event in got} == {hall.id}
        assert {event.version for event in got} == {jsonbus.__version__}
        assert {event.host for event in got} == {bus.nodes()[0].host}
        assert before <= got[0].at <= got[1].at <= time.time()


@asynctest
async def test_an_expired_node_is_told_from_one_that_left() -> None:
    async with memory_buses() as (network, open_over):
        bus = open_over(network.open())
        got: list[jsonbus.NodeEvent] = []
        bus.on_node(got.append)
        about = About("desk", "0.2.0")
        tell(
            bus,
            NodeJoined("id1", "a", about),
            NodeLeft("id1", "a", "gone", about),
            NodeJoined("id2", "b"),
            NodeLeft("id2", "b", "left"),
        )
        assert await until(lambda: len(got) == 4)
        assert names(got) == [("joined", "a"), ("expired", "a"), ("joined", "b"), ("left", "b")]
        told = [(event.host, event.version) for event in got]
        assert told[1:3] == [("desk", "0.2.0"), (None, None)]


@asynctest
async def test_nodes_known_before_are_reported_as_joined_first() -> None:
    async with buses() as open_bus:
        bus, hall, attic = open_bus(name="kitchen"), open_bus(name="hall"), open_bus(name="attic")
        assert await until(lambda: len(bus.nodes()) == 3)
        got: list[jsonbus.NodeEvent] = []
        bus.on_node(got.append)
        await hall.close()
        assert await until(lambda: len(got) == 3)
        assert names(got) == [("joined", "attic"), ("joined", "hall"), ("left", "hall")]
        assert got[0].node == attic.id


@asynctest
async def test_what_was_not_told_yet_is_for_those_who_watch_already() -> None:
    async with memory_buses() as (network, open_over):
        bus = open_over(network.open())
        early: list[jsonbus.NodeEvent] = []
        late: list[jsonbus.NodeEvent] = []
        bus.on_node(early.append)
        bus._node._emit(joined("a"))  # noticed, and not taken from the node
        bus._node._emit(NodeLeft("id-a", "a", "left"))
        bus.on_node(late.append)
        tell(bus, joined("b"))
        assert await until(lambda: len(early) == 3 and late)
        assert names(early) == [("joined", "a"), ("left", "a"), ("joined", "b")]
        assert names(late) == [("joined", "b")]


@asynctest
async def test_whenever_it_is_asked_for_each_node_is_reported_in_order_and_once() -> None:
    async with memory_buses() as (network, open_over):
        bus = open_over(network.open(), workers=4)
        stop = asyncio.Event()

        async def come_and_go() -> None:
            number = 0
            while not stop.is_set():
                number += 1
                name = f"n{number}"
                async with jsonbus.AsyncBus.over(network.open(), name=name):
                    assert await until(lambda n=name: n in {info.name for info in bus.nodes()})

        task = asyncio.create_task(come_and_go())
        records: list[list[jsonbus.NodeEvent]] = []
        for _ in range(30):
            record: list[jsonbus.NodeEvent] = []
            records.append(record)
            bus.on_node(record.append)
            assert await until(lambda r=record: r)
        stop.set()
        await task
        assert await until(lambda: len(bus.nodes()) == 1)
        for record in records:
            assert await until(lambda r=record: not present(r))


def present(record: list[jsonbus.NodeEvent]) -> set[str]:
    """Who is there by what was reported, each coming before it goes."""
    here: set[str] = set()
    for event in record:
        if event.kind == "joined":
            assert event.node not in here
            here.add(event.node)
        else:
            here.remove(event.node)
    return here


@asynctest
async def test_a_closed_watch_is_told_no_more() -> None:
    async with memory_buses() as (network, open_over):
        bus = open_over(network.open())
        ended: list[jsonbus.NodeEvent] = []
        got: list[jsonbus.NodeEvent] = []
        watch = bus.on_node(ended.append)
        bus.on_node(got.append)
        tell(bus, joined("a"))
        assert await until(lambda: ended and got)
        assert not watch.is_closed
        watch.close()
        watch.close()
        assert watch.is_closed and "closed" in repr(watch)
        tell(bus, joined("b"))
        assert await until(lambda: len(got) == 2)
        assert len(ended) == 1


@asynctest
async def test_it_decorates_a_function_that_stays_of_use() -> None:
    async with memory_buses() as (network, open_over):
        bus = open_over(network.open())
        got: list[str] = []

        @bus.on_node
        async def note(event: jsonbus.NodeEvent) -> None:
            await asyncio.sleep(0)
            got.append(event.name)

        tell(bus, joined("a"))
        assert await until(lambda: got == ["a"])
        await note(jsonbus.NodeEvent("joined", "id", "b", None, None, 0.0))
        assert got == ["a", "b"]
        note.close()
        assert note.is_closed


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
async def test_closing_drops_and_counts_what_waits() -> None:
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
        assert (watch.pending, watch.dropped) == (0, 3)
        assert bus.stats()["node_events_dropped"] == 3
        go_on.set()
        await bus.close()
        assert got == ["a"]
        assert bus.stats()["node_events_dropped"] == 3


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
