from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jsonbus.cli.lib.numbers import age, count, counted, percent


@pytest.mark.parametrize(
    ("number", "shown"),
    [
        (0, "0"),
        (0.25, "0.25"),
        (7, "7"),
        (12.345, "12.3"),
        (123.4, "123"),
        (9_999, "9999"),
        (12_345, "12.3k"),
        (123_456, "123k"),
        (4_560_000, "4.6M"),
        (999_999, "1.0M"),
    ],
)
def test_counts_are_short(number: float, shown: str) -> None:
    assert count(number) == shown


@given(st.floats(0, 1e17))
def test_no_count_takes_more_than_six_characters(number: float) -> None:
    assert len(count(number)) <= 6


@pytest.mark.parametrize(
    ("number", "shown"), [(0, "0 messages"), (1, "1 message"), (2_000, "2,000 messages")]
)
def test_one_is_not_many(number: int, shown: str) -> None:
    assert counted(number, "message") == shown


@pytest.mark.parametrize(
    ("part", "shown"),
    [(0, "0%"), (0.0001, "<0.1%"), (0.0123, "1.2%"), (0.9999, "99.9%"), (1, "100.0%")],
)
def test_a_share_is_never_rounded_to_nothing_or_all(part: float, shown: str) -> None:
    assert percent(part) == shown


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(-1, "0.0s"), (3.14, "3.1s"), (42, "42s"), (600, "10m"), (7_200, "2h"), (900_000, "250h")],
)
def test_ages_are_short(seconds: float, shown: str) -> None:
    assert age(seconds) == shown
