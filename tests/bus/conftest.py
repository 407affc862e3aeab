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
from jsonbus.aio.loop import Loop
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
        if threading.current_thread() is self._thread:  # a handler: only plain calls work there
            return function(*arguments, **keywords)

        async def run() -> Any:
            result = function(*arguments, **keywords)
            return await result if inspect.isawaitable(result) else result

        return asyncio.run_coroutine_threadsafe(run(), self._loop).result(TIMEOUT_S)

    def close(self) -> None:
        """Stop it; fail if a bus left a task behind."""
        left = self.call(lambda: [task.get_name() for task in asyncio.all_tasks()])
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        assert not [name for name in left if name.startswith("jsonbus-")]


#: Attributes and results of calls that are driven like the bus itself.
DRIVEN = (Subscription, Watch, Binding, jsonbus.AsyncChannel, Loop)


class Driven:
    """An `AsyncBus`, or one of its subscriptions, watches and channels, used from a thread."""

    def __init__(self, thread: EventLoopThread, target: Any) -> None:
        self._thread = thread
        self._target = target

    def _drive(self, value: Any) -> Any:
        return Driven(self._thread, value) if isinstance(value, DRIVEN) else value

    def __getattr__(self, name: str) -> Any:
        value = self._drive(self._thread.call(getattr, self._target, name))
        if isinstance(value, Driven) or not callable(value):
            return value
        return lambda *arguments, **keywords: self._drive(
            self._thread.call(value, *arguments, **keywords)
        )

    def __call__(self, *arguments: Any) -> Any:
        return self._thread.call(self._target, *arguments)

    def __iter__(self) -> Driven:
        return self

    def __next__(self) -> Any:
        try:
            return self._drive(self._thread.call(self._target.__anext__))
        except StopAsyncIteration:
            raise StopIteration from None

    def __enter__(self) -> Driven:
        name = "__aenter__" if hasattr(self._target, "__aenter__") else "__enter__"
        self._thread.call(getattr(self._target, name))
        return self

    def __exit__(self, *error: Any) -> None:
        name = "__aexit__" if hasattr(self._target, "__aexit__") else "__exit__"
        self._thread.call(getattr(self._target, name), *error)

    def __repr__(self) -> str:
        return str(self._thread.call(repr, self._target))


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
