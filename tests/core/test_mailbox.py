from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jsonbus.core.mailbox import OVERFLOW_POLICIES, Mailbox
from jsonbus.errors import ConfigError

RELAXED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


@pytest.mark.parametrize("overflow", OVERFLOW_POLICIES)
def test_messages_come_out_in_the_order_they_went_in(overflow: str) -> None:
    mailbox = Mailbox[int](10, overflow)
    assert mailbox.put_many([1, 2, 3]) == 3
    assert mailbox.put_many([4]) == 1
    assert mailbox.pending == 4
    assert mailbox.take() == 1
    assert mailbox.take_many(2) == [2, 3]
    assert mailbox.take_many(100) == [4]
    assert mailbox.take_many(100) == []
    assert mailbox.dropped == 0


def test_taking_from_an_empty_mailbox_is_an_error_of_the_caller() -> None:
    with pytest.raises(IndexError):
        Mailbox[int](1).take()


@pytest.mark.parametrize("overflow", OVERFLOW_POLICIES)
def test_a_full_mailbox_that_nobody_overfills_loses_nothing(overflow: str) -> None:
    mailbox = Mailbox[int](3, overflow)
    assert mailbox.put_many([1, 2, 3]) == 3
    assert mailbox.put_many([]) == 0
    assert mailbox.room == 0
    assert mailbox.take_many(3) == [1, 2, 3]
    assert mailbox.take_overflow() == mailbox.dropped == 0


def test_drop_oldest_keeps_the_newest() -> None:
    mailbox = Mailbox[int](3, "drop_oldest")
    mailbox.put_many([1, 2])
    assert mailbox.put_many([3, 4]) == 2
    assert mailbox.dropped == 1
    assert mailbox.take_many(3) == [2, 3, 4]


def test_drop_oldest_keeps_the_end_of_a_datagram_that_is_larger_than_the_mailbox() -> None:
    mailbox = Mailbox[int](3, "drop_oldest")
    mailbox.put_many([1])
    assert mailbox.put_many([2, 3, 4, 5, 6]) == 3
    assert mailbox.dropped == 3
    assert mailbox.take_many(3) == [4, 5, 6]


def test_drop_newest_keeps_the_oldest() -> None:
    mailbox = Mailbox[int](3, "drop_newest")
    mailbox.put_many([1, 2])
    assert mailbox.put_many([3, 4]) == 1
    assert mailbox.put_many([5]) == 0
    assert mailbox.dropped == 2
    assert mailbox.take_many(3) == [1, 2, 3]
    assert mailbox.put_many([6]) == 1


def test_block_takes_what_fits_and_leaves_the_rest_to_the_caller() -> None:
    mailbox = Mailbox[int](3, "block")
    mailbox.put_many([1, 2])
    assert mailbox.room == 1
    assert mailbox.put_many([3, 4]) == 1
    assert mailbox.dropped == 0
    assert mailbox.take() == 1
    assert mailbox.room == 1
    assert mailbox.put_many([4]) == 1
    assert mailbox.take_many(3) == [2, 3, 4]


def test_error_tells_the_reader_where_messages_are_missing_and_how_many() -> None:
    mailbox = Mailbox[int](2, "error")
    assert mailbox.put_many([1, 2, 3]) == 2
    assert mailbox.take() == 1
    # There is room again, but a message after the gap must not be read before the error.
    assert mailbox.room == 0
    assert mailbox.put_many([4, 5]) == 0
    assert mailbox.take_overflow() == 0
    assert mailbox.take() == 2
    assert mailbox.take_overflow() == 3
    assert mailbox.take_overflow() == 0
    assert mailbox.put_many([6]) == 1
    assert mailbox.take() == 6
    assert mailbox.dropped == 3


@pytest.mark.parametrize("overflow", OVERFLOW_POLICIES)
def test_clearing_forgets_messages_and_overflow(overflow: str) -> None:
    mailbox = Mailbox[int](2, overflow)
    mailbox.put_many([1, 2, 3])
    assert mailbox.clear() == 2
    assert mailbox.pending == 0
    assert mailbox.room == 2
    assert mailbox.take_overflow() == 0


@pytest.mark.parametrize("maxsize", [0, -1, 1.5, None, "10", True])
def test_a_maxsize_that_is_not_a_positive_integer_is_refused(maxsize: Any) -> None:
    with pytest.raises(ConfigError, match="maxsize"):
        Mailbox[int](maxsize)


def test_an_unknown_policy_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ConfigError, match="drop_oldest, drop_newest, block, error"):
        Mailbox[int](1, "drop")


@RELAXED
@given(
    st.sampled_from(OVERFLOW_POLICIES),
    st.integers(1, 5),
    st.lists(st.one_of(st.integers(0, 8), st.integers(-4, -1)), max_size=30),
)
def test_nothing_is_lost_uncounted_out_of_order_or_out_of_bounds(
    overflow: str, maxsize: int, steps: list[int]
) -> None:
    """Positive steps put that many messages, negative ones take."""
    mailbox = Mailbox[int](maxsize, overflow)
    put, taken, left_to_caller, missing = 0, [], 0, 0
    for step in steps:
        if step >= 0:
            kept = mailbox.put_many(range(put, put + step))
            put += step
            left_to_caller += step - kept if overflow == "block" else 0
        else:
            taken += mailbox.take_many(-step)
            missing += mailbox.take_overflow()
        assert mailbox.pending <= maxsize
        assert put == len(taken) + mailbox.pending + mailbox.dropped + left_to_caller
    taken += mailbox.take_many(maxsize)
    missing += mailbox.take_overflow()
    assert taken == sorted(taken)
    assert missing == (mailbox.dropped if overflow == "error" else 0)
