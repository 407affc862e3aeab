from __future__ import annotations

import pytest

from jsonbus.sim.history import History
from jsonbus.sim.plan import MODES, draw_plan
from jsonbus.sim.report import Tally, Trace


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
