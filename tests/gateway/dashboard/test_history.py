"""What charts show is bounded, and has every peak."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from jsonbus.gateway.dashboard.history import (
    BUCKET_S,
    DRAWN_MAX,
    FIELD_S,
    PAUSE_S,
    SAMPLE_S,
    SAMPLED_MAX,
    RateHistory,
    Samples,
    Trace,
    to_milliseconds,
)
from jsonbus.survey import Survey, TopicView
from tests.survey.making import make_message


def trace_of(values: list[tuple[float, Any]], *paths: tuple[str | int, ...]) -> Trace:
    trace = Trace()
    trace.choose(list(paths) or [()])
    for at, value in values:
        trace.take(make_message("t", value, sent_at=at))
    trace.forget(values[-1][0] if values else 0.0)
    return trace


def test_every_message_of_a_slow_topic_is_a_point() -> None:
    trace = trace_of([(1.0, 5), (2.0, 6), (3.0, 4)])
    assert trace.points(()) == [(1.0, 5.0), (2.0, 6.0), (3.0, 4.0)]


def test_of_a_fast_topic_the_peaks_stay() -> None:
    values: list[tuple[float, Any]] = [(number / 1000, 10.0) for number in range(4_000)]
    values[1_234] = (1.234, 99.0)
    values[1_300] = (1.3, -99.0)
    trace = trace_of(values)
    points = trace.points(())
    assert len(points) <= 2 * (4.0 / BUCKET_S + 1)
    assert (1.234, 99.0) in points and (1.3, -99.0) in points
    assert points == sorted(points)


def test_numbers_at_several_paths_and_messages_without_them() -> None:
    trace = trace_of([(1.0, {"a": [1, 2]}), (2.0, "x"), (3.0, {"a": [3]})], ("a", 0), ("a", 1))
    assert trace.points(("a", 0)) == [(1.0, 1.0), (3.0, 3.0)]
    assert trace.points(("a", 1)) == [(1.0, 2.0)]
    assert trace.points(("b",)) == []


def test_what_is_too_old_or_too_much_is_forgotten() -> None:
    trace = trace_of([(1.0, 1), (2.0, 2)])
    trace.forget(2.1 + FIELD_S)
    assert trace.points(()) == [(2.0, 2.0)]
    for number in range(3 * DRAWN_MAX):
        trace.take(make_message("t", number, sent_at=float(number)))
    assert len(trace.points(())) <= 2 * FIELD_S / BUCKET_S
    assert trace.points(())[-1][0] < DRAWN_MAX
    trace.forget(float(3 * DRAWN_MAX))
    trace.take(make_message("t", 7, sent_at=float(3 * DRAWN_MAX)))
    assert trace.points(())[1:] == [(float(3 * DRAWN_MAX), 7.0)]


def test_numbers_are_taken_out_when_a_message_comes_not_when_somebody_looks() -> None:
    trace = trace_of([(1.0, {"a": 1})], ("a",))
    value = {"a": 2, "b": "x" * 1000}
    trace.take(make_message("t", value, sent_at=2.0))
    value.clear()
    assert trace.points(("a",)) == [(1.0, 1.0), (2.0, 2.0)]


def test_rates_begin_anew_when_nobody_looked_for_a_while() -> None:
    rates, survey = RateHistory(), Survey()
    for at in (0.0, 1.0, 2.0):
        rates.note(survey.picture(at, [], {}), 1000.0 + at)
    assert len(rates.points) == 3
    later = 3.0 + PAUSE_S
    rates.note(survey.picture(later, [], {}), 1000.0 + later)
    assert [at for at, *_ in rates.points] == [1000.0 + later]


def test_a_line_that_stays_keeps_its_past() -> None:
    trace = trace_of([(1.0, {"a": 1, "b": 2})], ("a",))
    trace.choose([("a",), ("b",)])
    assert trace.points(("a",)) == [(1.0, 1.0)] and trace.points(("b",)) == []


def test_the_last_number_holds_until_now_however_old_it_is() -> None:
    trace = trace_of([(1.0, 1), (2.0, 2)])
    assert trace.line((), 5.0) == [(1.0, 1.0), (2.0, 2.0), (5.0, 2.0)]
    now = 100.0 + FIELD_S
    trace.forget(now)
    assert trace.line((), now) == [(100.0, 2.0), (now, 2.0)]
    assert trace.line(("b",), now) == []


def observed(survey: Survey, at: float, **values: Any) -> Iterable[TopicView]:
    for topic, value in values.items():
        survey.take([make_message(topic, value, sent_at=at)])
    return survey.picture(at, [], {}).topics


def test_a_chart_begins_with_samples_of_its_first_number() -> None:
    survey, samples = Survey(), Samples()
    for step in range(5):
        at = step * SAMPLE_S
        samples.note(observed(survey, at, a={"x": step, "y": 7}, b="text"), at)
    assert [number for _, number in samples.points("a", ("x",))] == [0, 1, 2, 3, 4]
    assert samples.points("a", ("y",)) == samples.points("b", ()) == samples.points("c", ()) == []
    trace = Trace()
    trace.begin(("x",), samples.points("a", ("x",)))
    assert len(trace.points(("x",))) == 5


def test_samples_are_bounded_and_begin_anew_after_a_pause() -> None:
    survey, samples = Survey(), Samples()
    many = {f"t{number}": number for number in range(SAMPLED_MAX + 5)}
    for step in range(int(2 * FIELD_S / SAMPLE_S)):
        samples.note(observed(survey, step * SAMPLE_S, t0=step), step * SAMPLE_S)
    at = 2 * FIELD_S
    assert len(samples.points("t0", ())) == FIELD_S / SAMPLE_S + 1
    samples.note(observed(survey, at, **many), at)
    assert sum(bool(samples.points(topic, ())) for topic in many) == SAMPLED_MAX
    later = at + 2 * PAUSE_S
    samples.note(observed(survey, later, t0=1), later)
    assert len(samples.points("t0", ())) == 1


def test_points_are_written_as_charts_want_them() -> None:
    assert to_milliseconds([(1.2345, 0.1234567891)]) == ((1234, 0.1234568),)
