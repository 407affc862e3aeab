from __future__ import annotations

import statistics
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

import jsonbus
from jsonbus.survey import Intervals, IntervalTable, IntervalView, Spread, intervals
from tests.survey.making import make_message


def view(
    messages: Iterable[jsonbus.Message], *, window: int = 1_000, now: float = 0
) -> IntervalView:
    taken = Intervals(window)
    for each in messages:
        taken.take(each)
    return taken.view(now)


def at(*times: float, node: str = "n1", first: int = 1) -> list[jsonbus.Message]:
    return [make_message("a", 1, n, node=node, sent_at=each) for n, each in enumerate(times, first)]


def test_intervals_have_mean_deviation_least_and_most() -> None:
    shown = view(at(0, 1, 3, 4), now=4.0)
    assert shown.intervals == Spread(3, 4 / 3, pytest.approx(statistics.pstdev([1, 2, 1])), 1, 2)
    assert (shown.messages, shown.rate, shown.last_at) == (4, pytest.approx(0.75), 4.0)


def test_the_window_is_about_the_last_messages_and_the_total_about_all() -> None:
    shown = view(at(*range(0, 1_000, 10), *range(1_000, 1_010)), window=10)
    assert shown.intervals == Spread(9, 1, 0, 1, 1)
    assert (shown.intervals_total.number, shown.intervals_total.most) == (109, 10)
    assert shown.messages == 110


def test_order_is_that_of_the_sequence() -> None:
    messages = at(0, 1, 2, 3, 4)
    shown = view(messages[n] for n in (0, 3, 1, 2, 4))
    assert shown.intervals == Spread(4, 1, 0, 1, 1)
    assert (shown.late, shown.messages) == (2, 5)


def test_messages_that_come_twice_count_once() -> None:
    messages = at(0, 1, 2)
    shown = view([*messages, *messages])
    assert (shown.messages, shown.duplicates, shown.intervals.number) == (3, 3, 2)


def test_publishers_do_not_disturb_each_other() -> None:
    """Two clocks, an hour apart; both publish once a second."""
    here, there = at(*range(10)), at(*range(3_600, 3_610), node="n2", first=70)
    both = [each for pair in zip(here, there, strict=True) for each in pair]
    for each in both:
        each.origin.received_at = 9.0
    shown = view(both, now=9.5)
    assert shown.intervals == Spread(18, 1, 0, 1, 1)
    assert (shown.rate, shown.publishers) == (2.0, ("n1", "n2"))


def test_the_publishers_own_rate_counts_what_was_lost() -> None:
    """Ten messages a second, every second one of another topic; then half of them get lost."""
    messages = [make_message("a", 1, n, sent_at=n / 10) for n in range(0, 100, 2)]
    shown = view(messages, now=9.8)
    assert (shown.rate, shown.publisher_rate) == (pytest.approx(5), pytest.approx(10))
    shown = view(messages[::2], now=9.8)
    assert (shown.rate, shown.publisher_rate) == (pytest.approx(2.5), pytest.approx(10))


def test_a_publisher_that_stopped_has_no_rate() -> None:
    messages = at(*range(10))
    assert view(messages, now=10.9).rate == 1.0
    assert view(messages, now=11.5).rate == 0.0


def test_a_publisher_that_starts_again_leaves_no_interval_behind() -> None:
    again = [
        make_message("a", 1, n, incarnation=2, sent_at=100 + n, received_at=3.0) for n in range(3)
    ]
    shown = view([*at(0, 1, 2), *again])
    assert shown.intervals == Spread(2, 1, 0, 1, 1)
    assert shown.intervals_total.most == 1


def test_messages_of_one_datagram_have_no_time_between_them() -> None:
    shown = view(at(0, 0, 0, 1, 1, 1))
    assert (shown.intervals.least, shown.intervals.most, shown.intervals.mean) == (0, 1, 0.2)


def test_a_clock_that_is_set_back_makes_no_negative_interval() -> None:
    assert view(at(10, 11, 5, 6)).intervals.least == 0


def test_plain_messages_count_as_they_come() -> None:
    shown = view(make_message("a", 1, None, node="plain:x", sent_at=each) for each in (1, 2, 3))
    assert (shown.messages, shown.intervals) == (3, Spread(2, 1, 0, 1, 1))


def test_retained_messages_are_of_the_past() -> None:
    assert view([make_message(sequence=1, is_retained=True)]).messages == 0


def test_sizes_have_figures_too() -> None:
    messages = [make_message("a", "x" * n, n, sent_at=n, received_at=4.0) for n in range(1, 5)]
    shown = view(messages, now=4.0)
    assert shown.sizes == Spread(4, 4.5, pytest.approx(1.118, abs=0.001), 3, 6)
    assert (shown.bytes, shown.bytes_per_s) == (18, 4.5)


def test_publishers_are_bounded() -> None:
    messages = [make_message(sequence=1, node=f"n{n}", sent_at=n) for n in range(100)]
    assert len(view(messages).publishers) == intervals.PUBLISHERS_MAX
    assert view(messages).messages == 100


@given(st.lists(st.floats(0, 1e6), min_size=2, max_size=50))
def test_streaming_figures_are_those_of_the_statistics_module(values: list[float]) -> None:
    running = intervals.Running()
    for each in values:
        running.add(each)
    for spread in (running.spread(), intervals.spread_of(values)):
        assert spread.number == len(values)
        assert spread.mean == pytest.approx(statistics.fmean(values), abs=1e-6)
        assert spread.deviation == pytest.approx(statistics.pstdev(values), rel=1e-6, abs=1e-3)
        assert (spread.least, spread.most) == (min(values), max(values))


@given(st.permutations(list(range(20))))
def test_any_order_of_arrival_gives_the_same_intervals(order: list[int]) -> None:
    messages = at(*(each**2 for each in range(20)))
    assert view(messages[n] for n in order).intervals == view(messages).intervals


def test_every_topic_has_its_own_intervals() -> None:
    taken = IntervalTable()
    taken.take([make_message("b", 1, n, sent_at=n) for n in range(3)])
    taken.take([make_message("a", 1, n, sent_at=n / 10) for n in range(3, 9)])
    views = taken.views(2.0)
    assert list(views) == ["a", "b"]
    assert [view.messages for view in views.values()] == [6, 3]
    assert views["b"].rate == 1.0
    assert taken.taken == 9


def test_no_more_messages_are_taken_than_wanted() -> None:
    taken = IntervalTable()
    taken.take([make_message("a", 1, n) for n in range(9)], 5)
    taken.take([make_message("a", 1, 9)], 5)
    assert (taken.taken, taken.views(0.0)["a"].messages) == (5, 5)


def test_retained_messages_are_left_out() -> None:
    taken = IntervalTable()
    taken.take([make_message("a", 1, 1, is_retained=True)])
    assert (taken.taken, taken.views(0.0)) == (0, {})


def test_the_topic_that_was_silent_longest_makes_room() -> None:
    taken = IntervalTable(topics_max=2)
    for at, name in enumerate("abac"):
        taken.take([make_message(name, 1, at, received_at=at)])
    assert (list(taken.views(0.0)), taken.forgotten) == (["a", "c"], 1)
