"""Pauses between attempts: they grow, are capped, and differ."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jsonbus.gateway.webhooks.backoff import FIRST_S, parse_retry_after, retry_delay_s

NOW = 1_700_000_000.0  # Tue, 14 Nov 2023 22:13:20 GMT


def test_the_pause_doubles_with_every_failure_up_to_the_cap() -> None:
    random = Random(1)
    for failures, ceiling_s in [(1, 0.5), (2, 1.0), (3, 2.0), (7, 32.0), (8, 60.0), (9, 60.0)]:
        for _ in range(100):
            assert ceiling_s / 2 <= retry_delay_s(failures, 60.0, random) <= ceiling_s


def test_pauses_after_the_same_number_of_failures_differ() -> None:
    random = Random(2)
    assert len({retry_delay_s(5, 60.0, random) for _ in range(100)}) == 100


def test_the_same_dice_give_the_same_pauses() -> None:
    def pauses() -> list[float]:
        random = Random(3)
        return [retry_delay_s(failures, 60.0, random) for failures in range(1, 20)]

    assert pauses() == pauses()


@given(
    failures=st.integers(0, 10**9),
    cap_s=st.floats(0.01, 1e6),
    wish_s=st.none() | st.floats(0, 1e12),
    seed=st.integers(0, 2**32),
)
def test_no_pause_is_negative_or_beyond_the_cap(
    failures: int, cap_s: float, wish_s: float | None, seed: int
) -> None:
    delay_s = retry_delay_s(failures, cap_s, Random(seed), wish_s)
    assert min(FIRST_S, cap_s) / 2 <= delay_s <= cap_s


def test_what_the_receiver_asks_for_is_a_lower_bound_below_the_cap() -> None:
    assert retry_delay_s(1, 60.0, Random(4), 7.0) == 7.0
    assert retry_delay_s(1, 60.0, Random(4), 3600.0) == 60.0
    assert retry_delay_s(8, 60.0, Random(4), 1.0) == retry_delay_s(8, 60.0, Random(4))


@pytest.mark.parametrize(
    ("text", "expected_s"),
    [
        ("0", 0.0),
        ("120", 120.0),
        (" 7 ", 7.0),
        ("0000000000120", 120.0),
        ("9" * 4000, float("inf")),
        ("Tue, 14 Nov 2023 22:14:20 GMT", 60.0),
        ("Tue, 14 Nov 2023 22:00:00 GMT", 0.0),
        ("", None),
        ("-1", None),
        ("1.5", None),
        ("soon", None),
        ("٣", None),
        ("Tue, 99 Nov 2023 22:14:20 GMT", None),
    ],
)
def test_retry_after_is_seconds_or_a_date(text: str, expected_s: float | None) -> None:
    assert parse_retry_after(text, NOW) == expected_s


@given(st.text(max_size=60))
def test_no_retry_after_header_makes_trouble(text: str) -> None:
    seconds = parse_retry_after(text, NOW)
    assert seconds is None or seconds >= 0
