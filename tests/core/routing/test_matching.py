"""Matching agrees with its definition, and no pattern makes it slow."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import jsonbus
from jsonbus.core.routing.matching import is_pattern, matches


def intersects(first: str, second: str) -> bool:
    """Whether some topic is matched by both of two valid patterns.

    Only levels are looked at: the answer is True even if such a topic would be too long.
    """
    if not is_pattern(first):
        return matches(second, first)
    if not is_pattern(second):
        return matches(first, second)
    others = second.split("/")
    # Backwards through `first`; row[j]: what is left of `first` and others[j:] have a common topic.
    row = [all(other == "**" for other in others[j:]) for j in range(len(others) + 1)]
    for level in reversed(first.split("/")):
        longer = [False] * len(others) + [level == "**" and row[-1]]
        for j in range(len(others) - 1, -1, -1):
            other = others[j]
            if level == "**" or other == "**":  # it ends here, or takes the level opposite
                longer[j] = row[j] or longer[j + 1]
            else:
                longer[j] = row[j + 1] and (level == other or level == "*" or other == "*")
        row = longer
    return row[0]


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
        assert not intersects(pattern, reserved)
        assert not intersects(reserved, pattern)


def test_a_reserved_name_matches_itself() -> None:
    assert matches("jsonbus.request/add", "jsonbus.request/add")
    assert intersects("jsonbus.request/add", "jsonbus.request/add")


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
def test_intersection_agrees_with_trying_every_way(first: str, second: str) -> None:
    expected = naive_intersection(first.split("/"), second.split("/"))
    assert intersects(first, second) == intersects(second, first) == expected


@RELAXED
@given(PATTERNS, PATTERNS, TOPICS)
def test_patterns_that_match_the_same_topic_intersect(first: str, second: str, topic: str) -> None:
    assert intersects(first, topic) == matches(first, topic)
    if matches(first, topic) and matches(second, topic):
        assert intersects(first, second)


def test_hostile_patterns_are_answered_at_all() -> None:
    """Trying every way, these would outlive the machine."""
    hostile = "**/" + "a/**/" * 50 + "z"
    also_hostile = "**/" + "b/**/" * 50 + "y"
    assert not matches(hostile, "/".join("a" * 128))
    assert matches(hostile, "/".join("a" * 127 + "z"))
    assert not intersects(hostile, also_hostile)
    assert intersects(hostile, also_hostile[:-1] + "**")


def test_whether_a_pattern_matches_is_told_for_valid_ones_alone() -> None:
    assert jsonbus.topic_matches("a/**", "a/b/c")
    assert not jsonbus.topic_matches("a/*", "a/b/c")
    for pattern, topic in [("a//b", "a"), ("a", "a/*"), ("a", "jsonbus.x")]:
        with pytest.raises(jsonbus.errors.InvalidTopicError):
            jsonbus.topic_matches(pattern, topic)
