"""Share delays, Trickle and the brake."""

from __future__ import annotations

import math
import random

import pytest

from jsonbus.core.limits import TRICKLE_MAX_S, TRICKLE_MIN_S
from jsonbus.core.timers import Brake, Trickle, share_delay_s


class FixedDice(random.Random):
    """Always the same draw."""

    def __init__(self, draw: float) -> None:
        super().__init__(0)
        self._draw = draw

    def random(self) -> float:
        return self._draw


# --- Share delays ---------------------------------------------------------------------------------


@pytest.mark.parametrize("known_nodes", [1, 2, 5])
def test_up_to_five_nodes_the_delay_is_the_plain_draw(known_nodes: int) -> None:
    assert share_delay_s(known_nodes, 0.0) == 0.0
    assert share_delay_s(known_nodes, 0.25) == pytest.approx(0.05)
    assert share_delay_s(known_nodes, 0.999) == pytest.approx(0.1998)


@pytest.mark.parametrize("known_nodes", [6, 100, 1_000, 10_000])
def test_beyond_five_nodes_the_delay_is_exponential(known_nodes: int) -> None:
    rate = math.log(known_nodes / 5)
    for u in (0.0, 0.001, 0.1, 0.5, 0.9, 0.999999):
        expected = 0.2 / rate * math.log(1 + u * (math.exp(rate) - 1))
        assert share_delay_s(known_nodes, u) == pytest.approx(expected)


def test_delays_never_leave_their_range() -> None:
    dice = random.Random(3)
    for known_nodes in (1, 5, 6, 7, 50, 3_000, 100_000):
        for u in (0.0, *(dice.random() for _ in range(50)), 1 - 2**-53):
            assert 0.0 <= share_delay_s(known_nodes, u) <= 0.2


def test_the_more_nodes_the_fewer_answer_early() -> None:
    draws = [number / 1_000 for number in range(1_000)]

    def early(known_nodes: int) -> float:
        """How many nodes are expected to draw less than 5 ms, a slow network's delay."""
        fraction = sum(share_delay_s(known_nodes, u) < 0.005 for u in draws) / len(draws)
        return fraction * known_nodes

    # A uniform draw would give 25 early answers among 1,000 nodes.
    assert early(1_000) < 2.5
    assert share_delay_s(1_000, 0.5) > share_delay_s(100, 0.5) > share_delay_s(5, 0.5)


# --- Trickle --------------------------------------------------------------------------------------


def test_trickle_waits_for_its_start() -> None:
    trickle = Trickle(FixedDice(0.5))
    assert not trickle.is_running
    assert trickle.timer_at() == math.inf


@pytest.mark.parametrize(("draw", "speaks_at"), [(0.0, 100.25), (0.5, 100.375), (0.999, 100.49975)])
def test_trickle_speaks_in_the_second_half_of_an_interval(draw: float, speaks_at: float) -> None:
    trickle = Trickle(FixedDice(draw))
    trickle.start(100.0)
    assert trickle.timer_at() == pytest.approx(speaks_at)
    assert trickle.expire(speaks_at)
    assert trickle.timer_at() == pytest.approx(100.0 + TRICKLE_MIN_S)


def test_trickle_stays_silent_when_somebody_said_the_same() -> None:
    trickle = Trickle(FixedDice(0.5))
    trickle.start(100.0)
    trickle.hear_agreement()
    assert not trickle.expire(trickle.timer_at())


def test_trickle_forgets_at_the_end_of_an_interval_what_it_heard() -> None:
    trickle = Trickle(FixedDice(0.5))
    trickle.start(100.0)
    trickle.hear_agreement()
    assert not trickle.expire(trickle.timer_at())
    assert not trickle.expire(trickle.timer_at())  # the interval's end
    assert trickle.expire(trickle.timer_at())


def test_trickle_doubles_its_interval_up_to_its_longest() -> None:
    trickle = Trickle(FixedDice(0.5))
    trickle.start(100.0)
    intervals = [trickle.interval_s]
    for _ in range(8):
        trickle.expire(trickle.timer_at())
        trickle.expire(trickle.timer_at())
        intervals.append(trickle.interval_s)
    assert intervals == [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0, 30.0]


def test_mismatch_brings_trickle_back_to_its_shortest_interval() -> None:
    trickle = Trickle(FixedDice(0.5))
    trickle.start(100.0, TRICKLE_MAX_S)
    assert not trickle.is_eager
    trickle.hear_mismatch(110.0)
    assert trickle.is_eager
    assert trickle.timer_at() == pytest.approx(110.0 + 0.75 * TRICKLE_MIN_S)


def test_mismatches_in_a_row_do_not_put_trickle_off() -> None:
    trickle = Trickle(FixedDice(0.5))
    trickle.start(100.0)
    trickle.hear_mismatch(100.3)
    trickle.hear_mismatch(100.36)
    assert trickle.timer_at() == pytest.approx(100.375)


def test_mismatch_does_not_start_a_trickle_that_was_stopped() -> None:
    trickle = Trickle(FixedDice(0.5))
    trickle.start(100.0, TRICKLE_MAX_S)
    trickle.stop()
    trickle.hear_mismatch(101.0)
    assert trickle.timer_at() == math.inf


def test_trickle_that_is_called_late_does_not_catch_up() -> None:
    trickle = Trickle(FixedDice(0.5))
    trickle.start(100.0)
    assert trickle.expire(5_000.0)
    assert not trickle.expire(5_000.0)
    assert trickle.timer_at() > 5_000.0


# --- Brake ----------------------------------------------------------------------------------------


def test_brake_is_free_at_first() -> None:
    assert Brake(0.05).at(10.0) == 10.0


def test_brake_waits_twice_as_long_each_time_and_has_an_end() -> None:
    brake = Brake(0.05)
    waits = []
    now = 10.0
    for _ in range(12):
        brake.step(now, 2.0)
        waits.append(round(brake.at(now) - now, 6))
        now = brake.at(now)
    assert waits[:4] == [0.05, 0.1, 0.2, 0.4]
    assert waits[-1] == 2.0


def test_brake_never_makes_anything_earlier() -> None:
    brake = Brake(0.05)
    brake.step(10.0, 2.0)
    assert brake.at(11.0) == 11.0


def test_brake_is_released_when_all_has_been_well_for_a_while() -> None:
    # Of two camps each agrees within itself: agreement alone proves nothing.
    brake = Brake(0.05)
    for _ in range(5):
        brake.step(10.0, 2.0)
    waits_s = brake.at(10.0) - 10.0
    assert waits_s == pytest.approx(0.8)
    brake.release(12.0)
    brake.step(12.0, 2.0)
    assert brake.at(12.0) == pytest.approx(12.0 + 2 * waits_s)
    brake.release(60.0)
    assert brake.at(60.0) == 60.0
    brake.step(60.0, 2.0)
    assert brake.at(60.0) == pytest.approx(60.05)
