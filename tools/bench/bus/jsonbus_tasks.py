"""jsonbus as programs with asyncio use it: `AsyncBus`, and iteration over a subscription."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from functools import partial
from time import process_time
from typing import Any

import jsonbus
from tools.bench.bus.flow import Tally
from tools.bench.bus.jsonbus_threads import READY_S, bus_settings, mailbox_size, means_of
from tools.bench.bus.publish_tasks import AsyncPublisher
from tools.bench.bus.spec import TOPIC_NOBODY_WANTS, Spec


class AsyncBusPublisher(AsyncPublisher):
    async def open(self) -> None:
        self._bus = jsonbus.AsyncBus(**bus_settings(self.spec))
        self.publish = self._bus.publish  # type: ignore[assignment, method-assign]

    async def probe(self) -> dict[str, Any]:
        deadline = time.monotonic() + READY_S
        while time.monotonic() < deadline:
            if self._bus.state == "sure" and len(self._bus.nodes()) > self.spec.subscribers:
                break
            await asyncio.sleep(0.005)
        return await super().probe()

    async def finish(self) -> None:
        await self._bus.flush(READY_S)

    async def suppress(self, count: int) -> dict[str, Any]:
        publish, topic, value = self._bus.publish, TOPIC_NOBODY_WANTS, self.value
        while await publish(topic, value):
            await self._bus.wait_until_sure(READY_S)
        cpu_s = process_time()
        for _ in range(count):
            await publish(topic, value)
        return {"sent": count, "cpu_s": process_time() - cpu_s}

    def stats(self) -> dict[str, int]:
        return self._bus.stats()

    def means(self) -> str:
        return means_of(self._bus)

    async def close(self) -> None:
        await self._bus.close()


class AsyncBusSubscriber:
    def __init__(self, spec: Spec, tally: Tally) -> None:
        self._spec = spec
        self._handle = tally.handler(lambda message: message.value)
        self._stats: dict[str, int] = {}
        self._end: Callable[[], object] | None = None

    def run(self, ready: Callable[[], None]) -> None:
        asyncio.run(self._run(ready))

    async def _run(self, ready: Callable[[], None]) -> None:
        handle = self._handle
        async with jsonbus.AsyncBus(**bus_settings(self._spec)) as bus:
            subscription = bus.subscribe(self._spec.topic, maxsize=mailbox_size(self._spec))
            loop = asyncio.get_running_loop()
            self._end = partial(loop.call_soon_threadsafe, subscription.close)
            ready()
            async for message in subscription:
                handle(message)
            self._stats = bus.stats()

    def stop(self) -> None:
        assert self._end is not None
        self._end()

    def stats(self) -> dict[str, int]:
        return self._stats


def make_publisher(spec: Spec) -> AsyncBusPublisher:
    return AsyncBusPublisher(spec)


def make_subscriber(spec: Spec, tally: Tally) -> AsyncBusSubscriber:
    return AsyncBusSubscriber(spec, tally)
