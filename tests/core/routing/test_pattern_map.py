from __future__ import annotations

import itertools
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jsonbus.core.routing.matching import matches
from jsonbus.core.routing.pattern_map import CACHED_TOPICS_MAX, PatternMap
from tests.steps import Stopped, each_step

RELAXED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

TOPICS = ["a", "b", "a/b", "b/a", "a/a", "a/b/a", "a/b/c/a", "c/c/c/c"]
PATTERNS = st.lists(st.sampled_from(["a", "b", "*", "**"]), min_size=1, max_size=4).map("/".join)


def test_values_are_found_by_exact_topic_and_by_wildcards() -> None:
    map_ = PatternMap[str]()
    assert map_.add("a/b", "exact")
    assert map_.add("a/*", "star")
    assert map_.add("a/**", "stars")
    assert map_.match("a/b") == ("exact", "star", "stars")
    assert map_.match("a/c") == ("star", "stars")
    assert map_.match("a") == ("stars",)
    assert map_.match("b") == ()
    assert map_.find("a") == map_.match("a")
    assert map_.find("b") == ()


def test_a_value_is_given_once_in_the_order_of_its_adding() -> None:
    map_ = PatternMap[str]()
    for pattern, value in [("**", "x"), ("a", "y"), ("a", "x"), ("*", "z"), ("*", "y")]:
        assert map_.add(pattern, value)
    assert map_.match("a") == ("x", "y", "z")
    map_.discard("**", "x")
    assert map_.match("a") == ("y", "x", "z")


def test_adding_twice_changes_nothing() -> None:
    map_ = PatternMap[str]()
    assert map_.add("a/*", "x")
    assert not map_.add("a/*", "x")
    assert map_.discard("a/*", "x")
    assert not map_.discard("a/*", "x")
    assert map_.match("a/b") == ()


def test_discarding_what_is_not_there_changes_nothing() -> None:
    map_ = PatternMap[str]()
    map_.add("a/*", "x")
    assert not map_.discard("a/*", "y")
    assert not map_.discard("a", "x")
    assert not map_.discard("a/*/b", "x")
    assert map_.match("a/b") == ("x",)


def test_several_patterns_lose_a_value_at_once() -> None:
    map_ = PatternMap[str]()
    for pattern in ("a/b", "a/*", "**"):
        map_.add(pattern, "x")
        map_.add(pattern, "y")
    assert map_.discard_all(["a/b", "**", "unknown"], "x")
    assert map_.match("a/b") == ("y", "x")
    assert map_.match("b") == ("y",)
    assert not map_.discard_all(["a/b", "**"], "x")
    assert not map_.discard_all([], "y")


def test_patterns_are_listed_until_their_last_value_goes() -> None:
    map_ = PatternMap[str]()
    map_.add("b/*", "x")
    map_.add("a", "x")
    map_.add("b/*", "y")
    assert map_.patterns() == ["b/*", "a"]
    assert len(map_) == 2
    map_.discard("b/*", "x")
    assert "b/*" in map_
    map_.discard("b/*", "y")
    assert "b/*" not in map_
    assert map_.patterns() == ["a"]


def test_a_result_that_was_asked_for_before_follows_changes() -> None:
    map_ = PatternMap[str]()
    for pattern in ("a/b", "a/*", "**"):
        assert map_.match("a/b") == ()
        map_.add(pattern, "x")
        assert map_.match("a/b") == ("x",)
        map_.discard(pattern, "x")
    assert map_.match("a/b") == ()


def test_a_shorter_pattern_stays_when_a_longer_one_goes_and_the_other_way_round() -> None:
    map_ = PatternMap[str]()
    map_.add("a/*", "short")
    map_.add("a/*/c/*", "long")
    map_.discard("a/*/c/*", "long")
    assert map_.match("a/b") == ("short",)
    map_.add("a/*/c/*", "long")
    map_.discard("a/*", "short")
    assert map_.match("a/b/c/d") == ("long",)
    assert map_.match("a/b") == ()


def test_reserved_names_are_matched_only_by_their_full_name() -> None:
    map_ = PatternMap[str]()
    map_.add("**", "everything")
    map_.add("jsonbus.request/add", "adder")
    assert map_.match("jsonbus.request/add") == ("adder",)
    assert map_.match("jsonbus.request/subtract") == ()


