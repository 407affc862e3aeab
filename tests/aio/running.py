"""Tests that are coroutines, buses that are closed after them, and waiting without blocking."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, ParamSpec

import jsonbus
from jsonbus.transport import MemoryNetwork, Transport
from tests.helpers import find_free_port

P = ParamSpec("P")
OpenBus = Callable[..., jsonbus.AsyncBus]


def asynctest(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Run a coroutine as a test; it fails if it leaves a task of the bus behind."""

    async def run(*arguments: P.args, **keywords: P.kwargs) -> None:
        await test(*arguments, **keywords)
        left = [task.get_name() for task in asyncio.all_tasks()]
        assert not [name for name in left if name.startswith("jsonbus-")]

    @functools.wraps(test)
    def run_test(*arguments: P.args, **keywords: P.kwargs) -> None:
        asyncio.run(run(*arguments, **keywords))

    return run_test


@asynccontextmanager
async def buses() -> AsyncIterator[OpenBus]:
    """Opens buses on the loopback interface, on one port of their own."""
    port = find_free_port()
    async with AsyncExitStack() as stack:

        def open_one(**settings: Any) -> jsonbus.AsyncBus:
            bus = jsonbus.AsyncBus(port=port, interface="lo", **settings)
            stack.push_async_callback(bus.close)
            return bus

        yield open_one


@asynccontextmanager
async def memory_buses() -> AsyncIterator[tuple[MemoryNetwork, OpenBus]]:
    """A network in memory, and a function that opens a bus over a transport of it."""
    async with AsyncExitStack() as stack:

        def open_one(transport: Transport, **settings: Any) -> jsonbus.AsyncBus:
            bus = jsonbus.AsyncBus.over(transport, **settings)
            stack.push_async_callback(bus.close)
            return bus

        yield MemoryNetwork(), open_one


async def until(
    condition: Callable[[], object | Awaitable[object]], timeout_s: float = 30.0
) -> bool:
    """`wait_until` for coroutines; the condition may be awaitable."""
    deadline = asyncio.get_running_loop().time() + timeout_s
    pause_s = 0.001
    while True:
        result = condition()
        if isinstance(result, Awaitable):
            result = await result
        if result:
            return True
        if asyncio.get_running_loop().time() >= deadline:
            return False
        await asyncio.sleep(pause_s)
        pause_s = min(pause_s * 1.5, 0.05)
