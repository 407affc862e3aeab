"""The checkers see: each catches what was broken on purpose, and nothing without it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

import pytest

from jsonbus.sim import BrokenInvariantError
from jsonbus.sim.history import History
from jsonbus.sim.plan import MODES, Plan, draw_plan
from tests.simulation import defects
from tests.simulation.defects import DEFECTS, Defect

#: Tried after the history in which the defect was caught before: any change of the core may move
#: it to another one.
SEEDS = 20


def histories(defect: Defect) -> Iterator[Plan]:
    yield plan_of(defect)
    for seed in range(SEEDS):
        for mode in MODES:
            yield draw_plan(seed, mode, family=defect.family)


def plan_of(defect: Defect) -> Plan:
    return draw_plan(defect.seed, defect.mode, family=defect.family)


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
    for plan in dict.fromkeys(map(plan_of, DEFECTS)):
        History(plan).run()


def test_every_checker_of_a_history_is_tripped_by_a_defect() -> None:
    checkers = {type(checker) for checker in History(draw_plan(0, "mixed")).world.checkers}
    assert {defect.promise for defect in DEFECTS} == checkers
    assert len({checker.invariant for checker in checkers}) == len(checkers)


def test_the_table_lists_every_defect_under_its_checker() -> None:
    assert defects.__doc__ is not None
    listed: dict[str, list[str]] = {}
    names: list[str] = []
    for line in defects.__doc__.splitlines():
        if row := re.fullmatch(r"    (?:(\w+) +| {21})(\w+(?:, \w+)*),?", line):
            if row[1] is not None:
                names = listed[row[1]] = []
            names.extend(row[2].split(", "))
    expected: dict[str, list[str]] = {}
    for defect in sorted(DEFECTS, key=lambda defect: (defect.promise.__name__, defect.name)):
        expected.setdefault(defect.promise.__name__, []).append(defect.name)
    assert listed == expected
