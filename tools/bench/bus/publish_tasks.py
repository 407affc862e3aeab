"""What a publisher process in an event loop can be asked to do; see publish.py.

A file of its own because processes without an event loop do not import asyncio: their memory is
measured.
"""

from __future__ import annotations

import asyncio
from time import monotonic, monotonic_ns, process_time
from typing import Any

from tools.bench.bus.flow import PAUSE_S
from tools.bench.bus.publish import (
    PROBE_S,
    READY_S,
    Pace,
    PublisherBase,
    figures,
    wait_for_the_rest,
)
from tools.bench.bus.spec import SENSOR


class AsyncPublisher(PublisherBase):
    """A system with calls that are awaited."""

    async def open(self) -> None:
        raise NotImplementedError

    async def publish(self, topic: str, value: Any) -> None:
        raise NotImplementedError

    async def burst(self, count: int) -> None:
        publish, topic, value = self.publish, self.topic, self.value
        for _ in range(count):
            await publish(topic, value)

    async def finish(self) -> None:
        """Return once everything has been given to the system."""

    async def close(self) -> None:
        pass

    async def probe(self) -> dict[str, Any]:
        sent = 0
        deadline = monotonic() + READY_S
        while not self.all_have_heard() and monotonic() < deadline:
            await self.burst(1)
            sent += 1
            until = monotonic() + PROBE_S
            # Other processes set no event.
            while not self.all_have_heard() and monotonic() < until:  # noqa: ASYNC110
                await asyncio.sleep(PAUSE_S)
        await asyncio.to_thread(wait_for_the_rest, self, sent)
        return {"ready": self.all_have_heard()}

    async def flood(self, count: int) -> dict[str, Any]:
        self.credit.begin()
        started_at, cpu_s = monotonic(), process_time()
        async for chunk in self.credit.async_chunks(count):
            await self.burst(chunk)
        await self.finish()
        return figures(count, started_at, cpu_s)

    async def tick(self, count: int, rate: float) -> dict[str, Any]:
        started_at, cpu_s = monotonic(), process_time()
        value, pace = dict[str, Any](SENSOR), Pace(rate)
        for _ in range(count):
            await asyncio.sleep(pace.next_pause_s())
            value["at"] = monotonic_ns()
            await self.publish(self.topic, value)
        return figures(count, started_at, cpu_s)
