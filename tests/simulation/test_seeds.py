"""Random histories: chaos, peace, and every invariant checked. A failure names its command."""

from __future__ import annotations

import pytest

from jsonbus.sim.history import History
from jsonbus.sim.plan import MODES, Plan, draw_plan

SEEDS_PER_MODE = 75
BLOCK = 25

#: Of other families so many as take a minute; `tools/simulate.py` runs more, and larger ones.
LARGE_PER_MODE = 6
LARGE_NODES = 50
LONG_NODES = 4

#: Of a sealed bus, of which each takes minutes of simulated time.
SEALED_PER_MODE = 10


@pytest.mark.parametrize("first", range(0, SEEDS_PER_MODE, BLOCK))
@pytest.mark.parametrize("mode", MODES)
def test_every_history_ends_well(mode: str, first: int) -> None:
    for seed in range(first, first + BLOCK):
        run(draw_plan(seed, mode))


@pytest.mark.parametrize("mode", MODES)
def test_every_history_of_a_sealed_bus_ends_well(mode: str) -> None:
    for seed in range(SEALED_PER_MODE):
        run(draw_plan(seed, mode, is_sealed=True))


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
def test_every_history_of_many_nodes_ends_well(mode: str) -> None:
    for seed in range(LARGE_PER_MODE):
        run(draw_plan(seed, mode, LARGE_NODES, family="large"))


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
def test_an_hour_of_restarts_ends_well(mode: str) -> None:
    run(draw_plan(0, mode, LONG_NODES, family="long"))


def run(plan: Plan) -> None:
    try:
        History(plan).run()
    except Exception as error:
        raise AssertionError(f"{error}\nrepeat: {plan.command}") from error
