"""TopicQueue and its twin without waiting: what is read by whom, and when it is gone."""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any
from unittest.mock import ANY

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from jsonbus.errors import ClosedError, ConfigError
from jsonbus.queues.tasks import AsyncTopicQueue
from jsonbus.queues.threads import TopicQueue
from tests.steps import count_steps


class BlockingTwin(AsyncTopicQueue[Any]):
    """An AsyncTopicQueue in the clothes of a TopicQueue: each call runs the event loop."""

    def __init__(self, maxsize: int, runner: asyncio.Runner) -> None:
        super().__init__(maxsize)
        self._runner = runner

    def put(self, *arguments: Any, **keywords: Any) -> Any:
        return self._runner.run(super().put(*arguments, **keywords))

    def get(self, *arguments: Any, **keywords: Any) -> Any:
        return self._runner.run(super().get(*arguments, **keywords))


Make = Callable[..., Any]


@pytest.fixture(params=["threads", "asyncio"])
def queue_of(request: pytest.FixtureRequest) -> Iterator[Make]:
    """Makes either queue, with subscribers: what holds for one must hold for the other."""
    with asyncio.Runner() as runner:

        def make(maxsize: int, *subscribers: str) -> Any:
            is_threads = request.param == "threads"
            queue: Any = TopicQueue(maxsize) if is_threads else BlockingTwin(maxsize, runner)
            for subscriber in subscribers:
                assert queue.subscribe(subscriber)
            return queue

        yield make


def queue_with(maxsize: int, *subscribers: str) -> TopicQueue[Any]:
    queue = TopicQueue[Any](maxsize)
    for subscriber in subscribers:
        assert queue.subscribe(subscriber)
    return queue


def read_all(queue: Any, subscriber: str) -> list[Any]:
    return [queue.get(subscriber, timeout=0) for _ in range(queue.available(subscriber))]


def test_every_subscriber_reads_every_message_in_order(queue_of: Make) -> None:
    queue = queue_of(3, "ann", "bob")
    for message in "xyz":
        queue.put(message)
    assert read_all(queue, "ann") == ["x", "y", "z"]
    assert read_all(queue, "bob") == ["x", "y", "z"]


def test_a_message_is_gone_when_its_last_reader_has_read_it(queue_of: Make) -> None:
    queue = queue_of(3, "ann", "bob")
    queue.put("x")
    queue.put("y")
    assert queue.get("ann") == "x"
    assert len(queue) == 2
    assert queue.get("bob") == "x"
    assert len(queue) == 1


def test_the_queue_lets_go_of_a_message_that_is_gone(queue_of: Make) -> None:
    class Letter:
        pass

    queue = queue_of(3, "ann")
    letters = [Letter() for _ in range(3)]
    freed = [weakref.ref(letter) for letter in letters]
    for letter in letters:
        queue.put(letter)
    del letter
    queue.get("ann")
    queue.remove(letters[1])
    queue.unsubscribe("ann")
    letters.clear()
    assert [each() for each in freed] == [None, None, None]


def test_a_subscriber_reads_only_what_came_after_it(queue_of: Make) -> None:
    queue = queue_of(3, "ann")
    queue.put("x")
    queue.subscribe("bob")
    queue.put("y")
    assert queue.available("ann") == 2
    assert queue.available("bob") == 1
    assert queue.get("bob") == "y"


def test_without_subscribers_a_message_is_gone_at_once(queue_of: Make) -> None:
    queue = queue_of(1)
    for _ in range(3):
        queue.put("x", timeout=0)
    assert len(queue) == 0
    queue.subscribe("ann")
    assert queue.available("ann") == 0


def test_subscribing_twice_is_told_and_changes_nothing(queue_of: Make) -> None:
    queue = queue_of(3, "ann")
    queue.put("x")
    assert not queue.subscribe("ann")
    assert read_all(queue, "ann") == ["x"]


def test_a_stranger_gets_none_without_waiting(queue_of: Make) -> None:
    queue = queue_of(3, "ann")
    queue.put("x")
    assert queue.get("bob") is None
    assert queue.available("bob") == 0
    assert not queue.unsubscribe("bob")
    assert queue.available("ann") == 1


def test_get_and_put_give_up_after_their_timeout(queue_of: Make) -> None:
    queue = queue_of(1, "ann")
    for timeout in (0, 0.01, -1):
        with pytest.raises(TimeoutError, match="no message"):
            queue.get("ann", timeout)
    queue.put("x")
    for timeout in (0, 0.01, -1):
        with pytest.raises(TimeoutError, match="no room"):
            queue.put("y", timeout)
    assert read_all(queue, "ann") == ["x"]


def test_a_removed_message_is_read_by_nobody_any_more(queue_of: Make) -> None:
    queue = queue_of(4, "ann", "bob")
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


def test_removing_a_later_message_keeps_the_place_of_who_has_yet_to_read_it(queue_of: Make) -> None:
    queue = queue_of(4, "ann", "bob")
    for message in "wxyz":
        queue.put(message)
    assert queue.get("ann") == "w"
    assert queue.remove("y")
    assert read_all(queue, "ann") == ["x", "z"]
    assert read_all(queue, "bob") == ["w", "x", "z"]


