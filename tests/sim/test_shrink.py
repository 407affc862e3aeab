"""Cutting broken histories down; what breaks them is a defect that the tests put into the core."""

from __future__ import annotations

from typing import Any

import pytest

from jsonbus.sim import BrokenInvariantError
from jsonbus.sim.plan import Plan, draw_plan
from jsonbus.sim.shrink import Shrinker, record, to_python
from tests.simulation.channel_defects import closes_overtake_messages
from tests.simulation.damage import Damage


def repeats_are_taken_for_new(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("jsonbus.core.roster.Peer.admit", lambda peer, counter: True)


#: What breaks histories, and one that it breaks.
BROKEN = [
    pytest.param(repeats_are_taken_for_new, draw_plan(1, "mixed"), marks=pytest.mark.slow),
    (closes_overtake_messages, draw_plan(0, "basic", has_channels=True)),
]


def run_test_in(source: str) -> None:
    names: dict[str, Any] = {}
    exec(source, names)
    (test,) = (value for name, value in names.items() if name.startswith("test_history_"))
    test()


def test_a_history_that_ends_well_is_no_scenario() -> None:
    assert record(draw_plan(1, "delayed")) is None


@pytest.mark.parametrize(("damage", "plan"), BROKEN)
def test_the_record_of_a_broken_history_breaks_in_the_same_way(
    damage: Damage, plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    damage(monkeypatch)
    broken = record(plan)
    assert broken is not None
    assert broken.replay() == broken


@pytest.mark.slow
@pytest.mark.parametrize(("family", "nodes"), [("large", 20), ("long", 4)])
def test_a_history_of_another_family_is_replayed_in_the_same_way(
    monkeypatch: pytest.MonkeyPatch, family: str, nodes: int
) -> None:
    repeats_are_taken_for_new(monkeypatch)
    plan = next(
        plan
        for plan in (draw_plan(seed, "delayed", nodes, family=family) for seed in range(99))
        if plan.options.repeat and not plan.options.loss
    )
    broken = record(plan)
    assert broken is not None and broken.replay() == broken
    assert f"def test_history_{plan.seed}_of_mode_delayed() -> None:" in to_python(broken)


@pytest.mark.slow
@pytest.mark.parametrize(("damage", "plan"), BROKEN)
def test_a_broken_history_becomes_a_short_test_of_the_same_promise(
    damage: Damage, plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    damage(monkeypatch)
    broken = record(plan)
    assert broken is not None
    shrinker = Shrinker(broken)
    best = shrinker.shrink()
    assert best.promise == broken.promise
    assert len(best.steps) <= 10 < len(broken.steps)
    assert best.ends_at < broken.ends_at
    source = to_python(best)
    with pytest.raises(BrokenInvariantError, match=best.promise):
        run_test_in(source)
    monkeypatch.undo()  # the defect is repaired
    run_test_in(source)


def test_losses_that_are_not_needed_are_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jsonbus.core.node.Node.publish", lambda *arguments, **flags: False)
    plan = next(plan for plan in (draw_plan(s, "delayed") for s in range(99)) if plan.options.loss)
    broken = record(plan)
    assert broken is not None
    best = Shrinker(broken).shrink()
    assert best.promise == broken.promise
    assert best.options.loss == best.options.bursts == 0
    assert "options = NetworkOptions()" in to_python(best)