@pytest.mark.parametrize("name", ["", "a//b", "*", "**", "x" * 256, "a\n", None, 7])
def test_a_name_that_is_not_a_topic_matches_nothing(name: str) -> None:
    map_ = PatternMap[str]()
    for pattern in ("*", "**", "a/**"):
        map_.add(pattern, "x")
    assert map_.match(name) == ()


def test_a_result_is_kept_until_something_changes() -> None:
    map_ = PatternMap[str]()
    map_.add("a/*", "x")
    kept = map_.match("a/b")
    map_.match("a/c")
    assert map_.match("a/b") is kept


def test_more_topics_than_the_cache_holds_are_still_matched_right() -> None:
    map_ = PatternMap[str]()
    map_.add("a/**", "x")
    for number in range(2 * CACHED_TOPICS_MAX):
        assert map_.match(f"a/{number}") == ("x",)
        assert map_.match(f"b/{number}") == ()
    assert len(map_._view) <= CACHED_TOPICS_MAX
    map_.discard("a/**", "x")
    assert map_.match("a/1") == ()


def test_names_that_are_not_topics_do_not_fill_the_cache() -> None:
    map_ = PatternMap[str]()
    map_.add("**", "x")
    for length in range(256, 300):
        map_.match("x" * length)
    assert not map_._view


def test_patterns_that_are_gone_leave_nothing_behind() -> None:
    map_ = PatternMap[int]()
    patterns = [f"a/*/{number}/**" for number in range(100)]
    for pattern in patterns:
        map_.add(pattern, 1)
    for pattern in patterns:
        map_.discard(pattern, 1)
    assert not map_._root.branches
    assert not map_._entries
    assert not map_._serials


def test_hostile_patterns_are_answered_at_all() -> None:
    """Walked one way after the other, these would outlive the machine."""
    map_ = PatternMap[str]()
    map_.add("**/" + "a/**/" * 50 + "z", "x")
    map_.add("**/" + "*/**/" * 50 + "z", "y")
    assert map_.match("/".join("a" * 128)) == ()
    assert map_.match("/".join("a" * 127 + "z")) == ("x", "y")


@RELAXED
@given(st.lists(st.tuples(st.booleans(), PATTERNS, st.integers(0, 3)), max_size=40))
def test_the_map_agrees_with_a_list_of_pairs(operations: list[tuple[bool, str, int]]) -> None:
    map_ = PatternMap[int]()
    pairs: list[tuple[str, int]] = []
    for is_add, pattern, value in operations:
        is_known = (pattern, value) in pairs
        if is_add:
            assert map_.add(pattern, value) == (not is_known)
            pairs += [] if is_known else [(pattern, value)]
        else:
            assert map_.discard(pattern, value) == is_known
            pairs = [pair for pair in pairs if pair != (pattern, value)]
        for topic in TOPICS:
            found = tuple(dict.fromkeys(v for p, v in pairs if matches(p, topic)))
            assert map_.match(topic) == found
        assert sorted(map_.patterns()) == sorted({p for p, _ in pairs})


class InterruptedTopic(str):
    """Lets a writer in at a chosen point of a reader's walk.

    A walk uses the topic to look into the cache, then among the exact topics, splits it to go
    through the wildcards, and uses it again to keep the result.
    """

    def __new__(cls, text: str, point: str, write: Callable[[], object]) -> InterruptedTopic:
        topic = super().__new__(cls, text)
        topic.points = {"split": ["split"], "keep": ["look", "look", "keep"]}[point]
        topic.write = write
        return topic

    points: list[str]
    write: Callable[[], object]

    def split(self, *arguments: Any) -> list[str]:
        self._pass("split")
        return super().split(*arguments)

    def __hash__(self) -> int:
        self._pass("look" if "look" in self.points else "keep")
        return super().__hash__()

    def _pass(self, point: str) -> None:
        if point in self.points:
            self.points.remove(point)
            if not self.points:
                self.write()


def test_a_reader_amid_two_changes_sees_them_both_or_none() -> None:
    map_ = PatternMap[str]()
    map_.add("a/*", "x")

    def move() -> None:
        map_.add("a/b", "x")
        map_.discard("a/*", "x")

    # Its walk has passed the exact topics before the move, and comes to the wildcards after it.
    assert map_.match(InterruptedTopic("a/b", "split", move)) == ("x",)


