from __future__ import annotations

from jsonbus.sim.clock import Clock


def test_events_happen_in_order_of_time_and_then_of_their_making() -> None:
    clock = Clock()
    happened: list[str] = []
    for at, what in ((2.0, "c"), (1.0, "a"), (1.0, "b"), (3.0, "d")):
        clock.call_at(at, happened.append, what)
    clock.run_until(2.5)
    assert happened == ["a", "b", "c"]
    assert clock.now == 2.5
    assert len(clock) == 1


def test_an_event_sees_the_time_at_which_it_happens() -> None:
    clock = Clock()
    seen: list[float] = []
    clock.call_at(1.25, lambda _: seen.append(clock.now))
    clock.run_until(2.0)
    assert seen == [1.25]


def test_an_event_may_make_others_and_what_is_overdue_happens_next() -> None:
    clock = Clock()
    seen: list[float] = []

    def first(_: None) -> None:
        clock.call_at(0.5, second)  # in the past

    def second(_: None) -> None:
        seen.append(clock.now)

    clock.call_at(1.0, first)
    clock.run_until(1.0)
    assert seen == [1.0]


def test_advance_moves_time_only_where_nothing_else_is_due() -> None:
    clock = Clock()
    steps: list[tuple[float, str]] = []
    series = [1.0, 2.0, 3.0]

    def go_through(_: None) -> None:
        while series:
            steps.append((clock.now, "series"))
            series.pop(0)
            if series and not clock.advance(series[0]):
                clock.call_at(series[0], go_through)
                return

    clock.call_at(1.0, go_through)
    clock.call_at(2.5, lambda _: steps.append((clock.now, "other")))
    clock.run_until(2.6)
    assert steps == [(1.0, "series"), (2.0, "series"), (2.5, "other")]
    clock.run_until(10.0)
    assert steps[-1] == (3.0, "series")


def test_run_next_lets_a_series_take_a_single_step() -> None:
    clock = Clock()
    steps: list[float] = []

    def go_on(_: None) -> None:
        steps.append(clock.now)
        assert not clock.advance(clock.now + 1)
        clock.call_at(clock.now + 1, go_on)

    clock.call_at(1.0, go_on)
    assert clock.run_next(until=5.0)
    assert steps == [1.0]
    assert clock.run_next(until=2.0)
    assert not clock.run_next(until=2.5)
    assert steps == [1.0, 2.0]
