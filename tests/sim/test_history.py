from __future__ import annotations

import random

import pytest

from jsonbus.sim import NetworkOptions
from jsonbus.sim.chaos import LargeChaos
from jsonbus.sim.history import History
from jsonbus.sim.plan import FAMILIES, MODES, draw_plan
from jsonbus.sim.promises import Promises
from jsonbus.sim.report import Tally, Trace
from jsonbus.sim.script import Stage


def test_a_plan_is_decided_by_seed_and_mode() -> None:
    assert draw_plan(3, "delayed") == draw_plan(3, "delayed")
    plans = [draw_plan(seed, mode) for seed in range(20) for mode in MODES]
    assert len({plan.options for plan in plans}) > 20
    assert {plan.is_calm for plan in plans} == {True, False}


def test_what_is_given_is_not_drawn_and_stands_in_the_command() -> None:
    plan = draw_plan(3, "mixed", nodes=4, loss=0.5)
    assert plan.nodes == 4
    assert plan.options.loss == 0.5
    assert plan.command == (
        "python3 tools/simulate.py --seeds 1 --seed 3 --mode mixed --nodes 4 --loss 0.5 --trace"
    )


def test_every_family_has_its_own_dice() -> None:
    small, large, long = (draw_plan(3, "mixed", family=family) for family in FAMILIES)
    assert small == draw_plan(3, "mixed")
    assert len({small.world_seed, large.world_seed, long.world_seed}) == 3
    assert "--family" not in small.command
    assert "--seed 3 --mode mixed --family large --trace" in large.command
    plans = [draw_plan(seed, "mixed", family="large") for seed in range(100)]
    assert {min(p.nodes for p in plans), max(p.nodes for p in plans)} == {50, 200}
    assert long.nodes <= 10 and long.chaos_s == 3600.0


def test_a_switch_that_dies_cuts_off_its_group_and_perhaps_each_node_of_it() -> None:
    kinds: set[bool] = set()
    for seed in range(8):
        stage = Stage("", NetworkOptions(), Promises(20, is_calm=True, judges_plain=False))
        plan = draw_plan(seed, "delayed", nodes=20, family="large")
        chaos = LargeChaos(plan, stage, random.Random(seed))
        for number in range(20):
            stage.do("world.add_node", name=f"n{number}")
        stage.world.clock.run_until(1.0)
        chaos._kill_switch(2)
        one, other, *_ = (p.index for p in chaos._behind(2))
        network = stage.world.network
        assert not network.is_open(one, 1) and not network.is_open(1, one)
        assert network.is_open(0, 1) and network.is_open(one, one)
        kinds.add(network.is_open(one, other))
        chaos._revive_switch(2)
        assert network.is_open(one, 1) and network.is_open(one, other)
    assert kinds == {True, False}


@pytest.mark.slow
def test_in_long_histories_all_but_two_nodes_restart_every_few_seconds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("jsonbus.sim.plan.LONG_S", 120.0)
    told: list[str] = []
    world = History(draw_plan(0, "delayed", family="long"), [Trace(told.append)]).run()
    restarts = [line for line in told if "joins, " in line]
    assert len(restarts) > 120 / 10
    residents = [node for node in world.nodes if node.index < 2]
    assert residents and all(node.started_at < 60 for node in residents)


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
def test_the_same_plan_gives_the_same_history(mode: str) -> None:
    traces = []
    for _ in range(2):
        lines: list[str] = []
        History(draw_plan(1, mode), [Trace(lines.append)]).run()
        traces.append(lines)
    assert traces[0] == traces[1]
    assert len(traces[0]) > 100


@pytest.mark.slow
def test_histories_contain_every_kind_of_trouble() -> None:
    told: list[str] = []
    kinds: set[str] = set()
    for seed in range(10, 22):
        tally = Tally()
        History(draw_plan(seed, "mixed"), [Trace(told.append), tally]).run()
        kinds |= set(tally.datagrams)
    text = "\n".join(told)
    for what in (
        "crashes",
        "leaves",
        "unsubscribes from",
        "partition:",
        "cut: nothing passes",
        "a cut is mended",
        "interfaces changed",
        "no longer serves",
        "RequestUnserved",
        "ReplyReceived",
        "reason='gone'",
        "state='doubting'",
        "plain",
        "peace",
        "probes",
    ):
        assert what in text, what
    assert kinds >= {"messages", "announcement", "share", "presence", "bye", "request", "reply"}
