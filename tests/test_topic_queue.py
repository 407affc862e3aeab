from __future__ import annotations

import random
import threading
import weakref
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from jsonbus.errors import ClosedError, ConfigError
from jsonbus.topic_queue import TopicQueue
from tests.helpers import wait_until

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

    def result(self) -> Any:
        self._thread.join(DONE_S_MAX)
        assert self.is_done, "the call still waits"
        if self._error is not None:
            raise self._error
        return self._outcome


def put_and_wait_in_line(queue: TopicQueue[Any], message: Any) -> Background:
    """A writer that is known to wait. Only the queue's own line can tell that."""
    place = len(queue._line) + 1
    writer = Background(queue.put, message)
    assert wait_until(lambda: len(queue._line) == place)
    return writer


def get_and_wait(queue: TopicQueue[Any], subscriber: str) -> Background:
    """A reader that is known to wait. Only the queue's own condition can tell that."""
    waiting = queue._readable._waiters  # type: ignore[attr-defined]
    count = len(waiting) + 1
    reader = Background(queue.get, subscriber)
    assert wait_until(lambda: len(waiting) == count)
    return reader


def queue_with(maxsize: int, *subscribers: str) -> TopicQueue[Any]:
    queue = TopicQueue[Any](maxsize)
    for subscriber in subscribers:
        assert queue.subscribe(subscriber)
    return queue


def read_all(queue: TopicQueue[Any], subscriber: str) -> list[Any]:
    return [queue.get(subscriber, timeout=0) for _ in range(queue.available(subscriber))]


def test_every_subscriber_reads_every_message_in_order() -> None:
    queue = queue_with(3, "ann", "bob")
    for message in "xyz":
        queue.put(message)
    assert read_all(queue, "ann") == ["x", "y", "z"]
    assert read_all(queue, "bob") == ["x", "y", "z"]


def test_a_message_is_gone_when_its_last_reader_has_read_it() -> None:
    queue = queue_with(3, "ann", "bob")
    queue.put("x")
    queue.put("y")
    assert queue.get("ann") == "x"
    assert len(queue) == 2
    assert queue.get("bob") == "x"
    assert len(queue) == 1


def test_the_queue_lets_go_of_a_message_that_is_gone() -> None:
    class Letter:
        pass

    queue = queue_with(3, "ann")
    letters = [Letter() for _ in range(3)]
    freed = [weakref.ref(letter) for letter in letters]
    for letter in letters:
        queue.put(letter)
    del letter
    queue.get("ann")
    queue.remove(letters[1])
    queue.unsubscribe("ann")
    letters.clear()
    assert wait_until(lambda: [each() for each in freed] == [None, None, None])


def test_a_subscriber_reads_only_what_came_after_it() -> None:
    queue = queue_with(3, "ann")
    queue.put("x")
    queue.subscribe("bob")
    queue.put("y")
    assert queue.available("ann") == 2
    assert queue.available("bob") == 1
    assert queue.get("bob") == "y"


def test_without_subscribers_a_message_is_gone_at_once() -> None:
    queue = TopicQueue[str](1)
    for _ in range(3):
        queue.put("x", timeout=0)
    assert len(queue) == 0
    queue.subscribe("ann")
    assert queue.available("ann") == 0


def test_subscribing_twice_is_told_and_changes_nothing() -> None:
    queue = queue_with(3, "ann")
    queue.put("x")
    assert not queue.subscribe("ann")
    assert read_all(queue, "ann") == ["x"]


def test_a_stranger_gets_none_without_waiting() -> None:
    queue = queue_with(3, "ann")
    queue.put("x")
    assert queue.get("bob") is None
    assert queue.available("bob") == 0
    assert not queue.unsubscribe("bob")
    assert queue.available("ann") == 1


def test_get_and_put_give_up_after_their_timeout() -> None:
    queue = queue_with(1, "ann")
    for timeout in (0, 0.01, -1):
        with pytest.raises(TimeoutError, match="no message"):
            queue.get("ann", timeout)
    queue.put("x")
    for timeout in (0, 0.01, -1):
        with pytest.raises(TimeoutError, match="no room"):
            queue.put("y", timeout)
    assert read_all(queue, "ann") == ["x"]


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


def test_a_removed_message_is_read_by_nobody_any_more() -> None:
    queue = queue_with(4, "ann", "bob")
    for message in "wxyz":
        queue.put(message)
    assert [queue.get("ann") for _ in range(3)] == ["w", "x", "y"]
    assert queue.remove("x")
    assert not queue.remove("x")
    assert queue.available("ann") == 1
    assert queue.available("bob") == 3
    assert read_all(queue, "bob") == ["w", "y", "z"]
    assert read_all(queue, "ann") == ["z"]
    assert len(queue) == 0


def test_removing_a_later_message_keeps_the_place_of_who_has_yet_to_read_it() -> None:
    queue = queue_with(4, "ann", "bob")
    for message in "wxyz":
        queue.put(message)
    assert queue.get("ann") == "w"
    assert queue.remove("y")
    assert read_all(queue, "ann") == ["x", "z"]
    assert read_all(queue, "bob") == ["w", "x", "z"]


def test_of_equal_messages_the_oldest_is_removed() -> None:
    queue = queue_with(3, "ann")
    for message in ({"a": 1}, {"b": 2}, {"a": 1}):
        queue.put(message)
    assert queue.remove({"a": 1})
    assert read_all(queue, "ann") == [{"b": 2}, {"a": 1}]


def test_removing_a_message_lets_a_writer_in() -> None:
    queue = queue_with(1, "ann")
    queue.put("x")
    writer = put_and_wait_in_line(queue, "y")
    assert queue.remove("x")
    writer.result()
    assert read_all(queue, "ann") == ["y"]