def test_of_equal_messages_the_oldest_is_removed(queue_of: Make) -> None:
    queue = queue_of(3, "ann")
    for message in ({"a": 1}, {"b": 2}, {"a": 1}):
        queue.put(message)
    assert queue.remove({"a": 1})
    assert read_all(queue, "ann") == [{"b": 2}, {"a": 1}]


def test_making_the_queue_smaller_drops_the_oldest(queue_of: Make) -> None:
    queue = queue_of(4, "ann", "bob")
    for message in "wxyz":
        queue.put(message)
    assert [queue.get("ann") for _ in range(3)] == ["w", "x", "y"]
    assert queue.resize(2) == 2
    assert queue.maxsize == 2
    assert queue.available("bob") == 2
    assert queue.remove("y")
    assert read_all(queue, "bob") == ["z"]
    assert read_all(queue, "ann") == ["z"]


@pytest.mark.parametrize("maxsize", [0, -1, 1.5, None, True])
def test_a_maxsize_that_is_not_a_positive_integer_is_refused(maxsize: Any, queue_of: Make) -> None:
    with pytest.raises(ConfigError, match="maxsize"):
        queue_of(maxsize)
    queue = queue_of(1, "ann")
    with pytest.raises(ConfigError, match="maxsize"):
        queue.resize(maxsize)
    assert queue.maxsize == 1


def test_a_closed_queue_can_be_read_to_its_end(queue_of: Make) -> None:
    queue = queue_of(2, "ann")
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


def test_none_is_a_subscriber_like_any_other(queue_of: Make) -> None:
    queue = queue_of(2)
    assert queue.subscribe(None)
    assert not queue.subscribe(None)
    queue.put("x")
    assert queue.available(None) == 1
    assert queue.get(None, timeout=0) == "x"
    assert queue.unsubscribe(None)
    assert queue.get(None) is None


@pytest.mark.parametrize(
    "let_go",
    [
        lambda queue: queue.resize(1),
        lambda queue: queue.unsubscribe("ann"),
        lambda queue: queue.remove(ANY),
        lambda queue: queue.get("ann"),
    ],
)
def test_a_message_may_use_the_queue_when_it_is_let_go(
    let_go: Callable[[Any], object], queue_of: Make
) -> None:
    """Under the queue's lock it would wait for ever."""
    seen = []

    class Letter:
        def __del__(self) -> None:
            seen.append(queue.available("ann"))

    queue = queue_of(2, "ann")
    queue.put(Letter())
    queue.put("x")
    let_go(queue)
    assert seen == [queue.available("ann")]


def test_put_and_get_take_as_many_steps_for_a_thousand_subscribers_as_for_one(
    queue_of: Make,
) -> None:
    def steps_with(count: int) -> list[int]:
        queue = queue_of(3, *(f"subscriber {number}" for number in range(count)))
        queue.put("warm")  # the first call of anything may import
        return [
            count_steps(queue.put, "x"),
            count_steps(queue.get, "subscriber 0"),
            count_steps(queue.available, "subscriber 0"),
        ]

    steps_with(1)
    assert steps_with(1_000) == steps_with(2)


def test_a_thread_is_a_subscriber_by_itself() -> None:
    queue = TopicQueue[str](3)
    assert queue.subscribe()
    assert not queue.subscribe()
    queue.put("x")
    queue.put("y")
    assert queue.available() == 2
    assert queue.get() == "x"
    assert queue.get(timeout=1) == "y"
    with pytest.raises(TimeoutError):
        queue.get(timeout=0)
    assert not queue.unsubscribe(None)
    assert queue.unsubscribe()
    assert not queue.unsubscribe()
    assert queue.get() is None
    assert queue.available() == 0


def test_each_thread_has_its_own_place_and_is_told_from_those_that_ended() -> None:
    """Not by its ident: the next thread often gets the one of the last."""
    queue = TopicQueue[str](8)
    found: list[Any] = []
    threads = []

    def look() -> None:
        found.append([queue.get(timeout=0), queue.subscribe(), queue.available()])

    for _ in range(5):
        thread = threading.Thread(target=look, name="jsonbus-test")
        thread.start()
        thread.join()
        threads.append(thread)
        queue.put("x")
    assert found == [[None, True, 0]] * 5
    assert [queue.available(thread) for thread in threads] == [5, 4, 3, 2, 1]
    assert all(queue.unsubscribe(thread) for thread in threads)
    assert len(queue) == 0


class QueueAgainstLists(RuleBasedStateMachine):
    """Random calls, without waiting, on a queue and on one plain list per subscriber.

    test_topic_queue_twins.py does the same with waiting.
    """

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
    max_examples=40,
    stateful_step_count=40,
)
test_the_queue_agrees_with_a_list_per_subscriber = QueueAgainstLists.TestCase


def test_the_repr_says_how_full_it_is_and_who_reads() -> None:
    queue: TopicQueue[str] = TopicQueue(9)
    queue.subscribe("reader")
    queue.put("x")
    assert repr(queue) == "<TopicQueue 1 of 9 messages, 1 subscribers>"
    queue.close()
    assert repr(queue) == "<TopicQueue closed, 1 of 9 messages, 1 subscribers>"
