"""The figures that the README promises, where they can be had in seconds."""

from __future__ import annotations

import pytest

from jsonbus.sim.experiments import measure_late_joins, measure_mass_start


@pytest.mark.parametrize(("nodes", "joins", "shares_max"), [(10, 100, 1.2), (100, 25, 1.4)])
def test_a_late_join_costs_few_shares(nodes: int, joins: int, shares_max: float) -> None:
    result = measure_late_joins(nodes, 0.0, joins, seed=1)
    assert result.shares_per_join <= shares_max
    assert result.unserved == 0


@pytest.mark.parametrize("nodes", [10, 100])
def test_no_joiner_is_left_unserved_when_datagrams_are_lost(nodes: int) -> None:
    assert measure_late_joins(nodes, 0.05, 20, seed=1).unserved == 0


def test_a_master_answers_each_joiner_once() -> None:
    assert measure_late_joins(50, 0.0, 10, seed=1, mode="master").shares_per_join == 1.0


def test_a_start_of_many_nodes_costs_far_fewer_shares_than_there_are_nodes() -> None:
    result = measure_mass_start(200, 0.0, seed=1)
    assert result.tally.shares <= 30  # 150 of 1,000
    assert result.sure_s is not None