def test_making_the_queue_smaller_drops_the_oldest() -> None:
    queue = queue_with(4, "ann", "bob")
    for message in "wxyz":
        queue.put(message)
    assert [queue.get("ann") for _ in range(3)] == ["w", "x", "y"]
    assert queue.resize(2) == 2
    assert queue.maxsize == 2
    assert queue.available("bob") == 2
    assert queue.remove("y")
    assert read_all(queue, "bob") == ["z"]
    assert read_all(queue, "ann") == ["z"]


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


@pytest.mark.parametrize("maxsize", [0, -1, 1.5, None, True])
def test_a_maxsize_that_is_not_a_positive_integer_is_refused(maxsize: Any) -> None:
    with pytest.raises(ConfigError, match="maxsize"):
        TopicQueue[str](maxsize)
    queue = queue_with(1, "ann")
    with pytest.raises(ConfigError, match="maxsize"):
        queue.resize(maxsize)
    assert queue.maxsize == 1


def test_a_closed_queue_can_be_read_to_its_end() -> None:
    queue = queue_with(2, "ann")
    queue.put("x")
    queue.close()
    queue.close()
    assert queue.is_closed
    assert queue.get("ann") == "x"
    with pytest.raises(ClosedError):
        queue.get("ann")
    with pytest.raises(ClosedError):
        queue.put("y")
    with pytest.raises(ClosedError):
        queue.subscribe("bob")
    assert queue.unsubscribe("ann")


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


def test_coming_and_going_subscribers_and_new_sizes_never_leave_anybody_stuck() -> None:
    """Everything at once. Whoever still waits after the close has been forgotten by somebody."""
    queue = TopicQueue[int](2)
    stop = threading.Event()

    def write() -> None:
        count = 0
        while not stop.is_set():
            try:
                queue.put(count, timeout=0.001 if count % 7 == 0 else None)
                count += 1
            except TimeoutError:
                continue
            except ClosedError:
                break

    def read(name: str, seed: int) -> None:
        dice = random.Random(seed)
        while not stop.is_set():
            try:
                queue.subscribe(name)
                for _ in range(dice.randrange(20)):
                    queue.get(name, timeout=dice.choice([None, 0.001]))
            except TimeoutError:
                pass
            except ClosedError:
                break
            queue.unsubscribe(name)

    def meddle() -> None:
        dice = random.Random(1)
        while not stop.is_set():
            queue.resize(dice.randrange(1, 5))
            queue.remove(dice.randrange(100))

    writers = [Background(write) for _ in range(3)]
    readers = [Background(read, f"reader {seed}", seed) for seed in range(3)]
    meddler = Background(meddle)
    assert wait_until(lambda: queue._end > 2_000, timeout_s=DONE_S_MAX)
    stop.set()
    queue.close()
    for background in (*writers, *readers, meddler):
        background.result()


class QueueAgainstLists(RuleBasedStateMachine):
    """Random calls, without waiting, on a queue and on one plain list per subscriber."""

    SUBSCRIBERS = st.sampled_from(["ann", "bob", "eve"])

    def __init__(self) -> None:
        super().__init__()
        self.maxsize = 3
        self.queue = TopicQueue[int](self.maxsize)
        self.lists: dict[str, list[int]] = {}
        self.next_message = 0

    def held(self) -> list[int]:
        return sorted({message for unread in self.lists.values() for message in unread})

    def forget(self, message: int) -> None:
        for unread in self.lists.values():
            if message in unread:
                unread.remove(message)

    @rule(subscriber=SUBSCRIBERS)
    def subscribe(self, subscriber: str) -> None:
        assert self.queue.subscribe(subscriber) == (subscriber not in self.lists)
        self.lists.setdefault(subscriber, [])

    @rule(subscriber=SUBSCRIBERS)
    def unsubscribe(self, subscriber: str) -> None:
        assert self.queue.unsubscribe(subscriber) == (subscriber in self.lists)
        self.lists.pop(subscriber, None)

    @rule()
    def put(self) -> None:
        self.next_message += 1
        if len(self.held()) < self.maxsize:
            self.queue.put(self.next_message, timeout=0)
            for unread in self.lists.values():
                unread.append(self.next_message)
        else:
            with pytest.raises(TimeoutError):
                self.queue.put(self.next_message, timeout=0)

    @rule(subscriber=SUBSCRIBERS)
    def get(self, subscriber: str) -> None:
        if subscriber in self.lists and not self.lists[subscriber]:
            with pytest.raises(TimeoutError):
                self.queue.get(subscriber, timeout=0)
        else:
            unread = self.lists.get(subscriber)
            assert self.queue.get(subscriber, timeout=0) == (unread.pop(0) if unread else None)

    @rule(age=st.integers(0, 5))
    def remove(self, age: int) -> None:
        message = self.next_message - age
        assert self.queue.remove(message) == (message in self.held())
        self.forget(message)

    @rule(maxsize=st.integers(1, 5))
    def resize(self, maxsize: int) -> None:
        self.maxsize = maxsize
        oldest = self.held()[:-maxsize]
        assert self.queue.resize(maxsize) == len(oldest)
        for message in oldest:
            self.forget(message)

    @invariant()
    def agree(self) -> None:
        assert len(self.queue) == len(self.held())
        for subscriber in ("ann", "bob", "eve"):
            unread = self.lists.get(subscriber, [])
            assert self.queue.available(subscriber) == len(unread)


QueueAgainstLists.TestCase.settings = settings(
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    max_examples=50,
    stateful_step_count=40,
)
test_the_queue_agrees_with_a_list_per_subscriber = QueueAgainstLists.TestCase