def test_a_result_from_before_a_change_is_not_kept() -> None:
    map_ = PatternMap[str]()
    map_.add("a/*", "x")
    topic = InterruptedTopic("a/b", "keep", lambda: map_.discard("a/*", "x"))
    assert map_.match(topic) == ("x",)
    assert map_.match("a/b") == ()


WAYS = ["a/b", "a/*", "*/b", "**", "**/b", "a/*/**"]
CHANGES: list[Callable[[PatternMap[str]], object]] = [
    *(lambda map_, way=way: map_.add(way, "new") for way in WAYS),
    *(lambda map_, way=way: map_.discard(way, way) for way in WAYS),
    lambda map_: map_.discard_all(WAYS, "everywhere"),
]


def full_map() -> PatternMap[str]:
    map_ = PatternMap[str]()
    for way in WAYS:
        map_.add(way, way)
        map_.add(way, "everywhere")
    return map_


def look(map_: PatternMap[str]) -> tuple[tuple[str, ...], ...]:
    return tuple(map_.match(topic) for topic in ("a/b", "a/c", "c/b"))


def look_before_step(
    change: Callable[[PatternMap[str]], object], step: int, asked_before: str | None
) -> tuple[tuple[str, ...], ...] | None:
    """What is found amid a change; None if it has fewer steps."""
    map_, found = full_map(), []
    if asked_before is not None:
        map_.match(asked_before)
    countdown = iter(range(step - 1, -1, -1))

    def before_step() -> None:
        if next(countdown, None) == 0:
            found.append(look(map_))

    each_step(lambda: change(map_), before_step)
    return found[0] if found else None


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("asked_before", [None, "a/b", "a/c"])
def test_a_change_is_seen_at_one_moment_for_all_topics(
    change: Callable[[PatternMap[str]], object], asked_before: str | None
) -> None:
    """Whoever looks keeps what it found, so each step is looked at in a map of its own."""
    before, changed = look(full_map()), full_map()
    change(changed)
    assert changed._view.change is None
    after = look(changed)
    assert before != after
    look_before_step(change, 1, asked_before)  # 3.13 shows few steps of code that it first traces
    seen = []
    for step in itertools.count(1):
        found = look_before_step(change, step, asked_before)
        if found is None:
            break
        seen.append(found)
    moment = seen.index(after)
    assert 0 < moment < len(seen) - 1
    assert set(seen[:moment]) == {before}
    assert set(seen[moment:]) == {after}


@pytest.mark.slow
@settings(RELAXED, max_examples=300)
@given(st.sampled_from(CHANGES), st.integers(1, 200), st.integers(1, 400))
def test_a_reader_stopped_anywhere_amid_a_change_finds_it_done_or_not(
    change: Callable[[PatternMap[str]], object], writer_step: int, reader_step: int
) -> None:
    map_ = full_map()
    before = full_map().match("a/b")
    writer = Stopped(lambda: change(map_), writer_step)
    reader = Stopped(lambda: map_.match("a/b"), reader_step)
    writer.finish()
    found = reader.finish()
    changed = full_map()
    change(changed)
    after = changed.match("a/b")
    assert found in (before, after)
    assert map_.match("a/b") == after


@pytest.fixture
def eager_switching() -> Iterator[None]:
    """Threads take turns after every few bytecodes, so that they meet in the middle of things."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("eager_switching")
def test_readers_in_other_threads_always_find_a_value_that_is_always_there() -> None:
    """The value wanders from pattern to pattern, to the next before it leaves the last."""
    map_ = PatternMap[str]()
    ways = ["a/b", "a/*", "*/b", "**", "**/b"]
    map_.add(ways[0], "x")

    def wander() -> None:
        for _ in range(100):
            for leave, enter in zip(ways, ways[1:] + ways[:1], strict=True):
                map_.add(enter, "x")
                map_.discard(leave, "x")

    writer = threading.Thread(target=wander, name="jsonbus-test-writer", daemon=True)
    writer.start()
    found = {map_.match("a/b")}
    while writer.is_alive():
        found.add(map_.match("a/b"))
    assert found == {("x",)}
    assert map_.patterns() == ways[:1]
