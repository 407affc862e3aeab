"""Nodes beside a gateway, each a process: a publisher, and a subscriber without a gateway.

flood PORT TOPIC RATE        for a line with a number, publish so many messages; then "done"
subscribe PORT TOPIC         for each line, print how many messages have come
"""

from __future__ import annotations

import asyncio
import sys
import time

import jsonbus

READY_S = 10.0
#: What a publisher with much to say does at once: enough that messages share datagrams.
BURST_S = 0.002


async def flood(port: int, topic: str, rate: int) -> None:
    async with jsonbus.AsyncBus(interface="lo", port=port) as bus:
        if not await bus.wait_for_subscribers(topic, READY_S):
            raise SystemExit(f"nobody subscribed to {topic}")
        print("ready", flush=True)
        while line := await _next_line():
            await _publish(bus, topic, int(line), rate)
            await bus.flush(READY_S)
            print("done", flush=True)


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
        print("ready", flush=True)
        while await _next_line():
            print(count, flush=True)


async def _next_line() -> str:
    return await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)


def main() -> None:
    what, port, topic, *rest = sys.argv[1:]
    if what == "flood":
        asyncio.run(flood(int(port), topic, int(rest[0])))
    else:
        asyncio.run(subscribe(int(port), topic))


if __name__ == "__main__":
    main()
