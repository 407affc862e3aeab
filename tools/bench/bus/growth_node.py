"""How much a node may want, and how many buses a process may have.

What a subscription costs, by their number: made by the core alone, all at once or one by one; and
by a `Bus`, each an object of its own. And how long it takes until all buses of a process know each
other, from the first one opened to the last one sure.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Iterator
from time import monotonic, process_time

import jsonbus
from jsonbus.core.node import Node
from jsonbus.core.settings import NodeSettings
from tools._setup import say
from tools.bench.arena import Arena
from tools.bench.bus.floods import Plan
from tools.bench.measures import Sample

SUBSCRIPTIONS = (1_000, 10_000, 100_000)
BUSES = (20, 100)
PATIENCE_S = 60.0
PAUSE_S = 0.02
PAUSES_MAX = 3_000  # nobody would wait any longer; the figure shows it


def measure_node(arena: Arena, plan: Plan) -> Iterator[Sample]:
    largest = plan.growth_topics[-1]  # a quick run has smaller sizes
    for repetition in range(plan.repetitions):
        say(f"node {repetition + 1}/{plan.repetitions}")
        for count in [count for count in SUBSCRIPTIONS if count <= largest] or [largest]:
            names = [f"sensors/{number % 100}/{number}" for number in range(count)]
            yield Sample("subscribe-core", f"{count:,}", _subscribe_core_us(names, one_by_one=True))
            yield Sample("subscribe-at-once", f"{count:,}", _subscribe_core_us(names))
            yield Sample("subscribe-bus", f"{count:,}", _subscribe_bus_us(arena, names))
        for count in [count for count in BUSES if 10 * count <= largest] or [2]:
            yield Sample("buses-threads", f"{count:,}", _open_buses_s(arena, count))
            yield Sample("buses-tasks", f"{count:,}", asyncio.run(_open_tasks_s(arena, count)))


def _subscribe_core_us(names: list[str], *, one_by_one: bool = False) -> float:
    node = Node(NodeSettings("reader", 1, "reader"), random.Random(1))
    node.open(0.0)

    def subscribe() -> None:
        for each in names if one_by_one else (tuple(names),):
            node.subscribe(each, "sink", 0.0)
        node.own_entry()

    return _time_us(names, subscribe)


def _subscribe_bus_us(arena: Arena, names: list[str]) -> float:
    with jsonbus.Bus(port=arena.next_port(), interface="lo") as bus:
        assert bus.wait_until_sure(PATIENCE_S)
        return _time_us(names, lambda: [bus.subscribe(name) for name in names])


def _open_buses_s(arena: Arena, count: int) -> float:
    port, begun_at = arena.next_port(), monotonic()
    buses = [jsonbus.Bus(port=port, interface="lo") for _ in range(count)]
    try:
        for bus in buses:
            for _ in range(PAUSES_MAX):
                if _is_complete(bus, count):
                    break
                time.sleep(PAUSE_S)
        return monotonic() - begun_at
    finally:
        for bus in buses:
            bus.close()


async def _open_tasks_s(arena: Arena, count: int) -> float:
    port, begun_at = arena.next_port(), monotonic()
    buses = [jsonbus.AsyncBus(port=port, interface="lo") for _ in range(count)]
    try:
        for bus in buses:
            for _ in range(PAUSES_MAX):
                if _is_complete(bus, count):
                    break
                await asyncio.sleep(PAUSE_S)
        return monotonic() - begun_at
    finally:
        for bus in buses:
            await bus.close()


def _is_complete(bus: jsonbus.Bus | jsonbus.AsyncBus, count: int) -> bool:
    """Return whether the bus knows all others, and is sure."""
    return bus.state == "sure" and len(bus.nodes()) == count


def _time_us(names: list[str], run: Callable[[], object]) -> float:
    """CPU of all threads per name."""
    begun_s = process_time()
    run()
    return 1e6 * (process_time() - begun_s) / len(names)
