"""Asker and answerer against each other, with datagrams handed over and a hand-held clock."""

from __future__ import annotations

from collections.abc import Callable

from jsonbus.core.wire.decode import decode
from jsonbus.core.wire.frames import EchoedFrame, EchoFrame
from jsonbus.doctor import echo
from jsonbus.doctor.echo import SIZES_BYTES, Answerer, Asker
from jsonbus.doctor.echo_figures import figures_of
from jsonbus.doctor.facts import ListenerFacts, SizeFacts

NEVER: Callable[[int, int], bool] = lambda size, number: False  # noqa: E731 (a value like others)


class Wire:
    """An asker here and an answerer there; each way loses what it is told to.

    `lose_there(size, number)` and `lose_back(size, number)` are asked for each datagram.
    """

    def __init__(
        self,
        lose_there: Callable[[int, int], bool] = NEVER,
        lose_back: Callable[[int, int], bool] = NEVER,
        delay_s: float = 0.001,
        copies: int = 1,
    ) -> None:
        self.now = 100.0
        self.asker = Asker(0.0, self.now)
        self.answerer = Answerer("attic", 0.0, self.now)
        self._lose_there, self._lose_back = lose_there, lose_back
        self._delay_s = delay_s
        self._copies = copies
        self._there = self._back = 0

    def run(self, seconds: float, step_s: float = 0.005) -> None:
        for _ in range(round(seconds / step_s)):
            if self.answerer.due_at <= self.now:
                self._bring_back(self.answerer.tell(self.now), is_lost=False)
            if self.asker.due_at <= self.now:
                self._bring_there(self.asker.next_echo(self.now))
            self.now += step_s

    def figures(self) -> ListenerFacts:
        (node,) = self.asker.listeners
        return figures_of(self.asker, node, ())

    def size(self, size_bytes: int) -> SizeFacts:
        (found,) = [each for each in self.figures().sizes if each.size_bytes == size_bytes]
        return found

    def _bring_there(self, datagram: bytes) -> None:
        self._there += 1
        if self._lose_there(len(datagram), self._there):
            return
        for _ in range(self._copies):
            frame = decode(datagram)
            assert isinstance(frame, EchoFrame)
            answer = self.answerer.receive(frame, len(datagram), ("192.0.2.5", 5), self.now)
            if answer is not None:
                assert len(answer) == len(datagram)
                self._back += 1
                self._bring_back(answer, is_lost=self._lose_back(len(answer), self._back))

    def _bring_back(self, datagram: bytes, *, is_lost: bool) -> None:
        for _ in range(0 if is_lost else self._copies):
            frame = decode(datagram)
            assert isinstance(frame, EchoedFrame)
            self.asker.receive(frame, ("192.0.2.6", 6), self.now + self._delay_s)


def test_every_echo_is_answered_in_every_size() -> None:
    wire = Wire(delay_s=0.002)
    wire.run(3)
    figures = wire.figures()
    assert (figures.name, figures.address, figures.is_here) == ("attic", "192.0.2.6", False)
    assert [each.size_bytes for each in figures.sizes] == list(SIZES_BYTES)
    assert all(each.sent == each.answered > 0 for each in figures.sizes)
    assert [each.sent for each in figures.sizes] == [echo.SERIES_SMALL, *[echo.SERIES_LARGE] * 5]
    assert figures.round_trip_median_ms is not None and figures.round_trip_max_ms is not None
    assert round(figures.round_trip_median_ms, 6) == round(figures.round_trip_max_ms, 6) == 2
    assert (figures.repeated_there, figures.repeated_back) == (0, 0)


def test_while_nobody_listens_only_small_echoes_are_sent_and_few() -> None:
    asker = Asker(0.0, 100.0)
    now = 100.0
    for _ in range(300):
        if asker.due_at <= now:
            assert len(asker.next_echo(now)) == echo.SMALL_BYTES
        now += 0.01
    assert 10 <= len(asker.sizes) <= 16


def test_an_asker_with_a_rate_limit_keeps_to_it() -> None:
    asker = Asker(0.0, 100.0, rate_limit=1_000)
    frame = decode(Answerer("attic", 0.0, 100.0).tell(100.0))
    assert isinstance(frame, EchoedFrame)
    asker.receive(frame, ("192.0.2.6", 6), 100.0)
    now = 100.0
    while len(asker.sizes) <= asker.series_to:
        now = asker.due_at
        asker.next_echo(now)
    assert sum(asker.sizes[:-1]) <= 1_000 * (now - 100.0) * 1.001


def test_losses_on_the_way_there_are_told_apart_from_those_on_the_way_back() -> None:
    there = Wire(lose_there=lambda size, number: number % 10 == 3)
    there.run(3)
    small = there.size(200)
    assert small.lost_there == small.sent - small.answered > 0 == small.lost_back
    back = Wire(lose_back=lambda size, number: number % 10 == 3)
    back.run(3)
    small = back.size(200)
    assert small.lost_back == small.sent - small.answered > 0 == small.lost_there


