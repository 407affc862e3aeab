from __future__ import annotations

import pytest

from jsonbus.sim import NetworkOptions
from jsonbus.sim.history import History, promises_of
from jsonbus.sim.plan import draw_plan
from jsonbus.sim.promises import Promises
from jsonbus.sim.report import Trace
from jsonbus.sim.script import Padding, Ref, Stage, Step


def make_stage() -> Stage:
    return Stage("x", NetworkOptions(), Promises(2, is_calm=True, judges_plain=False))


@pytest.mark.parametrize(
    ("seed", "mode"), [(0, "basic"), (20, "master"), (1, "delayed"), (2, "mixed")]
)
@pytest.mark.parametrize("has_channels", [False, True], ids=["plain", "channels"])
def test_the_steps_of_a_history_give_the_same_history_again(
    seed: int, mode: str, has_channels: bool
) -> None:
    plan = draw_plan(seed, mode, has_channels=has_channels)
    drawn: list[str] = []
    history = History(plan, [Trace(drawn.append)])
    history.run()
    replayed: list[str] = []
    options = (plan.world_seed, plan.options, promises_of(plan))
    stage = Stage(*options, [Trace(replayed.append)])
    stage.run(history.steps)
    assert replayed == drawn
    assert stage.steps == history.steps


def test_steps_that_have_become_impossible_are_skipped() -> None:
    stage = make_stage()
    node = Ref("n0")
    possible = [
        Step(0.0, "world.add_node", ("n0",), {"patterns": ["a"]}, name="n0"),
        Step(1.0, "world.crash", (node,)),
        Step(3.0, "world.start", (node, ["b"], Ref("n0", "node_id"))),
        Step(4.0, "world.unsubscribe", (node, "b")),
    ]
    impossible = [
        Step(0.5, "world.start", (node, [])),
        Step(0.6, "world.thaw", (node,)),
        Step(0.7, "world.leave", (Ref("n1"),)),
        Step(0.8, "world.subscribe", (node, "a")),
        Step(0.9, "world.partition", ([node], [Ref("n1")])),
        Step(2.0, "world.publish", (node, "a")),
        Step(5.0, "world.unsubscribe", (node, "b")),
        Step(6.0, "world.subscribe", (node, "c", Ref("n0", "sinks", "b"))),
        Step(7.0, "world.mend", (Ref("cut1"),)),
    ]
    stage.run(sorted(possible + impossible, key=lambda step: step.at))
    assert stage.steps == possible


def test_a_step_is_shown_as_python() -> None:
    sink = Ref("n3", "sinks", "a")
    assert str(Step(0.0, "world.subscribe", (Ref("n3"), "b", sink))) == (
        "world.subscribe(n3, 'b', n3.sinks['a'])"
    )
    step = Step(0.0, "world.publish_batch", (Ref("n3"), ["a"] * 9, Padding(7)), {"x": True}, "kept")
    assert str(step) == "kept = world.publish_batch(n3, ['a'] * 9, 'x' * 7, x=True)"
