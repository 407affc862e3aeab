"""Nodes beside a gateway, each a process: a publisher, and a subscriber without a gateway.

flood PORT TOPIC RATE        each time it is asked, publish `count` messages
subscribe PORT TOPIC         each time it is asked, say how many messages have come
"""

from __future__ import annotations

import asyncio
import sys
import time

import jsonbus
from tools.bench.worker import read_commands, write_answer

READY_S = 10.0
#: What a publisher with much to say does at once: enough that messages share datagrams.
BURST_S = 0.002

_commands = read_commands()


async def flood(port: int, topic: str, rate: int) -> None:
    async with jsonbus.AsyncBus(interface="lo", port=port) as bus:
        if not await bus.wait_for_subscribers(topic, READY_S):
            raise SystemExit(f"nobody subscribed to {topic}")
        write_answer({"ready": True})
        while True:
            command = await asyncio.to_thread(next, _commands)
            await _publish(bus, topic, command["count"], rate)
            await bus.flush(READY_S)
            write_answer({})


async def _publish(bus: jsonbus.AsyncBus, topic: str, count: int, rate: int) -> None:
    began_at = time.monotonic()
    sent = 0
    while sent < count:
        due = min(count, int((time.monotonic() - began_at + BURST_S) * rate))
        while sent < due:
            await bus.publish(topic, sent)
            sent += 1
        await asyncio.sleep(BURST_S)


async def subscribe(port: int, topic: str) -> None:
    """As the gateway does it: in batches, and nothing is dropped for want of room."""
    count = 0

    def take(messages: list[jsonbus.Message]) -> None:
        nonlocal count
        count += len(messages)

    async with jsonbus.AsyncBus(interface="lo", port=port) as bus:
        bus.subscribe(topic, take, maxsize=10_000, overflow="block", in_batches=True)
        write_answer({"ready": True})
        while True:
            await asyncio.to_thread(next, _commands)
            write_answer({"count": count})


def main() -> None:
    what, port, topic, *rest = sys.argv[1:]
    if what == "flood":
        asyncio.run(flood(int(port), topic, int(rest[0])))
    else:
        asyncio.run(subscribe(int(port), topic))


if __name__ == "__main__":
    main()
