"""Deadlines: the earliest first, however often they are moved."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from jsonbus.core.timers import Deadlines
from tests.core.generated import unhurried


def test_without_deadlines_nothing_is_due() -> None:
    deadlines: Deadlines[str] = Deadlines()
    assert deadlines.next_at() == math.inf
    assert deadlines.pop(1e9) is None


def test_deadlines_come_up_in_order_and_once() -> None:
    deadlines: Deadlines[str] = Deadlines()
    deadlines.set("b", 2.0)
    deadlines.set("a", 1.0)
    assert deadlines.pop(0.5) is None
    assert [deadlines.pop(3.0) for _ in range(3)] == ["a", "b", None]


def test_putting_a_deadline_off_adds_nothing() -> None:
    deadlines: Deadlines[str] = Deadlines()
    for number in range(10_000):
        deadlines.set("a", float(number))
    assert len(deadlines._heap) == 1
    assert deadlines.next_at() == 9_999.0


def test_setting_and_removing_adds_nothing() -> None:
    deadlines: Deadlines[str] = Deadlines()
    for number in range(10_000):
        deadlines.set("a", float(number))
        deadlines.remove("a")
    assert len(deadlines._heap) == 1
    assert deadlines.next_at() == math.inf
    assert not deadlines._queued


steps = st.lists(
    st.tuples(st.sampled_from("abcd"), st.none() | st.integers(0, 9)) | st.integers(0, 9),
    max_size=60,
)


@unhurried
@given(steps)
def test_deadlines_behave_like_a_dict_that_is_searched(
    steps: list[tuple[str, int | None] | int],
) -> None:
    deadlines: Deadlines[str] = Deadlines()
    model: dict[str, float] = {}
    for step in steps:
        if isinstance(step, int):
            item = deadlines.pop(step)
            if item is None:
                assert all(at > step for at in model.values())
            else:
                earliest = min(model.values())
                assert model.pop(item) == earliest <= step
        elif step[1] is None:
            deadlines.remove(step[0])
            model.pop(step[0], None)
        else:
            deadlines.set(step[0], step[1])
            model[step[0]] = step[1]
        assert deadlines.next_at() == min(model.values(), default=math.inf)
        assert len(deadlines._at) == len(model)
