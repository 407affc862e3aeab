"""Counters in a bounded number of series: none ever falls, nothing is counted twice or lost."""

from __future__ import annotations

from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from jsonbus.gateway.metrics import series as series_module
from jsonbus.gateway.metrics.series import HALF_LIFE_S, REST, Series

Told = Mapping[str, tuple[int, ...]]


def shown(series: Series) -> dict[str, list[int]]:
    figures = {each.key: list(each.figures) for each in series.own()}
    return {**figures, REST: list(series.rest)}


def test_the_first_that_come_have_series_and_the_rest_share_one() -> None:
    series = Series(1, 2, is_new_from_zero=True)
    series.update({"a": (1,), "b": (2,)}, 0.0)
    series.update({"a": (3,), "b": (2,), "c": (3,), "d": (1,)}, 1.0)
    assert shown(series) == {"a": [3], "b": [2], REST: [4]}
    assert series.rest_count == 2
    assert series.is_own("a") and not series.is_own("c")


def test_one_that_is_twice_as_busy_takes_a_series_and_what_it_counted_stays_with_the_rest() -> None:
    series = Series(1, 1, is_new_from_zero=True)
    series.update({"a": (10,), "b": (0,)}, 0.0)
    series.update({"a": (10,), "b": (19,)}, 1.0)
    assert shown(series) == {"a": [10], REST: [19]}
    series.update({"a": (10,), "b": (25,)}, 2.0)
    assert shown(series) == {"b": [0], REST: [25]}  # from now on
    series.update({"a": (12,), "b": (30,)}, 3.0)
    assert shown(series) == {"b": [5], REST: [27]}


def test_one_that_loses_its_series_and_gets_it_back_goes_on_where_it_was() -> None:
    series = Series(1, 1, is_new_from_zero=True)
    series.update({"a": (10,), "b": (0,)}, 0.0)
    series.update({"a": (10,), "b": (100,)}, 1.0)
    assert "b" in shown(series)
    series.update({"a": (1_000,), "b": (100,)}, 2.0)  # the growth is still the rest's
    assert shown(series) == {"a": [10], REST: [1_090]}
    series.update({"a": (1_005,), "b": (100,)}, 3.0)
    assert shown(series) == {"a": [15], REST: [1_090]}


def test_what_was_busy_long_ago_gives_way() -> None:
    series = Series(1, 1, is_new_from_zero=True)
    series.update({"a": (1_000,), "b": (0,)}, 0.0)
    series.update({"a": (1_000,), "b": (10,)}, 8 * HALF_LIFE_S)
    assert series.is_own("b")


def test_weights_stay_finite_for_ever() -> None:
    series = Series(1, 1, is_new_from_zero=True)
    for step in range(50):
        now = step * HALF_LIFE_S * 40
        series.update({"a": (step,), "b": (step * 1_000,)}, now)
        assert all(each.weight < 1e160 for each in series._things.values())
    assert series.is_own("b")
    series.update({"a": (10**9,), "b": (49_000,)}, now + 1)
    assert series.is_own("a")
    assert series_module.SCALE_MAX < 2.0**500


def test_one_that_begins_anew_is_counted_on() -> None:
    series = Series(2, 1, is_new_from_zero=True)
    series.update({"a": (10, 5)}, 0.0)
    series.update({"a": (3, 1)}, 1.0)
    assert shown(series)["a"] == [13, 6]
    series.update({"a": (4, 1)}, 2.0)
    assert shown(series)["a"] == [14, 6]


def test_a_figure_that_falls_alone_stays_until_it_is_exceeded() -> None:
    series = Series(2, 1, is_new_from_zero=True)
    for figures in ((10, 5), (11, 3), (12, 5), (13, 6)):
        series.update({"a": figures}, 0.0)
    assert shown(series)["a"] == [13, 6]


def test_what_a_thing_counted_before_it_was_seen_is_nobodys_growth() -> None:
    series = Series(1, 1, is_new_from_zero=False)
    series.update({"a": (1_000,), "b": (5_000,)}, 0.0)
    assert shown(series) == {"a": [1_000], REST: [0]}
    series.update({"a": (1_000,), "b": (5_001,)}, 1.0)
    assert shown(series)[REST] == [1]


def test_one_that_goes_makes_room_and_what_the_rest_counted_of_it_stays() -> None:
    series = Series(1, 1, is_new_from_zero=True)
    series.update({"a": (5,), "b": (7,)}, 0.0)
    series.update({"b": (8,)}, 1.0)
    assert shown(series) == {"b": [0], REST: [8]} and series.rest_count == 0
    series.update({}, 2.0)
    assert shown(series) == {REST: [8]}


def test_a_thing_that_is_called_like_the_rest_belongs_to_it() -> None:
    series = Series(1, 2, is_new_from_zero=True)
    series.update({REST: (100,), "a": (1,)}, 0.0)
    series.update({REST: (200,), "a": (1,)}, 1.0)
    assert shown(series) == {"a": [1], REST: [200]}


histories = st.lists(
    st.dictionaries(
        st.sampled_from("abcdef"), st.tuples(st.integers(0, 50), st.integers(0, 50)), max_size=6
    ),
    max_size=30,
)


@given(histories, st.integers(1, 4), st.floats(0.0, 2_000.0))
def test_no_series_falls_and_all_together_grow_by_what_things_grew(
    growths: list[dict[str, tuple[int, int]]], own_max: int, step_s: float
) -> None:
    series = Series(2, own_max, is_new_from_zero=True)
    told = dict.fromkeys("abcdef", (0, 0))
    before: dict[str, list[int]] = {}
    total = [0, 0]
    for number, growth in enumerate(growths):
        for key, (first, second) in growth.items():
            told[key] = told[key][0] + first, told[key][1] + second
            total = [total[0] + first, total[1] + second]
        series.update(told, number * step_s)
        now = shown(series)
        assert len(now) <= own_max + 1
        for key, figures in now.items():
            assert all(a >= b for a, b in zip(figures, before.get(key, [0, 0]), strict=True))
        before.update(now)  # what lost its series may get it back
        assert [sum(each[place] for each in before.values()) for place in (0, 1)] == total
