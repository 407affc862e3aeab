"""Bodies of batches: at hand while they are needed, and bounded."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from jsonbus.errors import StoreError
from jsonbus.gateway.webhooks.bodies import Bodies
from jsonbus.gateway.webhooks.commands import Batch
from tests.aio.running import asynctest


class Shelf:
    """Has every body, but those of subscribers that are gone."""

    def __init__(self) -> None:
        self.gone: set[int] = set()
        self.error: Exception | None = None
        self.is_open = asyncio.Event()
        self.is_open.set()

    async def body_of(self, batch: Batch) -> bytes | None:
        await self.is_open.wait()
        if self.error is not None:
            raise self.error
        return None if batch.subscriber in self.gone else bytes(batch.body_bytes)


def make_batch(subscriber: int, size_bytes: int, *, has_body: bool = True) -> Batch:
    body = bytes(size_bytes) if has_body else None
    return Batch(subscriber, str(subscriber), f"id-{subscriber}", 1, 1, size_bytes, body)


async def turn() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


@asynctest
async def test_a_new_body_is_kept_while_there_is_room() -> None:
    bodies = Bodies(Shelf().body_of, 100)
    batches = [make_batch(number, 40) for number in range(3)]
    for batch in batches:
        bodies.keep(batch)
    assert [batch.body is None for batch in batches] == [False, False, True]
    assert bodies.bytes == 80
    bodies.keep(make_batch(9, 5, has_body=False))
    assert bodies.bytes == 80
    for batch in batches * 2:
        bodies.drop(batch)
    assert bodies.bytes == 0


@asynctest
async def test_one_body_is_kept_however_large() -> None:
    bodies = Bodies(Shelf().body_of, 100)
    large = make_batch(1, 1_000)
    bodies.keep(large)
    assert large.body is not None
    bodies.drop(large)
    assert await bodies.load(large)
    assert bodies.bytes == 1_000


@asynctest
async def test_those_without_room_wait_in_line() -> None:
    bodies = Bodies(Shelf().body_of, 100)
    first = make_batch(0, 80)
    bodies.keep(first)
    waiting = [make_batch(number, size, has_body=False) for number, size in ((1, 60), (2, 10))]
    tasks = [asyncio.create_task(bodies.load(batch)) for batch in waiting]
    await turn()
    late = make_batch(3, 10)
    bodies.keep(late)  # must not overtake
    assert late.body is None
    assert not any(task.done() for task in tasks)
    bodies.drop(first)
    assert await asyncio.gather(*tasks) == [True, True]
    assert (bodies.bytes, bodies.loaded) == (70, 2)


@asynctest
async def test_who_gives_up_waiting_leaves_nothing_behind() -> None:
    shelf = Shelf()
    bodies = Bodies(shelf.body_of, 100)
    first, large, small = make_batch(0, 80), make_batch(1, 90), make_batch(2, 10)
    bodies.keep(first)
    for batch in (large, small):
        batch.body = None
    tasks = [asyncio.create_task(bodies.load(batch)) for batch in (large, small)]
    await turn()
    tasks[0].cancel()
    assert await tasks[1]
    assert bodies.bytes == 90
    # Cancelled in the moment in which it gets room, and while it reads.
    bodies.drop(small)
    again = asyncio.create_task(bodies.load(large))
    await turn()
    bodies.drop(first)
    again.cancel()
    with suppress(asyncio.CancelledError):
        await again
    assert bodies.bytes == 0
    shelf.is_open.clear()
    reading = asyncio.create_task(bodies.load(large))
    await turn()
    assert bodies.bytes == 90
    reading.cancel()
    await turn()
    assert bodies.bytes == 0


@asynctest
async def test_what_cannot_be_read_takes_no_room() -> None:
    shelf = Shelf()
    bodies = Bodies(shelf.body_of, 100)
    batch = make_batch(1, 50, has_body=False)
    shelf.gone.add(1)
    assert not await bodies.load(batch)
    assert bodies.bytes == 0
    shelf.error = StoreError("no")
    with pytest.raises(StoreError):
        await bodies.load(batch)
    assert bodies.bytes == 0
