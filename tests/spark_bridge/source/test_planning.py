"""Planning: what a batch takes, and how it is split into tasks."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from spark_bridge.source.offsets import Range
from spark_bridge.source.planning import TASK_ROWS_MIN, limit_rows, plan, share, split

SIZES = st.lists(st.integers(0, 10_000), max_size=12)

#: No time limits: the machine may be busy.
BUSY = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


@BUSY
@given(SIZES, st.integers(1, 20_000))
def test_a_batch_takes_all_or_exactly_the_limit(sizes: list[int], limit: int) -> None:
    shares = share(sizes, limit)
    assert sum(shares) == min(limit, sum(sizes))
    assert all(0 <= part <= size for part, size in zip(shares, sizes, strict=True))


@BUSY
@given(SIZES, st.integers(12, 20_000))
def test_no_partition_with_rows_is_left_out_if_the_limit_allows(
    sizes: list[int], limit: int
) -> None:
    shares = share(sizes, limit)
    assert all(part > 0 for part, size in zip(shares, sizes, strict=True) if size)


def test_the_shares_follow_the_backlog() -> None:
    assert share([3000, 1000, 0], 400) == [300, 100, 0]


def test_limits_are_shared_by_all_bridges() -> None:
    ends = limit_rows({"a": (5, 0), "b": (7,)}, {"a": (105, 0), "b": (307,)}, 40)
    assert ends == {"a": (15, 0), "b": (37,)}


def test_an_end_before_the_begin_counts_as_no_rows() -> None:
    assert limit_rows({"a": (12, 0)}, {"a": (10, 9)}, 5) == {"a": (12, 5)}


RANGES = st.lists(
    st.builds(
        lambda partition, start, rows: Range("a", "A", partition, start, start + rows),
        st.integers(0, 3),
        st.integers(0, 1000),
        st.integers(1, 1000),
    ),
    min_size=1,
    max_size=8,
)
COUNTS = st.none() | st.integers(1, 50)


@BUSY
@given(RANGES, COUNTS, COUNTS)
def test_splitting_keeps_every_row_once_and_in_order(
    ranges: list[Range], least: int | None, most: int | None
) -> None:
    parts = split(ranges, least, most)
    rows = [(each.partition, offset) for each in parts for offset in range(each.start, each.end)]
    assert rows == [(r.partition, offset) for r in ranges for offset in range(r.start, r.end)]
    assert all(each.start < each.end for each in parts)
    if most is not None:
        assert all(each.end - each.start <= most for each in parts)
    if least is not None:
        assert len(parts) >= min(least, len(rows))


def test_ranges_stay_whole_if_nobody_wants_them_smaller() -> None:
    ranges = [Range("a", "A", 0, 0, 10), Range("a", "A", 1, 0, 1000)]
    assert split(ranges, None, None) == ranges
    assert split(ranges, 2, 1000) == ranges


def test_small_ranges_share_a_task_and_large_ones_have_their_own() -> None:
    small = [Range("a:1", "x", number, 10, 10 + TASK_ROWS_MIN // 4) for number in range(5)]
    large = Range("b:2", "y", 0, 0, TASK_ROWS_MIN + 1)
    assert plan([*small, large], None, None) == [small[:4], small[4:], [large]]
    assert plan([large, *small], None, None) == [[large], small[:4], small[4:]]
    assert plan([], None, None) == []


def test_ranges_share_a_task_only_as_far_as_the_options_allow() -> None:
    ranges = [Range("a:1", "x", number, 0, 10) for number in range(4)]
    assert plan(ranges, 1, None) == [[each] for each in ranges]
    assert plan(ranges, None, 10) == [[each] for each in ranges]
    assert plan(ranges, None, 20) == [ranges[:2], ranges[2:]]
    assert plan(ranges, None, 5) == [[each] for each in split(ranges, None, 5)]
