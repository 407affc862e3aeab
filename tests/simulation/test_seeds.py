"""Random histories: chaos, peace, and every invariant checked. A failure names its command."""

from __future__ import annotations

import pytest

from jsonbus.sim.history import History
from jsonbus.sim.plan import MODES, draw_plan

SEEDS_PER_MODE = 75
BLOCK = 25


@pytest.mark.parametrize("first", range(0, SEEDS_PER_MODE, BLOCK))
@pytest.mark.parametrize("mode", MODES)
def test_every_history_ends_well(mode: str, first: int) -> None:
    for seed in range(first, first + BLOCK):
        plan = draw_plan(seed, mode)
        try:
            History(plan).run()
        except Exception as error:
            raise AssertionError(f"{error}\nrepeat: {plan.command}") from error
