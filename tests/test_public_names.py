"""What a program names in annotations and `except` clauses is found in `jsonbus` itself."""

from __future__ import annotations

import asyncio
from typing import Any

import jsonbus
from tests.helpers import find_free_port


def test_every_error_is_a_public_name() -> None:
    defined = {
        name: value
        for name, value in vars(jsonbus.errors).items()
        if isinstance(value, type) and issubclass(value, jsonbus.JsonBusError)
    }
    assert defined
    assert all(getattr(jsonbus, name) is value for name, value in defined.items())
    assert set(defined) <= set(jsonbus.__all__)


def test_everything_that_a_bus_returns_has_a_public_name() -> None:
    with jsonbus.Bus(interface="lo", port=find_free_port()) as bus:
        assert type(bus.bind("port")) is jsonbus.Binding
        assert type(bus.subscribe("a")) is jsonbus.Subscription
        assert type(bus.on_node(print)) is type(bus.on_gap(print)) is jsonbus.Watch
        bus.serve("kind", lambda request: type(request).__name__)
        assert bus.request("kind", timeout=60) == jsonbus.Request.__name__
        assert_named(bus)


def test_everything_that_an_async_bus_returns_has_a_public_name() -> None:
    async def run() -> None:
        async with jsonbus.AsyncBus(interface="lo", port=find_free_port()) as bus:
            assert type(bus.bind("port")) is jsonbus.AsyncBinding
            assert type(bus.subscribe("a")) is jsonbus.AsyncSubscription
            assert type(bus.on_node(print)) is type(bus.on_gap(print)) is jsonbus.AsyncWatch
            bus.serve("kind", lambda request: type(request).__name__)
            assert await bus.request("kind", timeout=60) == jsonbus.Request.__name__
            assert_named(bus)

    asyncio.run(run())


def assert_named(bus: Any) -> None:
    assert type(bus.config) is jsonbus.BusConfig
    assert type(bus.nodes()[0]) is jsonbus.NodeInfo
    assert type(bus.explain("a")) is jsonbus.Explanation
