from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import jsonbus
from jsonbus.errors import PayloadError
from jsonbus.recording.records import (
    Losses,
    losses_to_line,
    make_message,
    message_to_line,
    parse_line,
)
from tests.recording.samples import facts, make_messages

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
TIMES = st.floats(0, 1e11)
INTEGERS = st.integers(-(2**63), 2**63 - 1)
VALUES = st.recursive(
    st.none() | st.booleans() | INTEGERS | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=8,
)
ORIGINS = st.builds(
    jsonbus.Origin, TEXTS, TEXTS, st.integers(0, 2**63 - 1), TIMES, TIMES, st.booleans()
)


@given(TEXTS, VALUES, st.none() | st.integers(0, 2**64 - 1), ORIGINS)
def test_any_message_comes_back_from_its_line(
    topic: str, value: Any, sequence: int | None, origin: jsonbus.Origin
) -> None:
    message = make_message(topic, value, sequence, origin)
    line = message_to_line(message)
    assert line.endswith(b"\n") and line.count(b"\n") == 1
    again = parse_line(line)
    assert isinstance(again, jsonbus.Message)
    assert facts(again) == facts(message)


@given(st.binary(max_size=60) | VALUES.map(lambda value: json.dumps(value).encode()))
def test_any_bytes_are_a_record_or_a_value_error(line: bytes) -> None:
    try:
        record = parse_line(line)
    except ValueError:
        return
    assert isinstance(record, jsonbus.Message | Losses)


def test_a_line_has_the_keys_of_what_sub_prints_and_the_incarnation() -> None:
    line = json.loads(message_to_line(make_messages(1)[0]))
    assert " ".join(line) == "topic value node name incarnation sequence sent_at received_at"


def test_a_value_as_deep_as_one_may_be_is_written() -> None:
    value: Any = 1
    for _ in range(254):
        value = [value]
    message = make_messages(1)[0]
    message.value = value
    again = parse_line(message_to_line(message))
    assert isinstance(again, jsonbus.Message) and again.value == value


def test_a_value_that_is_not_json_is_refused() -> None:
    message = make_messages(1)[0]
    message.value = object()
    with pytest.raises(PayloadError):
        message_to_line(message)


def test_a_line_of_sub_without_incarnation_is_understood() -> None:
    message = parse_line(
        b'{"topic":"door","value":"open","node":"x","name":"desk","sequence":1,'
        b'"sent_at":1.5,"received_at":2.5}'
    )
    assert isinstance(message, jsonbus.Message)
    assert facts(message) == ("door", "open", 1, "x", "desk", 0, 1.5, 2.5, False)


def test_a_line_needs_no_more_than_topic_value_and_time() -> None:
    message = parse_line(b'{"topic":"door","value":null,"received_at":2}')
    assert isinstance(message, jsonbus.Message)
    assert facts(message) == ("door", None, None, "", "", 0, 2.0, 2.0, False)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"{", "it is not JSON"),
        (b"[]", "it is no object"),
        (b'{"topic":"a","received_at":1}', "it has no value"),
        (b'{"value":1,"received_at":1}', "it has no topic"),
        (b'{"topic":1,"value":1,"received_at":1}', "its topic is no text"),
        (b'{"topic":"a","value":1}', "it has no received_at"),
        (b'{"topic":"a","value":1,"received_at":"now"}', "its received_at is no time"),
        (b'{"topic":"a","value":1,"received_at":1,"sequence":1.5}', "its sequence is no whole"),
        (b'{"jsonbus.losses":{"at":1}}', "it tells of losses"),
    ],
)
def test_what_is_wrong_with_a_line_is_told(line: bytes, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        parse_line(line)


def test_losses_come_back_from_their_line() -> None:
    losses = Losses(1.5, 2, 3, 4, 5)
    assert parse_line(losses_to_line(losses)) == losses
