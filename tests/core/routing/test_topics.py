from __future__ import annotations

from enum import Enum

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import jsonbus
from jsonbus.core.routing.topics import (
    check_pattern,
    check_topic,
    is_pattern,
    is_valid_pattern,
    is_valid_topic,
    matches,
)
from jsonbus.errors import InvalidTopicError


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

VALID = [
    "a",
    "sensors/kitchen/temp",
    "with space/and-dash/and.dot",
    "jsonbus",
    "jsonbusy/x",
    "a/jsonbus.topics",
    "küche/温度",
    "🙂",
    "\u2028",
    "x" * 255,
    "ü" * 127,
    "/".join("a" * 128),
]

INVALID = [
    ("", "it is empty"),
    ("/a", "levels"),
    ("a/", "levels"),
    ("a//b", "levels"),
    ("/", "levels"),
    ("a\nb", "U+000A"),
    ("a\n", "U+000A"),
    ("\x00", "U+0000"),
    ("a\x7f", "U+007F"),
    ("a\x9f", "U+009F"),
    ("a/\ud800", "U+D800"),
    ("x" * 256, "256 bytes"),
    ("ü" * 128, "256 bytes"),
    ("x" * 100_000, "100,000 bytes"),
    ("jsonbus.", "reserved"),
    ("jsonbus.topics", "reserved"),
    ("jsonbus.request/add", "reserved"),
    (None, "NoneType"),
    (7, "int"),
    (b"a", "bytes"),
    (["a"], "list"),
]

WILDCARDS = ["*", "**", "a/*", "*/a", "a/**", "**/a", "a/*/b/**", "**/**", "*/" * 127 + "*"]
HALF_WILDCARDS = ["a*", "*a", "***", "a/b*", "a/***/b", "**a", "*/x*"]


@pytest.mark.parametrize("topic", VALID)
def test_a_valid_topic_is_returned_as_it_is_and_is_a_pattern_too(topic: str) -> None:
    assert check_topic(topic) == check_pattern(topic) == topic
    assert is_valid_topic(topic)
    assert is_valid_pattern(topic)
    assert not is_pattern(topic)


@pytest.mark.parametrize(("name", "reason"), INVALID)
def test_an_invalid_name_is_refused_with_the_reason(name: object, reason: str) -> None:
    for check in (check_topic, check_pattern):
        with pytest.raises(InvalidTopicError) as raised:
            check(name)
        assert raised.value.topic is name
        assert reason in raised.value.reason
        assert len(str(raised.value)) < 200
    assert not is_valid_topic(name)


@pytest.mark.parametrize("name", [name for name, _ in INVALID if name != "jsonbus.request/add"])
def test_an_invalid_name_is_not_a_pattern_of_a_list(name: object) -> None:
    assert not is_valid_pattern(name)


@pytest.mark.parametrize("pattern", WILDCARDS)
def test_wildcards_are_for_patterns_only(pattern: str) -> None:
    assert check_pattern(pattern) == pattern
    assert is_valid_pattern(pattern)
    assert is_pattern(pattern)
    assert not is_valid_topic(pattern)
    with pytest.raises(InvalidTopicError, match="belongs in patterns"):
        check_topic(pattern)


@pytest.mark.parametrize("pattern", HALF_WILDCARDS)
def test_a_wildcard_must_be_a_whole_level(pattern: str) -> None:
    assert not is_valid_pattern(pattern)
    assert not is_valid_topic(pattern)
    with pytest.raises(InvalidTopicError, match="whole level"):
        check_pattern(pattern)


def test_a_list_may_name_served_topics_of_any_valid_length() -> None:
    assert is_valid_pattern("jsonbus.request/add")
    assert is_valid_pattern("jsonbus.request/" + "x" * 255)
    assert not is_valid_pattern("jsonbus.request/" + "x" * 256)
    assert not is_valid_pattern("jsonbus.request/*")
    assert not is_valid_pattern("jsonbus.request/")
    assert not is_valid_pattern("jsonbus.request/jsonbus.topics")
    assert not is_valid_pattern("jsonbus.request")


def test_a_topic_from_an_enum_becomes_the_plain_text_of_its_value() -> None:
    class Room(str, Enum):  # noqa: UP042 - str() of a StrEnum would be right by itself
        HALL = "house/hall"

    for checked in (check_topic(Room.HALL), check_pattern(Room.HALL)):
        assert type(checked) is str
        assert checked == "house/hall"


@RELAXED
@given(st.one_of(st.text(), st.text(st.sampled_from("a/*.\x00\x7fü\ud800"), max_size=12)))
def test_validity_is_what_the_rules_say(text: str) -> None:
    has_control = any(
        ord(each) < 0x20 or 0x7F <= ord(each) < 0xA0 or 0xD800 <= ord(each) < 0xE000
        for each in text
    )
    levels = text.split("/")
    is_sound = (
        not has_control
        and "" not in levels
        and len(text.encode(errors="replace")) <= 255
        and not text.startswith("jsonbus.")
    )
    assert is_valid_topic(text) == (is_sound and "*" not in text)
    assert is_valid_pattern(text) == (
        is_sound and all(level in ("*", "**") or "*" not in level for level in levels)
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
