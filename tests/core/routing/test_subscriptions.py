from __future__ import annotations

import weakref

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from jsonbus.core.routing.matching import matches
from jsonbus.core.routing.subscriptions import Interest, SubscriptionStore

RELAXED = settings(
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    max_examples=40,
    stateful_step_count=30,
)

TOPICS = ["a", "b", "a/b", "a/b/c", "jsonbus.request/a"]
PATTERNS = st.sampled_from(["a", "b", "a/b", "a/*", "*", "**", "a/**", "**/c"])


def test_subscribers_are_found_by_topic_oldest_first() -> None:
    store = SubscriptionStore[str]()
    assert store.subscribe("a/*", "ann")
    assert store.subscribe("a/b", "bob")
    assert store.subscribe("a/b", "ann")
    assert store.subscribers_of("a/b") == ("ann", "bob")
    assert store.subscribers_of("a/c") == ("ann",)
    assert store.subscribers_of("c") == ()


def test_patterns_are_found_by_subscriber() -> None:
    store = SubscriptionStore[str]()
    store.subscribe("b", "ann")
    store.subscribe("a/*", "ann")
    assert store.patterns_of("ann") == ("b", "a/*")
    assert store.patterns_of("bob") == ()


def test_subscribing_twice_is_told_and_changes_nothing() -> None:
    store = SubscriptionStore[str]()
    assert store.subscribe("a", "ann")
    generation = store.generation
    assert not store.subscribe("a", "ann")
    assert store.generation == generation
    assert store.subscribers_of("a") == ("ann",)
    assert store.unsubscribe("a", "ann")
    assert store.subscribers_of("a") == ()


def test_unsubscribing_a_stranger_is_told_and_changes_nothing() -> None:
    store = SubscriptionStore[str]()
    store.subscribe("a", "ann")
    generation = store.generation
    assert not store.unsubscribe("a", "bob")
    assert not store.unsubscribe("b", "ann")
    assert store.remove("bob") == ()
    assert store.generation == generation
    assert store.subscribers_of("a") == ("ann",)


def test_a_pattern_goes_with_its_last_subscriber() -> None:
    store = SubscriptionStore[str]()
    store.subscribe("a", "ann")
    store.subscribe("a", "bob")
    store.unsubscribe("a", "ann")
    assert "a" in store
    assert store.patterns() == ("a",)
    store.unsubscribe("a", "bob")
    assert "a" not in store
    assert store.patterns() == ()
    assert len(store) == 0


def test_removing_a_subscriber_ends_all_its_subscriptions_and_only_those() -> None:
    store = SubscriptionStore[str]()
    for pattern in ("a", "b/*", "**"):
        store.subscribe(pattern, "ann")
    store.subscribe("a", "bob")
    generation = store.generation
    assert store.remove("ann") == ("a", "b/*", "**")
    assert store.generation > generation
    assert store.patterns() == ("a",)
    assert store.subscribers_of("a") == ("bob",)
    assert store.patterns_of("ann") == ()


def test_a_visit_reaches_exactly_those_who_were_there_when_it_began() -> None:
    store = SubscriptionStore[str]()
    store.subscribe("a", "ann")
    store.subscribe("a", "bob")
    visited = []
    for subscriber in store.subscribers_of("a"):
        visited.append(subscriber)
        store.remove("bob")
        store.subscribe("a", "eve")
    assert visited == ["ann", "bob"]
    assert store.subscribers_of("a") == ("ann", "eve")


def test_subscribers_that_look_alike_are_kept_apart() -> None:
    store = SubscriptionStore[object]()
    first, second = object(), object()
    store.subscribe("a", first)
    store.subscribe("a", second)
    assert store.subscribers_of("a") == (first, second)


def test_a_subscriber_without_subscriptions_is_let_go() -> None:
    class Subscriber:
        pass

    store = SubscriptionStore[Subscriber]()
    for end in (lambda each: store.unsubscribe("a/*", each), store.remove):
        subscriber = Subscriber()
        store.subscribe("a/*", subscriber)
        assert store.subscribers_of("a/b") == (subscriber,)
        end(subscriber)
        freed = weakref.ref(subscriber)
        del subscriber
        assert freed() is None


