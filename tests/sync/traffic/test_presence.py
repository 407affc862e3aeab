"""Handlers of nodes that join, leave or expire, with threads."""

from __future__ import annotations

import dataclasses
import logging
import threading

import pytest

import jsonbus
from jsonbus.core.events import NodeJoined, NodeLeft
from jsonbus.errors import ClosedError, ConfigError
from jsonbus.frontend import watch as watching
from jsonbus.transport import MemoryNetwork
from tests.helpers import wait_until
from tests.sync.conftest import OpenBus


def tell(bus: jsonbus.Bus, *events: NodeJoined | NodeLeft) -> None:
    """As if the node of the bus had noticed that, all in one step."""

    def act(node: object, now: float) -> None:
        for event in events:
            bus._node._emit(event)

    bus._loop.call(act)


def joined(name: str) -> NodeJoined:
    return NodeJoined(f"id-{name}", name)


def test_a_handler_that_fails_is_logged_and_told_of_the_next(
    network: MemoryNetwork, open_over: OpenBus, caplog: pytest.LogCaptureFixture
) -> None:
    bus = open_over(network.open())
    got: list[str] = []

    def fail(event: jsonbus.NodeEvent) -> None:
        got.append(event.name)
        raise SystemExit if event.name == "a" else ValueError

    bus.on_node(fail)
    with caplog.at_level(logging.ERROR, "jsonbus"):
        tell(bus, joined("a"), joined("b"), joined("c"))
        assert wait_until(lambda: got == ["a", "b", "c"] and len(caplog.records) == 3)
    assert "the handler of nodes failed on NodeEvent(kind='joined', node='id-a'" in caplog.text


def test_a_handler_runs_in_a_worker_and_without_the_lock(
    network: MemoryNetwork, open_over: OpenBus
) -> None:
    bus = open_over(network.open(), name="kitchen")
    seen: list[tuple[str, int]] = []

    def look(event: jsonbus.NodeEvent) -> None:
        seen.append((threading.current_thread().name, len(bus.nodes())))
        bus.subscribe("x")
        bus.publish("x", 1)

    bus.on_node(look)
    tell(bus, joined("a"))
    assert wait_until(lambda: seen)
    assert seen[0][0].startswith("jsonbus-") and seen[0][0] != threading.current_thread().name


def test_a_slow_handler_holds_up_neither_the_bus_nor_others(open_bus: OpenBus) -> None:
    bus = open_bus(name="kitchen", workers=2)
    go_on = threading.Event()
    got: list[str] = []
    bus.on_node(lambda event: go_on.wait(60))
    bus.on_node(lambda event: got.append(event.name))
    try:
        open_bus(name="hall")
        assert wait_until(lambda: got == ["hall"])
        open_bus(name="attic")
        assert wait_until(lambda: got == ["hall", "attic"])
    finally:
        go_on.set()


def test_what_waits_is_bounded_and_what_is_dropped_is_counted(
    network: MemoryNetwork,
    open_over: OpenBus,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(watching, "EVENTS_MAX", 3)
    bus = open_over(network.open())
    started, go_on = threading.Event(), threading.Event()
    got: list[str] = []

    def wait(event: jsonbus.NodeEvent) -> None:
        started.set()
        go_on.wait(60)
        got.append(event.name)

    watch = bus.on_node(wait)
    try:
        tell(bus, joined("first"))
        assert started.wait(60)
        for name in "abcde":
            tell(bus, joined(name))
        assert (watch.pending, watch.dropped) == (3, 2)
        assert bus.stats()["node_events_dropped"] == 2
        assert "3 pending" in repr(watch)
    finally:
        go_on.set()
    assert wait_until(lambda: got == ["first", "c", "d", "e"])
    watch.close()
    assert bus.stats()["node_events_dropped"] == 2
    assert caplog.text.count("a handler of nodes is too slow") == 1


def test_closing_forgets_what_waits_without_counting_it_as_dropped(
    network: MemoryNetwork, open_over: OpenBus
) -> None:
    bus = open_over(network.open())
    started, go_on = threading.Event(), threading.Event()
    got: list[str] = []

    def wait(event: jsonbus.NodeEvent) -> None:
        got.append(event.name)
        started.set()
        go_on.wait(60)

    watch = bus.on_node(wait)
    tell(bus, *(joined(name) for name in "abc"))
    assert started.wait(60)
    tell(bus, joined("d"))
    watch.close()
    assert (watch.pending, watch.dropped) == (0, 0)
    assert bus.stats()["node_events_dropped"] == 0
    go_on.set()
    bus.close()
    assert got == ["a"]
    assert bus.stats()["node_events_dropped"] == 0


def test_a_handler_may_close_the_bus(network: MemoryNetwork, open_over: OpenBus) -> None:
    bus = open_over(network.open())
    watch = bus.on_node(lambda event: bus.close())
    tell(bus, joined("a"))
    assert wait_until(lambda: bus.is_closed and watch.is_closed)


def test_only_a_plain_function_is_taken_and_only_by_an_open_bus(open_bus: OpenBus) -> None:
    bus = open_bus()

    async def handler(event: jsonbus.NodeEvent) -> None: ...

    with pytest.raises(ConfigError):
        bus.on_node(handler)
    with pytest.raises(ConfigError):
        bus.on_node("print")  # type: ignore[arg-type]
    bus.close()
    with pytest.raises(ClosedError):
        bus.on_node(print)


def test_events_are_frozen() -> None:
    event = jsonbus.NodeEvent("joined", "id", "a", None, None, 0.0)
    with pytest.raises(dataclasses.FrozenInstanceError):
        event.kind = "left"  # type: ignore[misc]
