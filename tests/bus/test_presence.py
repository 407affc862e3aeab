"""Handlers of nodes that join, leave or expire."""

from __future__ import annotations

import threading
import time
from typing import Any

import jsonbus
from jsonbus.core.events import NodeJoined, NodeLeft
from jsonbus.core.wire.frames import About
from jsonbus.transport import MemoryNetwork
from tests.bus.conftest import OpenBus
from tests.helpers import wait_until


def tell(bus: Any, *events: NodeJoined | NodeLeft) -> None:
    """As if the node of the bus had noticed that, all in one step."""

    def act(node: object, now: float) -> None:
        for event in events:
            bus._node._emit(event)

    bus._loop.call(act)


def joined(name: str) -> NodeJoined:
    return NodeJoined(f"id-{name}", name)


def names(events: list[jsonbus.NodeEvent]) -> list[tuple[str, str]]:
    return [(event.kind, event.name) for event in events]


def test_a_node_that_joins_and_leaves_is_reported(open_bus: OpenBus) -> None:
    bus = open_bus(name="kitchen")
    got: list[jsonbus.NodeEvent] = []
    bus.on_node(got.append)
    before = time.time()
    hall = open_bus(name="hall")
    assert wait_until(lambda: got)
    hall.close()
    assert wait_until(lambda: len(got) == 2)
    assert names(got) == [("joined", "hall"), ("left", "hall")]
    assert {event.node for event in got} == {hall.id}
    assert {event.version for event in got} == {jsonbus.__version__}
    assert {event.host for event in got} == {bus.nodes()[0].host}
    assert before <= got[0].at <= got[1].at <= time.time()


def test_an_expired_node_is_told_from_one_that_left(
    network: MemoryNetwork, open_over: OpenBus
) -> None:
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
    assert wait_until(lambda: len(got) == 4)
    assert names(got) == [("joined", "a"), ("expired", "a"), ("joined", "b"), ("left", "b")]
    assert [(event.host, event.version) for event in got[1:3]] == [("desk", "0.2.0"), (None, None)]


def test_nodes_known_before_are_reported_as_joined_first(open_bus: OpenBus) -> None:
    bus, hall, attic = open_bus(name="kitchen"), open_bus(name="hall"), open_bus(name="attic")
    assert wait_until(lambda: len(bus.nodes()) == 3)
    got: list[jsonbus.NodeEvent] = []
    bus.on_node(got.append)
    hall.close()
    assert wait_until(lambda: len(got) == 3)
    assert names(got) == [("joined", "attic"), ("joined", "hall"), ("left", "hall")]
    assert got[0].node == attic.id


def test_what_was_not_told_yet_is_for_those_who_watch_already(
    network: MemoryNetwork, open_over: OpenBus
) -> None:
    bus = open_over(network.open())
    early: list[jsonbus.NodeEvent] = []
    late: list[jsonbus.NodeEvent] = []
    bus.on_node(early.append)
    with bus._loop.lock:  # noticed, and not taken from the node
        bus._node._emit(joined("a"))
        bus._node._emit(NodeLeft("id-a", "a", "left"))
    bus.on_node(late.append)
    tell(bus, joined("b"))
    assert wait_until(lambda: len(early) == 3 and late)
    assert names(early) == [("joined", "a"), ("left", "a"), ("joined", "b")]
    assert names(late) == [("joined", "b")]


def test_whenever_it_is_asked_for_each_node_is_reported_in_order_and_once(
    network: MemoryNetwork, open_over: OpenBus
) -> None:
    bus = open_over(network.open(), workers=4)
    stop = threading.Event()

    def come_and_go() -> None:
        number = 0
        while not stop.is_set():
            number += 1
            name = f"n{number}"
            with open_over(network.open(), name=name):
                assert wait_until(lambda n=name: n in {info.name for info in bus.nodes()})

    thread = threading.Thread(target=come_and_go)
    thread.start()
    records: list[list[jsonbus.NodeEvent]] = []
    try:
        for _ in range(30):
            record: list[jsonbus.NodeEvent] = []
            records.append(record)
            bus.on_node(record.append)
            assert wait_until(lambda r=record: r)
    finally:
        stop.set()
        thread.join(60)
    assert wait_until(lambda: len(bus.nodes()) == 1)
    for record in records:
        assert wait_until(lambda r=record: not present(r))


def present(record: list[jsonbus.NodeEvent]) -> set[str]:
    """Who is there by what was reported, each coming before it goes."""
    here: set[str] = set()
    for event in list(record):
        if event.kind == "joined":
            assert event.node not in here
            here.add(event.node)
        else:
            here.remove(event.node)
    return here


def test_a_closed_watch_is_told_no_more(network: MemoryNetwork, open_over: OpenBus) -> None:
    bus = open_over(network.open())
    ended: list[jsonbus.NodeEvent] = []
    got: list[jsonbus.NodeEvent] = []
    watch = bus.on_node(ended.append)
    bus.on_node(got.append)
    tell(bus, joined("a"))
    assert wait_until(lambda: ended and got)
    assert not watch.is_closed
    watch.close()
    watch.close()
    assert watch.is_closed and "closed" in repr(watch)
    tell(bus, joined("b"))
    assert wait_until(lambda: len(got) == 2)
    assert len(ended) == 1


def test_it_decorates_a_function_that_stays_of_use(
    network: MemoryNetwork, open_over: OpenBus
) -> None:
    bus = open_over(network.open())
    got: list[str] = []

    @bus.on_node
    def note(event: jsonbus.NodeEvent) -> None:
        got.append(event.name)

    tell(bus, joined("a"))
    assert wait_until(lambda: got == ["a"])
    note(jsonbus.NodeEvent("joined", "id", "b", None, None, 0.0))
    assert got == ["a", "b"]
    note.close()
    assert note.is_closed