class StoreAgainstPairs(RuleBasedStateMachine):
    """Random changes to a store and to a plain list of (pattern, subscriber)."""

    def __init__(self) -> None:
        super().__init__()
        self.store = SubscriptionStore[int]()
        self.pairs: list[tuple[str, int]] = []

    @rule(pattern=PATTERNS, subscriber=st.integers(0, 3))
    def subscribe(self, pattern: str, subscriber: int) -> None:
        is_new = (pattern, subscriber) not in self.pairs
        generation = self.store.generation
        assert self.store.subscribe(pattern, subscriber) == is_new
        assert (self.store.generation > generation) == is_new
        if is_new:
            self.pairs.append((pattern, subscriber))

    @rule(pattern=PATTERNS, subscriber=st.integers(0, 3))
    def unsubscribe(self, pattern: str, subscriber: int) -> None:
        is_known = (pattern, subscriber) in self.pairs
        generation = self.store.generation
        assert self.store.unsubscribe(pattern, subscriber) == is_known
        assert (self.store.generation > generation) == is_known
        if is_known:
            self.pairs.remove((pattern, subscriber))

    @rule(subscriber=st.integers(0, 3))
    def remove(self, subscriber: int) -> None:
        had = tuple(p for p, s in self.pairs if s == subscriber)
        assert self.store.remove(subscriber) == had
        self.pairs = [pair for pair in self.pairs if pair[1] != subscriber]

    @invariant()
    def both_directions_agree(self) -> None:
        for topic in TOPICS:
            wanted_by = dict.fromkeys(s for p, s in self.pairs if matches(p, topic))
            assert self.store.subscribers_of(topic) == tuple(wanted_by)
        for subscriber in range(4):
            has = tuple(p for p, s in self.pairs if s == subscriber)
            assert self.store.patterns_of(subscriber) == has
        assert sorted(self.store.patterns()) == sorted({p for p, _ in self.pairs})
        assert len(self.store) == len(self.store.patterns())


StoreAgainstPairs.TestCase.settings = RELAXED
test_the_store_agrees_with_a_list_of_pairs = StoreAgainstPairs.TestCase


def test_a_topic_is_wanted_until_the_last_node_gives_it_up() -> None:
    interest = Interest()
    interest.add(["a", "b/**"])
    interest.add(["a", "b/**"])
    interest.remove(["a", "b/**"])
    assert interest.wants("a")
    assert interest.wants("b/c")
    interest.remove(["a", "b/**"])
    assert not interest.wants("a")
    assert not interest.wants("b/c")
    assert interest._counts == {}


def test_wildcards_do_not_make_a_node_serve_requests() -> None:
    interest = Interest()
    interest.add(["**", "jsonbus.request/add"])
    assert interest.wants("jsonbus.request/add")
    assert not interest.wants("jsonbus.request/subtract")


class InterestAgainstLists(RuleBasedStateMachine):
    """Nodes come with lists and go again."""

    def __init__(self) -> None:
        super().__init__()
        self.interest = Interest()
        self.lists: list[list[str]] = []

    @rule(patterns=st.lists(PATTERNS, max_size=4))
    def come(self, patterns: list[str]) -> None:
        self.interest.add(patterns)
        self.lists.append(patterns)

    @rule(data=st.data())
    def go(self, data: st.DataObject) -> None:
        if self.lists:
            index = data.draw(st.integers(0, len(self.lists) - 1))
            self.interest.remove(self.lists.pop(index))

    @invariant()
    def wants_what_somebody_wants(self) -> None:
        patterns = {pattern for patterns in self.lists for pattern in patterns}
        for topic in TOPICS:
            assert self.interest.wants(topic) == any(matches(p, topic) for p in patterns)
        assert len(self.interest._counts) == len(patterns)


InterestAgainstLists.TestCase.settings = RELAXED
test_interest_agrees_with_the_lists_of_all_nodes = InterestAgainstLists.TestCase
