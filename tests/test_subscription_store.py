"""SubscriptionStore between threads; who wants what is in core/test_subscriptions.py."""

from __future__ import annotations

import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import jsonbus
from jsonbus.errors import InvalidTopicError
from tests.helpers import wait_until
from tests.queues.test_waiting import Background
from tests.steps import count_steps

WRITERS = 8
PUBLISHERS = 4


class Token:
    """A subscriber: the writer that it belongs to, and its number among that writer's."""

    def __init__(self, writer: int, number: int) -> None:
        self.writer = writer
        self.number = number


@pytest.fixture
def eager_switching() -> Iterator[None]:
    """Threads take turns after every few bytecodes, so that they meet in the middle of things."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.slow
@pytest.mark.usefixtures("eager_switching")
def test_what_publishers_find_is_what_holds_at_one_moment_while_others_come_and_go() -> None:
    """Each writer's next token comes before its last one goes, under ever other patterns.

    So every message must find one token of each writer or two that follow each other, in the order
    of their coming, and for one publisher, under whichever topic, tokens never go back in time.
    """
    store = jsonbus.SubscriptionStore[Token]()
    patterns = ["a/*", "**", "a/**", "*/*", "**/*", "a/*/**"]  # all match both topics
    tokens_each = 400
    gone: list[weakref.ref[Token]] = []
    first_tokens = [Token(writer, 0) for writer in range(WRITERS)]
    for token in first_tokens:
        store.subscribe(patterns[0], token)
        store.subscribe("aside", token)

    def write(writer: int) -> Token:
        last = first_tokens[writer]
        for number in range(1, tokens_each):
            token = Token(writer, number)
            assert store.subscribe(patterns[(number + writer) % len(patterns)], token)
            store.subscribe(f"aside/{writer}/{number}", token)
            if number % 2:
                assert store.unsubscribe(store.patterns_of(last)[0], last)
            assert store.remove(last)
            gone.append(weakref.ref(last))
            last = token
        return last

    def publish() -> int:
        count = 0
        latest = [(0, 0)] * WRITERS
        while not is_over.is_set():
            for topic in ("a/b", "a/c"):
                found: dict[int, list[int]] = {}
                for token in store.subscribers_of(topic):
                    found.setdefault(token.writer, []).append(token.number)
                assert found.keys() == set(range(WRITERS))
                for writer, numbers in found.items():
                    assert numbers in ([numbers[0]], [numbers[0], numbers[0] + 1])
                    window = (numbers[0], numbers[-1])
                    assert window[0] >= latest[writer][0] and window[1] >= latest[writer][1]
                    latest[writer] = window
                count += 1
        return count

    is_over = threading.Event()
    publishers = [Background(publish) for _ in range(PUBLISHERS)]
    writers = [Background(write, writer) for writer in range(WRITERS)]
    try:
        remaining = [writer.result() for writer in writers]
    finally:
        is_over.set()
    assert all(publisher.result() for publisher in publishers)
    assert {token.number for token in store.subscribers_of("a/b")} == {tokens_each - 1}
    for token in remaining:
        assert len(store.remove(token)) == 2
    assert_empty(store)
    del token, remaining, writers
    first_tokens.clear()
    assert [each() for each in gone if each() is not None] == []


def assert_empty(store: jsonbus.SubscriptionStore[Any]) -> None:
    assert len(store) == 0
    assert store.patterns() == ()
    assert store.subscribers_of("a/b") == ()
    assert not store._patterns_of
    map_ = store._subscribers
    assert not (map_._entries or map_._serials or map_._root.branches or map_._view.change)


def test_threads_that_change_the_same_patterns_lose_no_change() -> None:
    store = jsonbus.SubscriptionStore[int]()

    def subscribe(writer: int) -> int:
        return sum(store.subscribe(pattern, number) for pattern, number in pairs)

    def unsubscribe(writer: int) -> int:
        return sum(store.unsubscribe(pattern, number) for pattern, number in pairs)

    pairs = [(pattern, number) for pattern in ("a", "a/*", "**") for number in range(30)]
    for change in (subscribe, unsubscribe):
        changes = [Background(change, writer) for writer in range(WRITERS)]
        assert sum(each.result() for each in changes) == len(pairs)  # each by one thread alone
        assert len(store.subscribers_of("a")) == (30 if change is subscribe else 0)
    assert_empty(store)


def test_whoever_only_looks_for_subscribers_never_waits_for_a_change() -> None:
    store = jsonbus.SubscriptionStore[str]()
    store.subscribe("a/*", "ann")
    with store._lock:
        assert store.subscribers_of("a/b") == ("ann",)
        assert store.subscribers_of("a/c") == ("ann",)
        assert "a/*" in store
        assert len(store) == 1


@pytest.mark.parametrize(
    "change",
    [
        lambda store, subscriber: store.subscribe("slow", subscriber),
        lambda store, subscriber: store.unsubscribe("slow/*", subscriber),
        lambda store, subscriber: store.remove(subscriber),
    ],
)
def test_a_change_that_is_stuck_holds_up_no_message(
    change: Callable[[Any, Any], object],
) -> None:
    class Slow:
        is_slow = False
        is_stuck = threading.Event()
        may_go_on = threading.Event()

        def __hash__(self) -> int:
            if self.is_slow and threading.current_thread() is not threading.main_thread():
                self.is_stuck.set()
                self.may_go_on.wait()
            return 1

    store = jsonbus.SubscriptionStore[object]()
    slow = Slow()
    store.subscribe("slow/*", slow)
    store.subscribe("other", "ann")
    store.subscribe("**", "bob")
    slow.is_slow = True
    stuck = Background(change, store, slow)
    try:
        assert wait_until(slow.is_stuck.is_set)
        assert store.subscribers_of("other") == ("ann", "bob")
        assert store.subscribers_of("slow") == ("bob",)
        assert store.subscribers_of("slow/a") == (slow, "bob")
    finally:
        slow.may_go_on.set()
    assert stuck.result()
    wants = store.subscribers_of("slow"), store.subscribers_of("slow/a")
    assert wants in ((("bob", slow), (slow, "bob")), (("bob",), ("bob",)))


def test_a_pattern_that_is_none_is_refused_and_leaves_the_store_usable() -> None:
    store = jsonbus.SubscriptionStore[str]()
    with pytest.raises(InvalidTopicError):
        store.subscribe("a//b", "ann")
    with pytest.raises(TypeError):
        store.subscribe("a", [])  # type: ignore[arg-type]
    assert_empty(store)
    assert store.subscribe("a", "ann")


class CountedHash:
    """A subscriber that counts how often it is looked up or compared."""

    look_ups = 0

    def __hash__(self) -> int:
        CountedHash.look_ups += 1
        return id(self) >> 4

    def __eq__(self, other: object) -> bool:
        CountedHash.look_ups += 1
        return self is other


def test_both_directions_take_as_many_steps_in_a_large_store_as_in_a_small_one() -> None:
    def steps_among(count: int) -> list[tuple[int, int]]:
        store = jsonbus.SubscriptionStore[CountedHash]()
        mine = CountedHash()
        store.subscribe("mine", mine)
        store.subscribe("mine/*", mine)
        for number in range(count):
            store.subscribe(f"{number}", CountedHash())
            store.subscribe("shared", CountedHash())
            store.subscribe(f"{number}/*", CountedHash())
        steps = []
        for call, *arguments in (
            (store.subscribers_of, "mine"),  # for the first time since a change
            (store.subscribers_of, "mine"),
            (store.subscribers_of, "mine/a"),
            (store.patterns_of, mine),
            (store.subscribe, "shared", mine),
            (store.unsubscribe, "shared", mine),
            (store.remove, mine),
        ):
            CountedHash.look_ups = 0
            steps.append((count_steps(call, *arguments), CountedHash.look_ups))
        return steps

    steps_among(1)  # the first call of anything may import
    small, large = steps_among(10), steps_among(1_000)
    assert large == small
    assert small[1][1] == 0  # a message asks no subscriber anything


def test_the_repr_counts_patterns_and_subscribers() -> None:
    store = jsonbus.SubscriptionStore[str]()
    store.subscribe("a/*", "x")
    store.subscribe("b", "x")
    assert repr(store) == "<SubscriptionStore 2 patterns, 1 subscribers>"
