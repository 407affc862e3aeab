"""Buses on one port of their own, closed after the test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

import jsonbus
from jsonbus.transport import MemoryNetwork, Transport
from tests.helpers import find_free_port

OpenBus = Callable[..., jsonbus.Bus]


@pytest.fixture
def open_bus() -> Iterator[OpenBus]:
    """Opens a bus on the loopback interface; all of one test share a port."""
    port = find_free_port()
    with ExitStack() as stack:

        def open_one(**settings: object) -> jsonbus.Bus:
            bus = jsonbus.Bus(port=port, interface="lo", **settings)  # type: ignore[arg-type]
            stack.callback(bus.close)
            return bus

        yield open_one


@pytest.fixture
def network() -> MemoryNetwork:
    return MemoryNetwork()


@pytest.fixture
def open_over() -> Iterator[OpenBus]:
    """Opens a bus over a transport of the test's own."""
    with ExitStack() as stack:

        def open_one(transport: Transport, **settings: object) -> jsonbus.Bus:
            bus = jsonbus.Bus.over(transport, **settings)  # type: ignore[arg-type]
            stack.callback(bus.close)
            return bus

        yield open_one
