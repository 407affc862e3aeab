from __future__ import annotations

import weakref
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from jsonbus.errors import ClosedError, ConfigError
from jsonbus.topic_queue import TopicQueue


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
    assert [each() for each in freed] == [None, None, None]


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
    max_examples=40,
    stateful_step_count=40,
)
test_the_queue_agrees_with_a_list_per_subscriber = QueueAgainstLists.TestCase
