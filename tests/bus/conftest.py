"""Tests that hold for both front ends: each runs with `Bus` and with `AsyncBus`.

They are written as for `Bus`. An `AsyncBus` runs in an event loop in a thread of its own, and
`Driven` makes its methods plain calls from the test's thread.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

import jsonbus
from jsonbus.aio.channels import Binding
from jsonbus.aio.subscription import Subscription
from jsonbus.aio.watch import Watch
from jsonbus.transport import MemoryNetwork, Transport
from tests.helpers import find_free_port

OpenBus = Callable[..., Any]

TIMEOUT_S = 120.0


class EventLoopThread:
    """An event loop in a thread; `call` runs a function there, and awaits its result."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="test-event-loop")
        self._thread.start()

    def call(self, function: Callable[..., Any], *arguments: Any, **keywords: Any) -> Any:
        async def run() -> Any:
            result = function(*arguments, **keywords)
            return await result if inspect.isawaitable(result) else result

        return asyncio.run_coroutine_threadsafe(run(), self._loop).result(TIMEOUT_S)

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


#: The results of calls that are driven like the bus itself.
DRIVEN = (Subscription, Watch, Binding, jsonbus.AsyncChannel)


class Driven:
    """An `AsyncBus`, or one of its subscriptions, watches and channels, used from a thread."""

    def __init__(self, thread: EventLoopThread, target: Any) -> None:
        self._thread = thread
        self._target = target

    def __getattr__(self, name: str) -> Any:
        value = self._thread.call(getattr, self._target, name)
        if not callable(value):
            return value

        def call(*arguments: Any, **keywords: Any) -> Any:
            result = self._thread.call(value, *arguments, **keywords)
            is_ours = isinstance(result, DRIVEN)
            return Driven(self._thread, result) if is_ours else result

        return call

    def __enter__(self) -> Driven:
        self._thread.call(self._target.__aenter__)
        return self

    def __exit__(self, *error: Any) -> None:
        self._thread.call(self._target.__aexit__, *error)


@pytest.fixture(params=["threads", "tasks"])
def open_any(request: pytest.FixtureRequest) -> Iterator[OpenBus]:
    """Opens a bus of one front end; `transport` is one to open it over."""
    with ExitStack() as stack:
        thread = None
        if request.param == "tasks":
            thread = EventLoopThread()
            stack.callback(thread.close)

        def open_one(transport: Transport | None = None, **settings: Any) -> Any:
            kind = jsonbus.Bus if thread is None else jsonbus.AsyncBus
            make = kind if transport is None else lambda **each: kind.over(transport, **each)
            bus: Any = make(**settings) if thread is None else thread.call(make, **settings)
            if thread is not None:
                bus = Driven(thread, bus)
            stack.callback(bus.close)
            return bus

        yield open_one


@pytest.fixture
def open_bus(open_any: OpenBus) -> OpenBus:
    """Opens a bus on the loopback interface; all of one test share a port."""
    port = find_free_port()
    return lambda **settings: open_any(port=port, interface="lo", **settings)


@pytest.fixture
def network() -> MemoryNetwork:
    return MemoryNetwork()


@pytest.fixture
def open_over(open_any: OpenBus) -> OpenBus:
    """Opens a bus over a transport of the test's own."""
    return open_any
