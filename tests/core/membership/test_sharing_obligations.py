"""Debts: armed by the first, paid by anybody."""

from __future__ import annotations

import math

from jsonbus.core.limits import OBLIGATIONS_MAX
from jsonbus.core.membership.sharing import Obligations
from jsonbus.core.wire.frames import ALL_BUCKETS


def owing(*debts: tuple[str, int]) -> Obligations:
    obligations = Obligations()
    for node, buckets in debts:
        obligations.owe(node, buckets)
    obligations.arm(5.0, is_braked=False)
    return obligations


def test_running_timer_stands() -> None:
    obligations = owing(("a", ALL_BUCKETS))
    obligations.arm(4.0, is_braked=False)
    obligations.arm(6.0, is_braked=False)
    assert obligations.timer_at == 5.0


def test_timer_that_was_put_off_yields_to_a_joiner() -> None:
    obligations = Obligations()
    obligations.owe("a", 1)
    obligations.arm(30.0, is_braked=True)
    obligations.arm(5.0, is_braked=False)
    assert obligations.timer_at == 5.0
    obligations.arm(1.0, is_braked=False)
    assert obligations.timer_at == 5.0


def test_timer_is_never_put_off_by_a_brake() -> None:
    obligations = owing(("a", 1))
    obligations.arm(30.0, is_braked=True)
    assert obligations.timer_at == 5.0


def test_full_list_of_somebody_else_pays_everybody() -> None:
    obligations = owing(("a", ALL_BUCKETS), ("b", 0b11))
    obligations.pay(ALL_BUCKETS)
    assert len(obligations) == 0
    assert obligations.timer_at == math.inf


def test_part_of_the_list_pays_only_what_it_covers() -> None:
    obligations = owing(("a", 0b01), ("b", 0b11))
    obligations.pay(0b01)
    assert len(obligations) == 1
    assert obligations.timer_at == 5.0
    assert obligations.take() == 0b10


def test_last_part_paid_cancels_the_timer() -> None:
    obligations = owing(("a", 0b11))
    obligations.pay(0b01)
    obligations.pay(0b10)
    assert obligations.timer_at == math.inf


def test_node_that_agrees_is_owed_nothing() -> None:
    obligations = owing(("a", 1), ("b", 2))
    obligations.release("a")
    assert obligations.timer_at == 5.0
    obligations.release("b")
    assert obligations.timer_at == math.inf


def test_releasing_a_stranger_does_not_disturb() -> None:
    obligations = owing(("a", 1))
    obligations.release("z")
    assert obligations.timer_at == 5.0


def test_taking_gives_all_buckets_owed_and_ends_every_debt() -> None:
    obligations = owing(("a", 0b0011), ("b", 0b0110), ("a", 0b1000))
    assert obligations.take() == 0b1111
    assert (len(obligations), obligations.timer_at) == (0, math.inf)
    assert obligations.take() == 0


def test_debts_are_bounded_and_known_debtors_may_still_grow() -> None:
    obligations = Obligations()
    for number in range(OBLIGATIONS_MAX + 10):
        obligations.owe(f"n{number}", 1)
    assert len(obligations) == OBLIGATIONS_MAX
    obligations.owe("n0", 2)
    assert obligations.take() == 3
