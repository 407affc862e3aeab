from __future__ import annotations

import pytest

from tools.lab.shape import Dice, Shape


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"loss": 1.1}, "loss is a probability"),
        ({"repeat": -0.1}, "repeat is a probability"),
        ({"reorder": 2, "delay_ms": 1}, "reorder is a probability"),
        ({"jitter_ms": 1}, "no frame arrives early"),
        ({"delay_ms": -1}, "no frame arrives early"),
        ({"reorder": 0.1}, "reorder needs delay_ms"),
    ],
)
def test_an_impossible_shape_is_refused(settings: dict[str, float], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        Shape(**settings)


def test_a_shape_is_what_netem_calls_it() -> None:
    shape = Shape(loss=0.05, delay_ms=10, jitter_ms=5, repeat=0.01, reorder=0.25)
    assert " ".join(shape.netem_arguments()) == (
        "delay 10ms 5ms loss 5.0% duplicate 1.0% reorder 25.0%"
    )
    assert Shape().netem_arguments() == ["delay", "0.0ms", "0.0ms"]


def test_a_shape_describes_itself() -> None:
    assert str(Shape()) == "no loss, no delay"
    shape = Shape(loss=0.05, delay_ms=10, jitter_ms=5, repeat=0.01, reorder=0.25)
    assert str(shape) == "0.05 loss, 10 ± 5 ms delay, 0.01 repeated, 0.25 reordered"


def test_a_clean_network_delivers_each_frame_once_and_at_once() -> None:
    dice = Dice(1, "host1")
    assert [dice.fate(Shape()) for _ in range(100)] == [[0.0]] * 100


def test_equal_seeds_give_equal_fates_and_hosts_have_their_own() -> None:
    shape = Shape(loss=0.3, delay_ms=10, jitter_ms=10)

    def fates(seed: int, host: str) -> list[list[float]]:
        dice = Dice(seed, host)
        return [dice.fate(shape) for _ in range(50)]

    assert fates(1, "host1") == fates(1, "host1")
    assert fates(1, "host1") != fates(2, "host1")
    assert fates(1, "host1") != fates(1, "host2")


def test_fates_follow_the_shape() -> None:
    dice = Dice(7, "host1")
    shape = Shape(loss=0.2, delay_ms=10, jitter_ms=5, repeat=0.1, reorder=0.25)
    fates = [dice.fate(shape) for _ in range(10_000)]
    arrived = [fate for fate in fates if fate]
    assert 0.18 < 1 - len(arrived) / 10_000 < 0.22
    assert 0.08 < sum(len(fate) == 2 for fate in arrived) / len(arrived) < 0.12
    assert 0.22 < sum(fate[0] == 0 for fate in arrived) / len(arrived) < 0.28
    assert all(fate[0] == 0 or 0.005 <= fate[0] <= 0.015 for fate in arrived)


def test_a_change_of_loss_leaves_the_delays_as_they_were() -> None:
    gentle, harsh = Dice(7, "host1"), Dice(7, "host1")
    for _ in range(200):
        before = gentle.fate(Shape(delay_ms=10, jitter_ms=5))
        after = harsh.fate(Shape(loss=0.5, delay_ms=10, jitter_ms=5))
        assert after in ([], before)
