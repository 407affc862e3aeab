"""Matching agrees with its definition, and no pattern makes it slow."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import jsonbus
from jsonbus.core.routing.matching import covers, matches, overlaps

RELAXED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

# Few names and many wildcards: then random topics and patterns have to do with each other.
TOPICS = st.lists(st.sampled_from("abc"), min_size=1, max_size=7).map("/".join)
PATTERNS = st.lists(st.sampled_from(["a", "b", "*", "**", "**"]), min_size=1, max_size=6).map(
    "/".join
)


@pytest.mark.parametrize(
    ("pattern", "topic"),
    [
        ("a/b", "a/b"),
        ("*", "a"),
        ("a/*/c", "a/b/c"),
        ("**", "a"),
        ("**", "a/b/c"),
        ("a/**", "a"),
        ("a/**", "a/b/c"),
        ("**/c", "c"),
        ("**/c", "a/b/c"),
        ("a/**/c", "a/c"),
        ("a/**/c", "a/c/b/c"),
        ("**/**", "a"),
        ("*/**/*", "a/b"),
    ],
)
def test_pattern_matches_topic(pattern: str, topic: str) -> None:
    assert matches(pattern, topic)


@pytest.mark.parametrize(
    ("pattern", "topic"),
    [
        ("a/b", "a/c"),
        ("a", "A"),
        ("*", "a/b"),
        ("a/*", "a"),
        ("a/*", "a/b/c"),
        ("a/**", "ab"),
        ("a/**", "b/a"),
        ("**/c", "c/d"),
        ("a/**/c", "a/b"),
        ("*/**/*", "a"),
        ("**/a/**/b", "b/a"),
    ],
)
def test_pattern_does_not_match_topic(pattern: str, topic: str) -> None:
    assert not matches(pattern, topic)


@pytest.mark.parametrize("pattern", ["**", "*/**", "*", "*/add", "**/add"])
def test_wildcards_never_match_reserved_names(pattern: str) -> None:
    for reserved in ("jsonbus.topics", "jsonbus.request/add"):
        assert not matches(pattern, reserved)
        assert not overlaps(pattern, reserved)
        assert not overlaps(reserved, pattern)


def test_a_reserved_name_matches_itself() -> None:
    assert matches("jsonbus.request/add", "jsonbus.request/add")
    assert overlaps("jsonbus.request/add", "jsonbus.request/add")


def naive_match(wanted: list[str], levels: list[str]) -> bool:
    """The definition, word for word; exponential."""
    if not wanted:
        return not levels
    if wanted[0] == "**":
        return any(naive_match(wanted[1:], levels[taken:]) for taken in range(len(levels) + 1))
    if not levels or wanted[0] not in ("*", levels[0]):
        return False
    return naive_match(wanted[1:], levels[1:])


@RELAXED
@given(PATTERNS, TOPICS)
def test_matching_agrees_with_the_definition(pattern: str, topic: str) -> None:
    assert matches(pattern, topic) == naive_match(pattern.split("/"), topic.split("/"))


def naive_intersection(first: list[str], second: list[str]) -> bool:
    """Try every way to let the two patterns take levels; exponential."""
    if not first or not second:
        return all(level == "**" for level in first + second)
    if first[0] == "**" or second[0] == "**":
        return naive_intersection(first[1:], second) or naive_intersection(first, second[1:])
    if first[0] != second[0] and "*" not in (first[0], second[0]):
        return False
    return naive_intersection(first[1:], second[1:])


@RELAXED
@given(PATTERNS, PATTERNS)
def test_overlaps_agrees_with_trying_every_way(first: str, second: str) -> None:
    expected = naive_intersection(first.split("/"), second.split("/"))
    assert overlaps(first, second) == overlaps(second, first) == expected


@RELAXED
@given(PATTERNS, PATTERNS, TOPICS)
def test_patterns_that_match_the_same_topic_overlap(first: str, second: str, topic: str) -> None:
    assert overlaps(first, topic) == matches(first, topic)
    if matches(first, topic) and matches(second, topic):
        assert overlaps(first, second)


def test_hostile_patterns_are_answered_at_all() -> None:
    """Trying every way, these would outlive the machine."""
    hostile = "**/" + "a/**/" * 50 + "z"
    also_hostile = "**/" + "b/**/" * 50 + "y"
    assert not matches(hostile, "/".join("a" * 128))
    assert matches(hostile, "/".join("a" * 127 + "z"))
    assert not overlaps(hostile, also_hostile)
    assert overlaps(hostile, also_hostile[:-1] + "**")
    assert not covers([hostile], also_hostile)


@pytest.mark.parametrize(
    ("patterns", "narrow"),
    [
        (["doors/**"], "doors/**"),
        (["doors/**"], "doors"),
        (["doors/**"], "doors/*/open"),
        (["**"], "**"),
        (["*/**"], "**"),
        (["**/*"], "*/**"),
        (["*/**/a"], "**/b/a"),
        (["doors", "doors/*/**"], "doors/**"),
        (["a/*", "a/*/*", "a/*/*/*/**", "a"], "a/**"),
    ],
)
def test_patterns_cover_one_all_of_whose_topics_they_match(
    patterns: list[str], narrow: str
) -> None:
    assert covers(patterns, narrow)


@pytest.mark.parametrize(
    ("patterns", "narrow"),
    [
        ([], "doors/front"),
        (["doors/*"], "doors/**"),
        (["doors/**"], "**"),
        (["doors/**"], "*/front"),
        (["doors/front", "doors/back"], "doors/*"),
        (["a/*", "a/*/*/**"], "a/**"),  # a itself is missing
        (["**/a/**"], "**"),
    ],
)
def test_patterns_do_not_cover_one_with_a_topic_that_none_of_them_matches(
    patterns: list[str], narrow: str
) -> None:
    assert not covers(patterns, narrow)


#: All topics of up to six levels of which one is a name that no pattern has.
ALL_TOPICS = [
    "/".join(levels) for length in range(1, 7) for levels in itertools.product("abc", repeat=length)
]
SHORT_PATTERNS = st.lists(st.sampled_from(["a", "b", "*", "**", "**"]), min_size=1, max_size=3).map(
    "/".join
)


@settings(RELAXED, max_examples=200)
@given(st.lists(SHORT_PATTERNS, max_size=3), SHORT_PATTERNS)
def test_covering_agrees_with_trying_every_topic(patterns: list[str], narrow: str) -> None:
    missing = [
        topic
        for topic in ALL_TOPICS
        if matches(narrow, topic) and not any(matches(pattern, topic) for pattern in patterns)
    ]
    assert covers(patterns, narrow) is (not missing)


def test_whether_a_pattern_matches_is_told_for_valid_ones_alone() -> None:
    assert jsonbus.topic_matches("a/**", "a/b/c")
    assert not jsonbus.topic_matches("a/*", "a/b/c")
    for pattern, topic in [("a//b", "a"), ("a", "a/*"), ("a", "jsonbus.x")]:
        with pytest.raises(jsonbus.errors.InvalidTopicError):
            jsonbus.topic_matches(pattern, topic)
