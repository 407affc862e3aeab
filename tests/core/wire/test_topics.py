"""Valid topics and patterns, and the reasons for refusing others."""

from __future__ import annotations

from enum import Enum

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jsonbus.core.routing.matching import is_pattern
from jsonbus.core.wire.topics import (
    check_pattern,
    check_topic,
    is_valid_pattern,
    is_valid_topic,
    translate_pattern,
)
from jsonbus.errors import InvalidTopicError

RELAXED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

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
    ("theirs", "ours"),
    [
        ("#", "**"),
        ("+", "*"),
        ("sensors/#", "sensors/**"),
        ("sensors/+/x", "sensors/*/x"),
        ("+/x/#", "*/x/**"),
        (">", "**"),
        ("sensors.>", "sensors/**"),
        ("sensors.*.x", "sensors/*/x"),
        ("sensors.#", "sensors/**"),
        ("v1.2/+/x", "v1.2/*/x"),
    ],
)
def test_a_pattern_of_another_system_is_translated(theirs: str, ours: str) -> None:
    assert translate_pattern(theirs) == ours
    assert check_pattern(ours) == ours


@pytest.mark.parametrize(
    "name",
    ["door", "**", "sensors/*/x", "a.b.c", "c#", "a+b", "c++/#1", "x->y", "1.5/*", "*", "a/>b"],
)
def test_other_names_have_no_translation(name: str) -> None:
    assert translate_pattern(name) is None
