from __future__ import annotations

import threading

import pytest

from spark_bridge import groups as groups_module
from spark_bridge.groups import GROUPS_MAX, Groups


def test_the_lag_of_a_group_is_what_it_has_not_committed() -> None:
    groups = Groups()
    groups.commit("mine", [3, 10], 100.0)
    assert groups.describe([5, 10], 101.5) == {
        "mine": {"misfits": 0, "offsets": [3, 10], "lag": 2, "committed_s_ago": 1.5}
    }
    groups.commit("mine", [5, 10], 102.0)
    assert groups.describe([5, 10], 102.0)["mine"]["lag"] == 0


def test_a_group_beyond_the_end_is_not_ahead_of_others() -> None:
    groups = Groups()
    groups.commit("restored from elsewhere", [100, 0], 0.0)
    assert groups.describe([5, 7], 0.0)["restored from elsewhere"]["lag"] == 7


def test_misfits_are_counted_before_and_after_the_first_commit() -> None:
    groups = Groups()
    groups.note_misfits("mine", 2)
    assert groups.describe([5], 0.0) == {"mine": {"misfits": 2}}
    groups.commit("mine", [1], 0.0)
    groups.note_misfits("mine", 3)
    told = groups.describe([5], 0.0)["mine"]
    assert (told["misfits"], told["lag"]) == (5, 4)


def test_the_group_heard_of_longest_ago_is_forgotten_first() -> None:
    groups = Groups()
    for number in range(GROUPS_MAX):
        groups.note_misfits(f"group {number}", 1)
    groups.commit("group 0", [1], 0.0)
    for number in range(5):
        groups.commit(f"new {number}", [1], 0.0)
    told = groups.describe([1], 0.0)
    assert len(told) == GROUPS_MAX
    assert told["group 0"]["misfits"] == 1
    assert [f"group {number}" in told for number in range(1, 7)] == [False] * 5 + [True]


@pytest.mark.slow
def test_groups_may_be_described_while_they_come_and_go() -> None:
    groups = Groups()
    stopping = threading.Event()

    def commit() -> None:
        number = 0
        while not stopping.is_set():
            number += 1
            groups.commit(f"group {number}", [number], 0.0)
            groups.note_misfits(f"other {number}", 1)

    thread = threading.Thread(target=commit)
    thread.start()
    try:
        for _ in range(200):
            assert len(groups.describe([0], 0.0)) <= groups_module.GROUPS_MAX
    finally:
        stopping.set()
        thread.join()
