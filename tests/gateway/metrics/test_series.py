"""Counters in a bounded number of series: none ever falls, nothing is counted twice or lost."""

from __future__ import annotations

from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from jsonbus.gateway.metrics.series import REST, Series

Told = Mapping[str, tuple[int, ...]]


def shown(series: Series) -> dict[str, list[int]]:
    figures = {key: list(figures) for key, figures in series.own.items()}
    return {**figures, REST: list(series.rest)}


def test_the_first_that_come_have_series_and_the_rest_share_one() -> None:
    series = Series(1, 2, is_new_from_zero=True)
    series.update({"a": (1,), "b": (2,)})
    series.update({"a": (3,), "b": (2,), "c": (3,), "d": (1,)})
    assert shown(series) == {"a": [3], "b": [2], REST: [4]}
    assert series.rest_count == 2
    assert "a" in series.own and "c" not in series.own


def test_one_that_begins_anew_is_counted_on() -> None:
    series = Series(2, 1, is_new_from_zero=True)
    series.update({"a": (10, 5)})
    series.update({"a": (3, 1)})
    assert shown(series)["a"] == [13, 6]
    series.update({"a": (4, 1)})
    assert shown(series)["a"] == [14, 6]


def test_a_figure_that_falls_alone_stays_until_it_is_exceeded() -> None:
    series = Series(2, 1, is_new_from_zero=True)
    for figures in ((10, 5), (11, 3), (12, 5), (13, 6)):
        series.update({"a": figures})
    assert shown(series)["a"] == [13, 6]


def test_what_a_thing_counted_before_it_was_seen_is_nobodys_growth() -> None:
    series = Series(1, 1, is_new_from_zero=False)
    series.update({"a": (1_000,), "b": (5_000,)})
    assert shown(series) == {"a": [1_000], REST: [0]}
    series.update({"a": (1_000,), "b": (5_001,)})
    assert shown(series)[REST] == [1]


def test_the_one_that_waited_longest_takes_the_series_of_one_that_goes() -> None:
    series = Series(1, 1, is_new_from_zero=True)
    series.update({"a": (5,), "b": (7,)})
    series.update({"b": (8,)})
    assert shown(series) == {"b": [1], REST: [7]} and series.rest_count == 0
    series.update({})
    assert shown(series) == {REST: [7]}


def test_a_thing_that_is_called_like_the_rest_belongs_to_it() -> None:
    series = Series(1, 2, is_new_from_zero=True)
    series.update({REST: (100,), "a": (1,)})
    series.update({REST: (200,), "a": (1,)})
    assert shown(series) == {"a": [1], REST: [200]}


def test_one_that_is_busier_does_not_take_the_series_of_another() -> None:
    series = Series(1, 1, is_new_from_zero=True)
    series.update({"a": (1,), "b": (2,)})
    series.update({"a": (1,), "b": (1_000,)})
    assert shown(series) == {"a": [1], REST: [1_000]}


def test_a_free_series_goes_to_the_one_that_waited_before_it_goes_to_a_newcomer() -> None:
    series = Series(1, 1, is_new_from_zero=True)
    series.update({"a": (1,), "b": (2,)})
    series.update({"new": (9,), "b": (5,)})
    assert shown(series) == {"b": [3], REST: [11]}


histories = st.lists(
    st.dictionaries(
        st.sampled_from("abcdef"), st.tuples(st.integers(0, 50), st.integers(0, 50)), max_size=6
    ),
    max_size=30,
)


@given(histories, st.integers(1, 4))
def test_no_series_falls_and_all_together_grow_by_what_things_grew(
    growths: list[dict[str, tuple[int, int]]], own_max: int
) -> None:
    series = Series(2, own_max, is_new_from_zero=True)
    told = dict.fromkeys("abcdef", (0, 0))
    before: dict[str, list[int]] = {}
    total = [0, 0]
    for growth in growths:
        for key, (first, second) in growth.items():
            told[key] = told[key][0] + first, told[key][1] + second
            total = [total[0] + first, total[1] + second]
        series.update(told)
        now = shown(series)
        assert len(now) <= own_max + 1
        for key, figures in now.items():
            assert all(a >= b for a, b in zip(figures, before.get(key, [0, 0]), strict=True))
        before.update(now)
        assert [sum(each[place] for each in before.values()) for place in (0, 1)] == total
