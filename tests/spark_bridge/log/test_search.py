from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from spark_bridge.errors import OffsetOutOfRangeError, RequestError
from spark_bridge.log.offset_log import OffsetLog
from spark_bridge.log.search import share_bytes
from tests.spark_bridge.log.log_rows import make_batch, make_row, make_values

# A busy machine is no failure.
UNHURRIED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


def test_a_time_is_found_although_the_clock_jumps(tmp_path: Path) -> None:
    # Forwards by an hour, back below the start, and on.
    times = [*range(100, 120), *range(3700, 3710), *range(50, 80), *range(120, 125)]
    with OffsetLog(tmp_path, partitions=1, seal_rows=16, segment_bytes=1) as log:
        for start in range(0, len(times), 3):
            rows = [make_row("1", at_us=each) for each in times[start : start + 3]]
            log.append({0: make_batch(rows)})
        assert log.stats()["segments"] >= 3 and log.stats()["tail_rows"] > 0
        for time_us in (0, 50, 51, 79, 100, 101, 119, 120, 3699, 3700, 3709, 3710, 10_000):
            expected = next((i for i, at in enumerate(times) if at >= time_us), len(times))
            assert log.find(time_us) == [expected], time_us


def test_a_time_is_found_in_the_tail(tmp_path: Path) -> None:
    with OffsetLog(tmp_path, partitions=2) as log:
        log.append({1: make_batch(make_row("1", at_us=each) for each in (5, 9, 7))})
        assert log.find(6) == [0, 1]
        assert log.find(10) == [0, 3]


@UNHURRIED
@given(
    st.lists(st.floats(0, 1e9), min_size=1, max_size=8),
    st.floats(0, 1e10),
)
def test_shares_are_fair_and_use_what_there_is(wanted: list[float], bytes_max: float) -> None:
    shares = share_bytes(wanted, bytes_max)
    assert sum(shares) == pytest.approx(min(bytes_max, sum(wanted)))
    largest = max(shares)
    for share, each in zip(shares, wanted, strict=True):
        # Whoever gets less than another gets all that he wants.
        assert share == pytest.approx(each) or share == pytest.approx(largest)


def test_a_limit_is_about_as_many_bytes_as_were_asked_for(tmp_path: Path) -> None:
    with OffsetLog(tmp_path, partitions=2, seal_rows=16, segment_bytes=4000) as log:
        for _ in range(20):
            log.append({0: make_values(*["x" * 100] * 10), 1: make_values("x")})
        start, end = log.first(), log.end()
        plain_bytes = make_values(*["x" * 100] * 10).nbytes / 10
        assert log.limit(start, end, 1 << 30) == end
        found = log.limit(start, end, 20_000)
        assert found[1] == end[1]
        assert found[0] * plain_bytes == pytest.approx(20_000 - 20 * 60, rel=0.25)
        assert log.limit(found, end, 20_000)[0] > found[0]
        assert log.limit([199, 20], end, 20_000) == end


def test_a_limit_lets_at_least_one_row_through(tmp_path: Path) -> None:
    with OffsetLog(tmp_path, partitions=3, seal_rows=16) as log:
        log.append({0: make_values(*["x" * 100] * 20), 1: make_values("x")})
        assert log.limit([0, 0, 0], [20, 1, 0], 1) == [1, 1, 0]
        assert log.limit([7, 1, 0], [20, 1, 0], 1) == [8, 1, 0]
        assert log.limit([20, 1, 0], [20, 1, 0], 1) == [20, 1, 0]


def test_a_limit_beyond_the_log_is_an_error(tmp_path: Path) -> None:
    with OffsetLog(tmp_path, partitions=1) as log:
        log.append({0: make_values("x")})
        with pytest.raises(OffsetOutOfRangeError):
            log.limit([0], [2], 100)
        with pytest.raises(OffsetOutOfRangeError):
            log.limit([2], [1], 100)
        with pytest.raises(RequestError, match="limit takes 1 offsets"):
            log.limit([0, 0], [1, 1], 100)


def test_a_limit_counts_from_the_first_offset_that_is_kept(tmp_path: Path) -> None:
    with OffsetLog(
        tmp_path, partitions=1, seal_rows=8, segment_bytes=1, retention_s=1.0, now=lambda: 1e6
    ) as log:
        for at_us in (1, 1, 10**12):
            log.append({0: make_values(*"abcdefgh", at_us=at_us)})
        log.expire()
        assert log.first() == [16]
        assert log.limit([3], [24], 1) == [17]
        assert log.limit([3], [24], 1 << 20) == [24]
        assert log.limit([3], [9], 1) == [9]
