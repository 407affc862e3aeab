"""TopicQueue between threads: who waits, and who is woken by whom."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jsonbus.errors import ClosedError
from jsonbus.queues.threads import TopicQueue
from tests.helpers import wait_until
from tests.queues.test_threads import queue_with, read_all

DONE_S_MAX = 60.0  # for a slow machine: what passes never waits for it


class Background:
    """One call in a thread of its own."""

    def __init__(self, call: Callable[..., Any], *arguments: Any) -> None:
        self._outcome: Any = None
        self._error: Exception | None = None
        self._thread = threading.Thread(
            target=self._run, args=(call, *arguments), name="jsonbus-test", daemon=True
        )
        self._thread.start()

    def _run(self, call: Callable[..., Any], *arguments: Any) -> None:
        try:
            self._outcome = call(*arguments)
        except Exception as error:
            self._error = error

    @property
    def is_done(self) -> bool:
        return not self._thread.is_alive()

    def count_sleeps(self) -> int:
        """How often the thread waited for anything, by the kernel's count."""
        assert self._thread.native_id is not None
        status = Path(f"/proc/self/task/{self._thread.native_id}/status").read_text()
        counts = dict(line.split(":\t") for line in status.splitlines())
        return int(counts["voluntary_ctxt_switches"])

    def result(self) -> Any:
        self._thread.join(DONE_S_MAX)
        assert self.is_done, "the call still waits"
        if self._error is not None:
            raise self._error
        return self._outcome


def put_and_wait_in_line(queue: TopicQueue[Any], message: Any) -> Background:
    """A writer that is known to wait. Only the queue's own line can tell that."""
    place = len(queue._writers) + 1
    writer = Background(queue.put, message)
    assert wait_until(lambda: len(queue._writers) == place)
    return writer


def get_and_wait(queue: TopicQueue[Any], subscriber: str) -> Background:
    """A reader that is known to wait. Only the queue's own condition can tell that."""
    waiting = queue._readable._waiters  # type: ignore[attr-defined]
    count = len(waiting) + 1
    reader = Background(queue.get, subscriber)
    assert wait_until(lambda: len(waiting) == count)
    return reader


def test_a_writer_that_gave_up_leaves_its_message_to_nobody() -> None:
    queue = queue_with(1, "ann")
    queue.put("x")
    with pytest.raises(TimeoutError):
        queue.put("y", timeout=0.01)
    later = put_and_wait_in_line(queue, "z")
    assert queue.get("ann") == "x"
    later.result()
    assert read_all(queue, "ann") == ["z"]


def test_a_reader_waits_for_the_next_message() -> None:
    queue = queue_with(1, "ann")
    reader = get_and_wait(queue, "ann")
    queue.put("x")
    assert reader.result() == "x"


def test_one_message_wakes_all_readers_that_wait() -> None:
    queue = queue_with(1, "ann", "bob", "eve")
    readers = [get_and_wait(queue, subscriber) for subscriber in ("ann", "bob", "eve")]
    queue.put("x")
    assert [reader.result() for reader in readers] == ["x", "x", "x"]
    assert len(queue) == 0


def test_threads_of_one_subscriber_share_its_place() -> None:
    queue = queue_with(2, "ann")
    readers = [get_and_wait(queue, "ann") for _ in range(2)]
    queue.put("x")
    queue.put("y")
    assert sorted(reader.result() for reader in readers) == ["x", "y"]


def test_the_slowest_reader_holds_up_the_writer() -> None:
    queue = queue_with(1, "fast", "slow")
    queue.put("x")
    writer = put_and_wait_in_line(queue, "y")
    assert queue.get("fast") == "x"
    assert not writer.is_done
    assert queue.get("slow") == "x"
    writer.result()
    assert queue.get("fast") == "y"


def test_writers_get_in_in_the_order_of_their_arrival() -> None:
    queue = queue_with(1, "ann")
    queue.put(0)
    writers = [put_and_wait_in_line(queue, number) for number in range(1, 6)]
    assert [queue.get("ann") for _ in range(6)] == [0, 1, 2, 3, 4, 5]
    for writer in writers:
        writer.result()


