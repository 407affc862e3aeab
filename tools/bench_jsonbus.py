"""jsonbus as its users use it: `Bus` with a handler, `AsyncBus` with iteration."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from time import process_time
from typing import Any

from bench_flow import Tally
from bench_publish import AsyncPublisher, Publisher
from bench_spec import TOPIC_NOBODY_WANTS, Spec

import jsonbus

READY_S = 30.0


class BusPublisher(Publisher):
    def __init__(self, spec: Spec) -> None:
        super().__init__(spec)
        self._bus = jsonbus.Bus(**_settings(spec))
        # No method around it: the loop of `burst` calls what an application would call.
        self.publish = self._bus.publish  # type: ignore[assignment, method-assign]

    def probe(self) -> dict[str, Any]:
        deadline = time.monotonic() + READY_S
        while time.monotonic() < deadline:
            if self._bus.state == "sure" and len(self._bus.nodes()) > self.spec.subscribers:
                break
            time.sleep(0.005)
        return super().probe()

    def finish(self) -> None:
        self._bus.flush(READY_S)

    def suppress(self, count: int) -> dict[str, Any]:
        """Publish what nobody wants."""
        assert self._bus.wait_until_sure(READY_S)
        publish, topic, value = self._bus.publish, TOPIC_NOBODY_WANTS, self.value
        assert publish(topic, value) is False
        cpu_s = process_time()
        for _ in range(count):
            publish(topic, value)
        return {"sent": count, "cpu_s": process_time() - cpu_s}

    def stats(self) -> dict[str, int]:
        return self._bus.stats()

    def close(self) -> None:
        self._bus.close()


class AsyncBusPublisher(AsyncPublisher):
    async def open(self) -> None:
        self._bus = jsonbus.AsyncBus(**_settings(self.spec))
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
        assert await self._bus.wait_until_sure(READY_S)
        publish, topic, value = self._bus.publish, TOPIC_NOBODY_WANTS, self.value
        assert await publish(topic, value) is False
        cpu_s = process_time()
        for _ in range(count):
            await publish(topic, value)
        return {"sent": count, "cpu_s": process_time() - cpu_s}

    def stats(self) -> dict[str, int]:
        return self._bus.stats()

    async def close(self) -> None:
        await self._bus.close()


class BusSubscriber:
    def __init__(self, spec: Spec, tally: Tally) -> None:
        self._bus = jsonbus.Bus(**_settings(spec))
        handler = tally.handler(lambda message: message.value)
        self._bus.subscribe(spec.topic, handler, maxsize=_mailbox(spec))
        self._stopping = threading.Event()

    def run(self, ready: Callable[[], None]) -> None:
        ready()
        self._stopping.wait()
        self._bus.close()

    def stop(self) -> None:
        self._stopping.set()

    def stats(self) -> dict[str, int]:
        return self._bus.stats()


class AsyncBusSubscriber:
    def __init__(self, spec: Spec, tally: Tally) -> None:
        self._spec = spec
        self._handle = tally.handler(lambda message: message.value)
        self._stats: dict[str, int] = {}
        self._end: Callable[[], None] | None = None

    def run(self, ready: Callable[[], None]) -> None:
        asyncio.run(self._run(ready))

    async def _run(self, ready: Callable[[], None]) -> None:
        handle = self._handle
        async with jsonbus.AsyncBus(**_settings(self._spec)) as bus:
            subscription = bus.subscribe(self._spec.topic, maxsize=_mailbox(self._spec))
            loop = asyncio.get_running_loop()
            self._end = lambda: loop.call_soon_threadsafe(subscription.close) and None
            ready()
            async for message in subscription:
                handle(message)
            self._stats = bus.stats()

    def stop(self) -> None:
        assert self._end is not None
        self._end()

    def stats(self) -> dict[str, int]:
        return self._stats


def _settings(spec: Spec) -> Any:
    return {
        "group": spec.group,
        "port": spec.port,
        "interface": spec.interface,
        "mode": spec.mode,
        "name": f"{spec.role}-{spec.index}",
        "receive_buffer_bytes": spec.receive_buffer_bytes,
    }


def _mailbox(spec: Spec) -> int:
    """Nothing is dropped unless that is what is measured: the window bounds what may wait."""
    return 4 * spec.window if spec.mailbox is None else spec.mailbox


def make_publisher(spec: Spec) -> BusPublisher | AsyncBusPublisher:
    return AsyncBusPublisher(spec) if spec.system == "jsonbus-aio" else BusPublisher(spec)


def make_subscriber(spec: Spec, tally: Tally) -> BusSubscriber | AsyncBusSubscriber:
    if spec.system == "jsonbus-aio":
        return AsyncBusSubscriber(spec, tally)
    return BusSubscriber(spec, tally)
