from __future__ import annotations

import json

import click
import pytest

from jsonbus.cli.lib.values import (
    parse_argument,
    parse_json,
    printable,
    shorten,
    to_json,
    to_readable_json,
)


@pytest.mark.parametrize("value", [None, True, -5, 1.5, "é\n", [1, [2]], {"a": {"b": []}}])
def test_what_is_printed_can_be_read_again(value: object) -> None:
    line = to_json(value)
    assert "\n" not in line
    assert parse_json(line) == value
    assert parse_json(to_readable_json(value)) == value


@pytest.mark.parametrize(
    "text", ["", "hello", "{a: 1}", "NaN", "-Infinity", "1 2", "1e999", "[" * 100_000]
)
def test_what_is_not_json_is_refused_with_a_reason(text: str) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        parse_json(text)


@pytest.mark.parametrize("text", ["NaN", "-Infinity", '{"a": NaN}', "1e999"])
def test_a_number_that_is_not_finite_is_refused_in_one_sentence(text: str) -> None:
    with pytest.raises(ValueError) as caught:
        parse_json(text)
    assert str(caught.value).startswith(f"{text} is not JSON, which has only finite numbers: ")
    assert str(caught.value).count("JSON") == 1


def test_an_argument_that_is_not_json_tells_how_to_write_a_text() -> None:
    with pytest.raises(click.BadParameter, match="hello is not JSON.* --text, or with quotes"):
        parse_argument("hello", is_text=False)
    with pytest.raises(click.BadParameter, match="hello is not JSON.*Write a text with quotes"):
        parse_argument("hello")  # of a command that has no --text


def test_an_argument_may_be_declared_text() -> None:
    assert parse_argument("5", is_text=True) == "5"


def test_control_characters_never_reach_a_terminal() -> None:
    hostile = "a\x1b[2J\x9b31m\u202eb\x07"
    assert printable(hostile) == r"a\u001b[2J\u009b31m\u202eb\u0007"
    assert json.loads(printable(to_json(hostile))) == hostile


def test_long_text_is_shortened() -> None:
    assert shorten("x" * 100, 10) == "x" * 9 + "…"
