"""AsyncTopicQueue between tasks: who waits, who is woken, and who is cancelled.

What needs no waiting is in test_topic_queue.py, for both queues.
"""

from __future__ import annotations

import asyncio
import functools
import random
import selectors
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from jsonbus.errors import ClosedError, LocalError
from jsonbus.queues.tasks import AsyncTopicQueue

DONE_S_MAX = 60.0  # for a slow machine: what passes never waits for it
TURNS = 20  # of the event loop: more than any of these tests needs to come to rest


def in_a_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    @functools.wraps(test)
    def run(*arguments: Any, **keywords: Any) -> None:
        asyncio.run(asyncio.wait_for(test(*arguments, **keywords), DONE_S_MAX))

    return run


def queue_with(maxsize: int, *subscribers: str) -> AsyncTopicQueue[Any]:
    queue = AsyncTopicQueue[Any](maxsize)
    for subscriber in subscribers:
        assert queue.subscribe(subscriber)
    return queue


async def rest() -> None:
    """Let all tasks run as far as they can."""
    for _ in range(TURNS):
        await asyncio.sleep(0)


async def start(coroutine: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
    """A call that has to wait, and does so when this returns."""
    task = asyncio.get_running_loop().create_task(coroutine)
    await rest()
    assert not task.done()
    return task


async def read_all(queue: AsyncTopicQueue[Any], subscriber: str) -> list[Any]:
    return [await queue.get(subscriber, timeout=0) for _ in range(queue.available(subscriber))]


@in_a_loop
async def test_a_task_is_a_subscriber_by_itself() -> None:
    queue = AsyncTopicQueue[str](2)
    assert queue.subscribe()
    assert not queue.subscribe()

    async def other() -> list[Any]:
        return [await queue.get(), queue.subscribe(), queue.available(), asyncio.current_task()]

    *found, task = await asyncio.create_task(other())
    assert found == [None, True, 0]
    await queue.put("x")
    assert queue.available() == 1
    assert await queue.get() == "x"
    with pytest.raises(TimeoutError):
        await queue.get(timeout=0)
    assert queue.available(task) == 1
    assert queue.unsubscribe(task)
    assert queue.unsubscribe()
    assert len(queue) == 0


def test_who_is_no_task_must_name_a_subscriber() -> None:
    queue = AsyncTopicQueue[str](2)
    with pytest.raises(LocalError, match="give a subscriber"):
        queue.subscribe()
    assert queue.subscribe("ann")

    async def call_from_no_task() -> None:
        done = asyncio.get_running_loop().create_future()

        def call() -> None:
            try:
                done.set_result(queue.available())
            except LocalError as error:
                done.set_exception(error)

        asyncio.get_running_loop().call_soon(call)
        with pytest.raises(LocalError, match="give a subscriber"):
            await done

    asyncio.run(call_from_no_task())


def test_nobody_waits_in_the_loop_of_others() -> None:
    queue = queue_with(1, "ann")

    async def wait() -> None:
        await queue.get("ann", timeout=0.001)

    with pytest.raises(TimeoutError):
        asyncio.run(wait())
    with pytest.raises(LocalError, match="another event loop"):
        asyncio.run(wait())


@in_a_loop
async def test_a_reader_waits_for_the_next_message() -> None:
    queue = queue_with(1, "ann")
    reader = await start(queue.get("ann"))
    await queue.put("x")
    assert await reader == "x"


@in_a_loop
async def test_one_message_wakes_all_readers_that_wait() -> None:
    queue = queue_with(1, "ann", "bob", "eve")
    readers = [await start(queue.get(subscriber)) for subscriber in ("ann", "bob", "eve")]
    await queue.put("x")
    assert await asyncio.gather(*readers) == ["x", "x", "x"]
    assert len(queue) == 0


@in_a_loop
async def test_tasks_of_one_subscriber_share_its_place() -> None:
    queue = queue_with(2, "ann")
    readers = [await start(queue.get("ann")) for _ in range(2)]
    await queue.put("x")
    await rest()
    assert [reader.done() for reader in readers].count(True) == 1
    await queue.put("y")
    assert sorted(await asyncio.gather(*readers)) == ["x", "y"]


@in_a_loop
async def test_the_slowest_reader_holds_up_the_writer() -> None:
    queue = queue_with(1, "fast", "slow")
    await queue.put("x")
    writer = await start(queue.put("y"))
    assert await queue.get("fast") == "x"
    await rest()
    assert not writer.done()
    assert await queue.get("slow") == "x"
    await writer
    assert await queue.get("fast") == "y"


@in_a_loop
async def test_writers_get_in_in_the_order_of_their_arrival() -> None:
    queue = queue_with(1, "ann")
    await queue.put(0)
    writers = [await start(queue.put(number)) for number in range(1, 6)]
    assert [await queue.get("ann") for _ in range(6)] == [0, 1, 2, 3, 4, 5]
    await asyncio.gather(*writers)


@in_a_loop
async def test_writers_that_find_no_room_after_all_keep_their_order() -> None:
    queue = queue_with(1, "ann")
    await queue.put(0)
    writers = [await start(queue.put(number)) for number in range(1, 4)]
    queue.resize(3)
    queue.resize(1)  # before the first could run
    await rest()
    assert not any(writer.done() for writer in writers)
    queue.resize(4)
    await asyncio.gather(*writers)
    assert await read_all(queue, "ann") == [0, 1, 2, 3]


@in_a_loop
async def test_a_writer_that_comes_later_does_not_slip_in() -> None:
    queue = queue_with(1, "ann")
    await queue.put("x")
    writer = await start(queue.put("y"))
    assert await queue.get("ann") == "x"
    assert not writer.done()  # there is room, and it has not run yet
    with pytest.raises(TimeoutError):
        await queue.put("z", timeout=0)
    await writer
    assert await queue.get("ann") == "y"


@in_a_loop
async def test_a_writer_that_gave_up_leaves_its_message_to_nobody() -> None:
    queue = queue_with(1, "ann")
    await queue.put("x")
    with pytest.raises(TimeoutError, match="no room"):
        await queue.put("y", timeout=0.001)
    later = await start(queue.put("z"))
    assert await queue.get("ann") == "x"
    await later
    assert await read_all(queue, "ann") == ["z"]


@in_a_loop
async def test_a_reader_that_gives_up_has_waited_as_long_as_it_was_told() -> None:
    """However often it is woken, by what goes to another task of its subscriber."""
    queue = queue_with(1, "ann")
    clock = asyncio.get_running_loop().time
    started_at = clock()
    reader = await start(queue.get("ann", timeout=0.02))
    for number in range(3):
        await queue.put(number)
        assert await queue.get("ann") == number
        await rest()
    with pytest.raises(TimeoutError, match="no message"):
        await reader
    assert clock() - started_at >= 0.02


@in_a_loop
async def test_unsubscribing_counts_the_rest_as_read() -> None:
    queue = queue_with(2, "fast", "slow")
    await queue.put("x")
    await queue.put("y")
    assert await queue.get("fast") == "x"
    writer = await start(queue.put("z"))
    assert queue.unsubscribe("slow")
    await writer
    assert await read_all(queue, "fast") == ["y", "z"]


@in_a_loop
async def test_when_the_last_subscriber_goes_all_messages_and_writers_go() -> None:
    queue = queue_with(1, "ann")
    await queue.put("x")
    writers = [await start(queue.put(message)) for message in "yz"]
    queue.unsubscribe("ann")
    await asyncio.gather(*writers)
    assert len(queue) == 0


@in_a_loop
async def test_a_reader_that_waits_gets_none_when_it_is_unsubscribed() -> None:
    queue = queue_with(1, "ann")
    reader = await start(queue.get("ann"))
    queue.unsubscribe("ann")
    queue.subscribe("ann")
    await queue.put("x")
    assert await reader is None
    assert queue.available("ann") == 1


@in_a_loop
async def test_removing_a_message_or_making_room_lets_as_many_writers_in_as_fit() -> None:
    queue = queue_with(1, "ann")
    await queue.put(0)
    writers = [await start(queue.put(number)) for number in range(1, 5)]
    assert queue.remove(0)
    await writers[0]
    assert queue.resize(3) == 0
    await asyncio.gather(*writers[1:3])
    await rest()
    assert not writers[3].done()
    assert len(queue) == 3
    assert [await queue.get("ann") for _ in range(4)] == [1, 2, 3, 4]
    await writers[3]


@in_a_loop
async def test_closing_wakes_readers_and_writers() -> None:
    full = queue_with(1, "ann")
    await full.put("x")
    writers = [await start(full.put(message)) for message in "yz"]
    full.close()
    for writer in writers:
        with pytest.raises(ClosedError):
            await writer
    assert await read_all(full, "ann") == ["x"]
    empty = queue_with(1, "ann", "bob")
    readers = [await start(empty.get(subscriber)) for subscriber in ("ann", "bob")]
    empty.close()
    for reader in readers:
        with pytest.raises(ClosedError):
            await reader


@pytest.mark.parametrize("is_woken", [False, True])
@in_a_loop
async def test_a_writer_that_is_cancelled_leaves_no_message_and_lets_the_next_in(
    is_woken: bool,
) -> None:
    queue = queue_with(1, "ann")
    await queue.put("x")
    cancelled, next_one = [await start(queue.put(message)) for message in "yz"]
    if is_woken:
        assert await queue.get("ann") == "x"  # without waiting: no other task has run
        cancelled.cancel()
    else:
        cancelled.cancel()
        await rest()
        assert await queue.get("ann") == "x"
    await next_one
    assert cancelled.cancelled()
    assert await read_all(queue, "ann") == ["z"]


@pytest.mark.parametrize("is_woken", [False, True])
@in_a_loop
async def test_a_reader_that_is_cancelled_loses_no_message(is_woken: bool) -> None:
    queue = queue_with(1, "ann")
    cancelled, next_one = [await start(queue.get("ann")) for _ in range(2)]
    if is_woken:
        await queue.put("x")  # without waiting: no other task has run
        cancelled.cancel()
    else:
        cancelled.cancel()
        await rest()
        await queue.put("x")
    assert await next_one == "x"
    assert cancelled.cancelled()
    assert len(queue) == 0


@in_a_loop
async def test_whoever_gave_up_or_was_cancelled_leaves_nothing_behind() -> None:
    queue = queue_with(1, "ann")
    reader = await start(queue.get("ann"))
    reader.cancel()
    with pytest.raises(TimeoutError):
        await queue.get("ann", timeout=0.001)
    await queue.put("x")
    writer = await start(queue.put("y"))
    writer.cancel()
    with pytest.raises(TimeoutError):
        await queue.put("y", timeout=0.001)
    await rest()
    assert not queue._reading
    assert not queue._writers


def test_an_alarm_goes_with_who_set_it() -> None:
    """Else each call with a long timeout would leave one behind for that long."""

    async def wait() -> list[asyncio.TimerHandle]:
        queue = queue_with(1, "ann")
        reader = await start(queue.get("ann", timeout=3_600))
        await queue.put("x")
        assert await reader == "x"
        await queue.put("y")
        writer = await start(queue.put("z", timeout=3_600))
        writer.cancel()
        await rest()
        alarms: list[asyncio.TimerHandle] = asyncio.get_running_loop()._scheduled  # type: ignore[attr-defined]
        return [alarm for alarm in alarms if not alarm.cancelled()]

    assert asyncio.run(wait()) == []


@pytest.mark.parametrize("wait_s", [1e300, float("inf")])
@in_a_loop
async def test_a_timeout_may_be_longer_than_any_clock_can_tell(wait_s: float) -> None:
    queue = queue_with(1, "ann")
    reader = await start(queue.get("ann", timeout=wait_s))
    await queue.put("x")
    assert await reader == "x"


def test_who_waits_does_not_keep_the_loop_turning() -> None:
    class CountingSelector(selectors.DefaultSelector):
        turns = 0

        def select(self, timeout: float | None = None) -> Any:
            self.turns += 1
            return super().select(timeout)

    selector = CountingSelector()

    async def wait() -> int:
        full, empty = queue_with(1, "ann"), queue_with(1, "ann")
        await full.put("x")
        tasks = [await start(full.put("y", timeout)) for timeout in (None, 3_600)]
        tasks += [await start(empty.get("ann", timeout)) for timeout in (None, 3_600)]
        before = selector.turns
        await asyncio.sleep(0.1)
        turns = selector.turns - before
        for task in tasks:
            task.cancel()
        await rest()
        return turns

    with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(selector)) as runner:
        # One to fall asleep and one to wake up, and a few in case of a clock that is coarse.
        assert runner.run(wait()) < 10


@in_a_loop
async def test_many_writers_and_readers_lose_repeat_and_reorder_nothing() -> None:
    """Though some are cancelled on the way, and try again."""
    queue = queue_with(3, "ann", "bob", "eve")
    each, writers = 50, 4
    dice = random.Random(1)

    async def insist(call: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
        while True:
            attempt = asyncio.ensure_future(call())
            for _ in range(dice.randrange(4)):
                await asyncio.sleep(0)
            if dice.random() < 0.3:
                attempt.cancel()
            try:
                return await attempt
            except asyncio.CancelledError:
                continue

    async def write(writer: int) -> None:
        for number in range(each):
            await insist(lambda number=number: queue.put((writer, number)))  # type: ignore[misc]

    async def read(subscriber: str) -> list[Any]:
        return [await insist(lambda: queue.get(subscriber)) for _ in range(each * writers)]

    results = await asyncio.gather(
        *(read(subscriber) for subscriber in ("ann", "bob", "eve")),
        *(write(writer) for writer in range(writers)),
    )
    first, *others = results[:3]
    assert all(other == first for other in others)
    for writer in range(writers):
        assert [number for by, number in first if by == writer] == list(range(each))
    assert len(queue) == 0
