from __future__ import annotations

import pytest

from jsonbus.sim.experiments import (
    TABLE_HEADER,
    Join,
    LateJoins,
    measure_late_joins,
    measure_mass_start,
)
from jsonbus.sim.report import Tally


def test_late_joiners_are_served_and_counted_one_by_one() -> None:
    told: list[Join] = []
    result = measure_late_joins(10, 0.0, 5, seed=1, on_join=told.append)
    assert result.joins == told
    assert len(told) == 5
    assert result.unserved == 0
    assert all(join.shares >= 1 for join in told)
    assert all(0.0 < time_s < 0.5 for time_s in result.complete_s)
    assert [join.at for join in told] == sorted(join.at for join in told)


def test_a_measurement_repeats_itself() -> None:
    assert (
        measure_late_joins(10, 0.05, 3, seed=5).joins
        == measure_late_joins(10, 0.05, 3, seed=5).joins
    )


def test_a_master_serves_late_joiners_too() -> None:
    result = measure_late_joins(10, 0.0, 3, seed=1, mode="master")
    assert result.unserved == 0
    assert result.shares_per_join == 1.0


def test_a_row_fits_the_header_and_tells_who_was_not_served() -> None:
    joins = [Join(0.0, 1, 0, 3, 0.025), Join(1.0, 2, 1, 5, None), Join(2.0, 3, 1, 5, 0.035)]
    row = LateJoins(1000, 0.05, joins, Tally()).row()
    assert len(row) == len(TABLE_HEADER)
    assert row == ("1,000", "5 %", "3", "2.00", "0.67", "30 ms", "35 ms", "1")
    assert LateJoins(10, 0.0, [joins[1]], Tally()).row()[-3:] == ("-", "-", "1")


@pytest.mark.parametrize("loss", [0.0, 0.05])
def test_a_mass_start_ends_with_everybody_agreed_and_sure(loss: float) -> None:
    result = measure_mass_start(30, loss, seed=1)
    assert result.agreed_s is not None
    assert result.sure_s is not None
    assert result.tally.shares <= 30
