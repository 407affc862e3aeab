"""Two buses and a channel between them."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, NamedTuple

import jsonbus
from jsonbus.aio.channel import Channel
from jsonbus.aio.channels import Binding
from jsonbus.errors import ChannelTimeoutError
from tests.aio.running import OpenBus
from tests.channel_peers import BLOCK, LONG_S


class Pair(NamedTuple):
    """`here` was connected by `calling`, `there` accepted by `bound`."""

    here: Channel
    there: Channel
    calling: jsonbus.AsyncBus
    bound: jsonbus.AsyncBus
    binding: Binding


async def open_pair(open_bus: OpenBus, **settings: Any) -> Pair:
    calling = open_bus(name="calling", **settings)
    bound = open_bus(name="bound", **settings)
    binding = bound.bind("p")
    here = await calling.connect("bound", "p", timeout=LONG_S, retry=True)
    return Pair(here, await binding.accept(LONG_S), calling, bound, binding)


async def fill(channel: Channel, other: Channel) -> int:
    """Send until everything is full, since the other end does not read; how many blocks."""
    count = 0
    while True:
        try:
            await channel.send(BLOCK, timeout=0.1)
            count += 1
        except ChannelTimeoutError:
            if other._connection is not None and not other._connection.interest[0]:
                return count


class InTask:
    """A coroutine in a task of its own, and what became of it."""

    def __init__(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        self.task = asyncio.create_task(coroutine)

    async def result(self) -> Any:
        """What it returned, or raises what it raised."""
        return await asyncio.wait_for(self.task, LONG_S)