def test_a_size_that_does_not_pass_is_told_with_its_direction() -> None:
    wire = Wire(
        lose_there=lambda size, number: size > 32_000, lose_back=lambda size, number: size > 8_000
    )
    wire.run(3)
    assert [each.answered > 0 for each in wire.figures().sizes] == [True] * 4 + [False] * 2
    assert wire.size(32_000).lost_back == wire.size(32_000).sent
    assert wire.size(65_507).lost_there == wire.size(65_507).sent


def test_a_listener_that_hears_nothing_is_still_known() -> None:
    wire = Wire(lose_there=lambda size, number: True)
    wire.run(3)
    figures = wire.figures()
    assert figures.name == "attic"
    assert figures.sizes[0].sent > 0 == sum(each.answered for each in figures.sizes)
    assert figures.round_trip_median_ms is None


def test_repeats_are_counted_both_ways_and_answered_once() -> None:
    wire = Wire(copies=2)
    wire.run(3)
    figures = wire.figures()
    assert figures.repeated_back == len(wire.asker.sizes)
    # The last answer left before its echo came again.
    assert figures.repeated_there == len(wire.asker.sizes) - 1
    assert all(each.sent == each.answered for each in figures.sizes)


def test_an_asker_is_told_of_once_when_it_has_fallen_silent() -> None:
    wire = Wire()
    wire.run(2)
    assert wire.answerer.take_done(wire.now) == []
    wire.now += echo.DONE_S
    (asking,) = wire.answerer.take_done(wire.now)
    assert asking.address == "192.0.2.5"
    assert asking.answered == len(wire.asker.sizes)
    assert max(asking.sizes) == 65_507
    assert wire.answerer.take_done(wire.now + 100) == []


def test_a_listener_tells_that_it_is_there_every_second() -> None:
    answerer = Answerer("attic", 0.0, 100.0)
    assert answerer.due_at == 100.0
    frame = decode(answerer.tell(100.0))
    assert isinstance(frame, EchoedFrame)
    assert (frame.to, frame.name, frame.echo_id) == (answerer.node, "attic", 0)
    assert answerer.due_at == 101.0


def test_a_flood_of_echoes_is_answered_within_bounds() -> None:
    answerer = Answerer("attic", 0.0, 100.0)
    answers = 0
    for number in range(5_000):
        asker = Asker(0.0, 100.0)  # each with an id of its own
        frame = decode(asker.next_echo(100.0))
        assert isinstance(frame, EchoFrame)
        answers += answerer.receive(frame, 200, ("192.0.2.9", number), 100.0) is not None
    assert answers <= echo.ANSWERS_PER_S_MAX
    assert len(answerer.askers) <= echo.ASKERS_MAX


def test_many_listeners_are_measured_up_to_a_bound() -> None:
    asker = Asker(0.0, 100.0)
    for number in range(2 * echo.LISTENERS_MAX):
        frame = decode(Answerer(f"n{number}", 0.0, 100.0).tell(100.0))
        assert isinstance(frame, EchoedFrame)
        asker.receive(frame, ("192.0.2.6", 6), 100.0)
    assert len(asker.listeners) == echo.LISTENERS_MAX


def test_answers_to_others_and_to_echoes_never_sent_are_left_alone() -> None:
    wire = Wire()
    stranger = Asker(0.0, 100.0)
    ahead = Asker(0.0, 100.0)
    for each in (stranger, ahead):
        frame = decode(each.next_echo(100.0))
        assert isinstance(frame, EchoFrame)
        answer = wire.answerer.receive(frame, 200, ("192.0.2.5", 5), 100.0)
        assert answer is not None
        echoed = decode(answer)
        assert isinstance(echoed, EchoedFrame)
        echoed.to = wire.asker.node if each is ahead else echoed.to
        wire.asker.receive(echoed, ("192.0.2.6", 6), 100.0)
    (listener,) = wire.asker.listeners.values()
    assert listener.answers == {}


def test_a_second_listener_that_comes_during_the_series_is_measured_from_then_on() -> None:
    wire = Wire()
    wire.run(0.5)
    late = Answerer("cellar", 0.0, wire.now)
    frame = decode(late.tell(wire.now))
    assert isinstance(frame, EchoedFrame)
    sent_before = len(wire.asker.sizes)
    wire.asker.receive(frame, ("192.0.2.7", 7), wire.now)
    wire.run(2)
    asker = wire.asker
    facts = figures_of(asker, late.node, ("192.0.2.7",))
    assert facts.is_here
    assert sum(each.sent for each in facts.sizes) == asker.series_to - sent_before


def test_a_listener_that_comes_after_the_series_is_not_measured() -> None:
    wire = Wire()
    wire.run(3)
    late = Answerer("cellar", 0.0, wire.now)
    frame = decode(late.tell(wire.now))
    assert isinstance(frame, EchoedFrame)
    wire.asker.receive(frame, ("192.0.2.7", 7), wire.now)
    wire.run(1)
    asker = wire.asker
    facts = figures_of(asker, late.node, ())
    assert sum(each.sent for each in facts.sizes) == 0