def test_a_writer_that_gives_up_costs_the_others_no_turn() -> None:
    queue = queue_with(1, "ann")
    queue.put(0)
    first = put_and_wait_in_line(queue, 1)
    given_up = Background(queue.put, 2, 0.05)
    last = Background(queue.put, 3)
    with pytest.raises(TimeoutError):
        given_up.result()
    assert wait_until(lambda: len(queue._writers) == 2)
    assert [queue.get("ann") for _ in range(3)] == [0, 1, 3]
    first.result()
    last.result()


def test_a_writer_that_comes_later_does_not_slip_in() -> None:
    queue = queue_with(1, "ann")
    queue.put("x")
    writer = put_and_wait_in_line(queue, "y")
    assert queue.get("ann") == "x"
    # Whether or not the writer has woken up already, its message is in.
    assert queue.available("ann") == 1
    with pytest.raises(TimeoutError):
        queue.put("z", timeout=0)
    writer.result()
    assert queue.get("ann") == "y"


def test_unsubscribing_counts_the_rest_as_read() -> None:
    queue = queue_with(2, "fast", "slow")
    queue.put("x")
    queue.put("y")
    assert queue.get("fast") == "x"
    writer = put_and_wait_in_line(queue, "z")
    assert queue.unsubscribe("slow")
    writer.result()
    assert read_all(queue, "fast") == ["y", "z"]
    assert queue.get("slow") is None


def test_when_the_last_subscriber_goes_all_messages_and_writers_go() -> None:
    queue = queue_with(1, "ann")
    queue.put("x")
    writers = [put_and_wait_in_line(queue, message) for message in "yz"]
    queue.unsubscribe("ann")
    for writer in writers:
        writer.result()
    assert len(queue) == 0


def test_a_reader_that_waits_gets_none_when_it_is_unsubscribed() -> None:
    queue = queue_with(1, "ann")
    reader = get_and_wait(queue, "ann")
    queue.unsubscribe("ann")
    queue.subscribe("ann")
    assert reader.result() is None


def test_removing_a_message_lets_a_writer_in() -> None:
    queue = queue_with(1, "ann")
    queue.put("x")
    writer = put_and_wait_in_line(queue, "y")
    assert queue.remove("x")
    writer.result()
    assert read_all(queue, "ann") == ["y"]


def test_making_the_queue_larger_lets_as_many_writers_in_as_fit() -> None:
    queue = queue_with(1, "ann")
    queue.put(0)
    writers = [put_and_wait_in_line(queue, number) for number in range(1, 4)]
    assert queue.resize(3) == 0
    writers[0].result()
    writers[1].result()
    assert not writers[2].is_done
    assert len(queue) == 3
    assert [queue.get("ann") for _ in range(4)] == [0, 1, 2, 3]
    writers[2].result()


def test_closing_wakes_readers_and_writers() -> None:
    full = queue_with(1, "ann")
    full.put("x")
    writers = [put_and_wait_in_line(full, message) for message in "yz"]
    full.close()
    for writer in writers:
        with pytest.raises(ClosedError):
            writer.result()
    assert read_all(full, "ann") == ["x"]
    empty = queue_with(1, "ann", "bob")
    readers = [get_and_wait(empty, subscriber) for subscriber in ("ann", "bob")]
    empty.close()
    for reader in readers:
        with pytest.raises(ClosedError):
            reader.result()


def test_room_that_comes_after_the_close_lets_nobody_in() -> None:
    queue = queue_with(1, "ann")
    queue.put("x")
    writers = [put_and_wait_in_line(queue, number) for number in range(20)]
    queue.close()
    assert queue.get("ann") == "x"  # most writers have yet to wake up
    for writer in writers:
        with pytest.raises(ClosedError):
            writer.result()
    assert len(queue) == 0


@pytest.mark.parametrize("timeout", [1e300, float("inf")])
def test_a_timeout_may_be_longer_than_any_lock_can_wait(timeout: float) -> None:
    queue = queue_with(1, "ann")
    reader = Background(queue.get, "ann", timeout)
    queue.put("x")
    assert reader.result() == "x"
    queue.put("y")
    writer = Background(queue.put, "z", timeout)
    assert wait_until(lambda: queue._writers or writer.is_done)
    assert read_all(queue, "ann") == ["y"]
    writer.result()


