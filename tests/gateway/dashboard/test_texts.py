"""Figures and values as people read them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jsonbus.gateway.dashboard.texts import (
    clean,
    count_out,
    say_ago,
    shorten,
    show_ago,
    show_bytes,
    show_count,
    show_rate,
    show_share,
    write_out,
)

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@pytest.mark.parametrize(
    "count, text",
    [(0, "0"), (1234, "1,234"), (99_999, "99,999"), (100_000, "100 k"), (1_234_567, "1.23 M"),
     (2e9, "2 G"), (5e13, "50 T")],
)  # fmt: skip
def test_counts_stay_short(count: float, text: str) -> None:
    assert show_count(count) == text


@pytest.mark.parametrize(
    "rate, text", [(0, "0"), (0.04, "0"), (0.4, "0.4"), (12.34, "12.3"), (99.94, "99.9"),
                   (99.96, "100"), (10_000, "10,000")],
)  # fmt: skip
def test_rates_have_a_digit_more_while_they_are_small(rate: float, text: str) -> None:
    assert show_rate(rate) == text


@pytest.mark.parametrize(
    "count, text",
    [(0, "0 B"), (999, "999 B"), (999.9, "1.0 kB"), (1234, "1.2 kB"), (123_456, "123 kB"),
     (5.6e7, "56.0 MB"), (3e12, "3.0 TB")],
)  # fmt: skip
def test_bytes_have_a_unit_that_fits(count: float, text: str) -> None:
    assert show_bytes(count) == text


@pytest.mark.parametrize(
    "share, text", [(0, "0 %"), (0.0001, "<0.1 %"), (0.123, "12.3 %"), (1, "100 %")]
)
def test_a_small_share_is_not_shown_as_none(share: float, text: str) -> None:
    assert show_share(share) == text


@pytest.mark.parametrize(
    "seconds, text",
    [(-3, "now"), (1, "now"), (12, "12 s"), (120, "2 min"), (7200, "2 h"), (3e5, "3 d")],
)
def test_what_was_a_while_ago_is_told_roughly(seconds: float, text: str) -> None:
    assert show_ago(seconds) == text
    assert say_ago(seconds) == ("just now" if text == "now" else f"{text} ago")


def test_what_cannot_be_seen_is_written_out() -> None:
    assert clean("a\x00b\u202ec\x9b") == "a\\u0000b\\u202ec\\u009b"
    assert shorten({"k\u202e": "\x85"}) == '{"k\\u202e": "\\u0085"}'
    assert "\n" in write_out({"a": 1}) and "\u2028" not in write_out("\u2028")


@pytest.mark.slow
@given(JSON)
def test_a_value_that_fits_is_shown_whole(value: Any) -> None:
    text = write_out(value, 10**9)
    assert json.loads(text) == value
    assert json.loads(shorten(value, 10**9)) == value


@pytest.mark.parametrize(
    "value",
    [
        ["x"] * 1_000_000,
        "x" * 1_000_000,
        {str(number): number for number in range(100_000)},
        [[[["x" * 1000] * 100] * 100] * 100],
        10**4000,
    ],
)
def test_a_large_value_is_cut(value: Any) -> None:
    assert len(shorten(value, 100)) <= 102
    assert len(write_out(value, 1000)) <= 1002


def test_a_deep_value_is_cut() -> None:
    value: Any = 1
    for _ in range(5_000):
        value = [value]
    assert "…" in shorten(value, 10_000)


def test_a_few_numbers_stand_in_one_line() -> None:
    assert write_out({"axes": [1, 2.5, None]}) == '{\n  "axes": [1, 2.5, null]\n}'


def test_one_thing_is_not_told_as_many() -> None:
    assert [count_out(count, "node") for count in (0, 1, 2)] == ["0 nodes", "1 node", "2 nodes"]
    assert count_out(1, "row was", "rows were") == "1 row was"
    assert count_out(1_500, "row was", "rows were") == "1,500 rows were"
