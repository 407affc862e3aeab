"""The checkers see: each catches what was broken on purpose, and nothing without it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from types import ModuleType

import pytest

from jsonbus.sim import BrokenInvariantError
from jsonbus.sim.history import History
from jsonbus.sim.plan import MODES, Plan, draw_plan
from tests.simulation import channel_defects, defects, sealed_defects
from tests.simulation.damage import Defect

TABLES = (defects, channel_defects, sealed_defects)
DEFECTS = [defect for table in TABLES for defect in table.DEFECTS]

#: Tried after the history in which the defect was caught before: any change of the core may move
#: it to another one.
SEEDS = 20


def histories(defect: Defect) -> Iterator[Plan]:
    plan = defect.plan
    yield plan
    for seed in range(SEEDS):
        for mode in MODES:
            yield draw_plan(
                seed,
                mode,
                has_channels=plan.has_channels,
                family=plan.family,
                is_sealed=plan.is_sealed,
            )


@pytest.mark.parametrize("defect", DEFECTS, ids=lambda defect: defect.name)
def test_the_defect_is_caught_by_the_checker_of_its_promise(
    defect: Defect, monkeypatch: pytest.MonkeyPatch
) -> None:
    defect.damage(monkeypatch)
    broken: Counter[str] = Counter()
    for plan in histories(defect):
        try:
            History(plan).run()
        except BrokenInvariantError as error:
            if error.invariant == defect.promise.invariant:
                return
            broken[error.invariant] += 1
    pytest.fail(f"not caught by {defect.promise.__name__}; what was broken: {dict(broken)}")


def test_without_a_defect_the_same_histories_end_well() -> None:
    for plan in {defect.plan.command: defect.plan for defect in DEFECTS}.values():
        History(plan).run()


def test_every_checker_of_a_history_is_tripped_by_a_defect() -> None:
    plans = draw_plan(0, "mixed", has_channels=True), draw_plan(0, "mixed", is_sealed=True)
    checkers = {type(each) for plan in plans for each in History(plan).world.checkers}
    assert {defect.promise for defect in DEFECTS} == checkers
    assert len({checker.invariant for checker in checkers}) == len(checkers)


@pytest.mark.parametrize("table", TABLES, ids=["plain", "channels", "sealed"])
def test_the_table_lists_every_defect_under_its_checker(table: ModuleType) -> None:
    assert table.__doc__ is not None
    listed: dict[str, list[str]] = {}
    names: list[str] = []
    for line in table.__doc__.splitlines():
        if row := re.fullmatch(r"    (?:(\w+) +| {21,})(\w+(?:, \w+)*),?", line):
            if row[1] is not None:
                names = listed[row[1]] = []
            names.extend(row[2].split(", "))
    expected: dict[str, list[str]] = {}
    for defect in sorted(table.DEFECTS, key=lambda defect: (defect.promise.__name__, defect.name)):
        expected.setdefault(defect.promise.__name__, []).append(defect.name)
    assert listed == expected