def test_many_writers_and_readers_lose_repeat_and_reorder_nothing() -> None:
    queue = TopicQueue[tuple[int, int]](3)
    subscribers = ["ann", "bob", "eve"]
    for subscriber in subscribers:
        queue.subscribe(subscriber)
    each, writers = 100, 4

    def write(writer: int) -> None:
        for number in range(each):
            queue.put((writer, number))

    def read(subscriber: str) -> list[Any]:
        return [queue.get(subscriber) for _ in range(each * writers)]

    reading = [Background(read, subscriber) for subscriber in subscribers]
    writing = [Background(write, writer) for writer in range(writers)]
    for background in writing:
        background.result()
    first, *others = [background.result() for background in reading]
    assert all(other == first for other in others)
    for writer in range(writers):
        assert [number for by, number in first if by == writer] == list(range(each))
    assert len(queue) == 0


@pytest.mark.slow
def test_who_waits_is_not_woken_until_there_is_something_for_it() -> None:
    """The kernel counts how often each thread went to sleep: one that polls would wake up for it.

    Time on the wall or in the processor would depend on the machine.
    """
    full, empty = queue_with(1, "ann"), queue_with(1, "ann")
    full.put("x")
    calls = [
        *(Background(full.put, "y", timeout) for timeout in (None, 3_600)),
        *(Background(empty.get, "ann", timeout) for timeout in (None, 3_600)),
    ]

    def count_waiting() -> int:
        return len(full._writers) + len(empty._readable._waiters)  # type: ignore[attr-defined]

    assert wait_until(lambda: count_waiting() == len(calls))
    before = [call.count_sleeps() for call in calls]
    time.sleep(0.5)
    sleeps = [call.count_sleeps() - count for call, count in zip(calls, before, strict=True)]
    # On a machine that is busy, one may yet have to fall asleep, once the interpreter is free.
    assert max(sleeps) <= 2
    assert not any(call.is_done for call in calls)
    full.close()
    empty.close()
    for call in calls:
        with pytest.raises(ClosedError):
            call.result()


def test_coming_and_going_subscribers_and_new_sizes_never_leave_anybody_stuck() -> None:
    """Everything at once. Whoever still waits after the close has been forgotten by somebody."""
    queue = TopicQueue[tuple[int, int]](2)
    stop = threading.Event()

    def write(writer: int) -> None:
        count = 0
        while not stop.is_set():
            try:
                queue.put((writer, count), timeout=0.001 if count % 7 == 0 else None)
                count += 1
            except TimeoutError:
                continue
            except ClosedError:
                break

    def read(subscriber: Any, seed: int) -> None:
        """One with a name, and one that is known by its thread."""
        dice = random.Random(seed)
        named = {} if subscriber is None else {"subscriber": subscriber}
        while not stop.is_set():
            latest: dict[int, int] = {}
            try:
                queue.subscribe(**named)
                for _ in range(dice.randrange(20)):
                    message = queue.get(**named, timeout=dice.choice([None, 0.001]))
                    if message is None:
                        break  # the meddler unsubscribed it
                    writer, count = message
                    assert count > latest.get(writer, -1), "repeated, or out of order"
                    latest[writer] = count
            except TimeoutError:
                pass
            except ClosedError:
                break
            queue.unsubscribe(**named)

    def meddle() -> None:
        dice = random.Random(1)
        while not stop.is_set():
            queue.resize(dice.randrange(1, 5))
            queue.remove((dice.randrange(3), dice.randrange(100)))
            assert len(queue) >= 0
            if dice.random() < 0.05:
                queue.unsubscribe("bob")

    writers = [Background(write, number) for number in range(3)]
    readers = [Background(read, each, seed) for seed, each in enumerate([None, "ann", "bob", None])]
    meddler = Background(meddle)
    assert wait_until(lambda: queue._state.end > 2_000, timeout_s=DONE_S_MAX)
    # While all are busy, and with the flag not yet set: the close alone must get everybody out.
    queue.close()
    for background in (*writers, *readers):
        background.result()
    stop.set()
    meddler.result()
    assert not queue._writers
