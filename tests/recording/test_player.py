from __future__ import annotations

import math
from time import monotonic, sleep
from typing import Any

import pytest

import jsonbus
from jsonbus.errors import ClosedError, ConfigError, InvalidTopicError, LocalError
from jsonbus.recording import Player
from jsonbus.recording.player import select
from jsonbus.recording.reader import Timed
from tests.recording.samples import make_message_at

BEGAN_AT = 1_794_844_270.0


class Bus:
    """Takes what is published, and notes when."""

    def __init__(self, pause_s: float = 0.0) -> None:
        self.published: list[tuple[str, Any, bool]] = []
        self.times: list[float] = []
        self._pause_s = pause_s

    def publish(self, topic: str, value: Any, *, retain: bool = False) -> bool:
        self.times.append(monotonic())
        if "*" in topic:
            raise InvalidTopicError(topic, "it is a pattern")
        self.published.append((topic, value, retain))
        sleep(self._pause_s)
        return not topic.startswith("unwanted")

    @property
    def values(self) -> list[Any]:
        return [value for _, value, _ in self.published]


def timed(*seconds: float, topic: str = "a") -> list[Timed]:
    return [
        (BEGAN_AT + each, make_message_at(BEGAN_AT + each, index, topic))
        for index, each in enumerate(seconds)
    ]


@pytest.mark.parametrize("speed", [1.0, 4.0])
def test_no_message_leaves_before_its_time(speed: float) -> None:
    bus = Bus()
    player = Player(bus.publish, speed=speed)
    seconds = (0.0, 0.03, 0.03, 0.05, 0.12)
    assert player.play(timed(*seconds)) == 5
    assert bus.values == [0, 1, 2, 3, 4]
    for at, due_s in zip(bus.times, seconds, strict=True):
        # The first one may be late by itself, by its lag.
        assert at - bus.times[0] >= due_s / speed - player.lag_s_max
    assert player.position_s == pytest.approx(0.12)


def test_as_fast_as_possible_waits_for_nothing() -> None:
    bus = Bus()
    player = Player(bus.publish, speed=math.inf)
    assert player.play(timed(0, 1e6, 2e6)) == 3
    assert bus.values == [0, 1, 2]
    assert player.lag_s_max == 0.0


def test_what_falls_behind_leaves_nothing_out_and_tells_its_lag() -> None:
    bus = Bus(pause_s=0.02)
    player = Player(bus.publish)
    player.play(timed(*(each / 1000 for each in range(10))))
    assert bus.values == list(range(10))
    assert player.lag_s_max >= 0.1


def test_another_pass_follows_at_the_mean_distance() -> None:
    bus = Bus()
    player = Player(bus.publish)
    for _ in range(3):
        player.play(timed(0.0, 0.02, 0.04))
    assert player.played == 9
    # Three passes of 0.06 s, but for the distance behind the last message.
    assert bus.times[-1] - bus.times[0] >= 0.16 - player.lag_s_max


def test_passes_of_one_message_do_not_flood_the_bus() -> None:
    bus = Bus()
    player = Player(bus.publish, speed=50.0)
    for _ in range(3):
        player.play(timed(0.0))
    assert bus.times[-1] - bus.times[0] >= 0.04 - player.lag_s_max


def test_nothing_to_play_is_nothing() -> None:
    assert Player(Bus().publish).play([]) == 0


def test_topics_get_their_prefix() -> None:
    for prefix in ("test/x", "test/x/"):
        bus = Bus()
        Player(bus.publish, topic_prefix=prefix).play(timed(0.0))
        assert bus.published == [("test/x/a", 0, False)]
    with pytest.raises(InvalidTopicError):
        Player(Bus().publish, topic_prefix="*")


def test_a_topic_that_was_retained_is_so_from_then_on() -> None:
    bus = Bus()
    messages = timed(0.0, 0.0, 0.0)
    messages[1][1].origin.is_retained = True
    messages += timed(0.0, topic="b")
    Player(bus.publish).play(messages)
    assert [retain for _, _, retain in bus.published] == [False, True, True, False]
    bus = Bus()
    Player(bus.publish, retain=True).play(messages)
    assert [retain for _, _, retain in bus.published] == [True] * 4


def test_what_nobody_wants_and_what_is_refused_is_counted() -> None:
    refused: list[tuple[jsonbus.Message, LocalError]] = []
    player = Player(
        Bus().publish, on_refused=lambda message, error: refused.append((message, error))
    )
    player.play([*timed(0.0, 0.0, topic="unwanted"), *timed(0.0, topic="*"), *timed(0.0)])
    assert (player.played, player.unwanted, player.refused) == (4, 2, 1)
    assert player.unwanted_topics == ["unwanted"]
    assert [str(error) for _, error in refused] == ["'*' is not valid here: it is a pattern"]


def test_a_bus_that_is_closed_ends_it() -> None:
    def publish(topic: str, value: Any, *, retain: bool = False) -> bool:
        raise ClosedError("closed")

    with pytest.raises(ClosedError):
        Player(publish).play(timed(0.0))


@pytest.mark.parametrize("speed", [0.0, -1.0, math.nan])
def test_a_speed_is_above_zero(speed: float) -> None:
    with pytest.raises(ConfigError):
        Player(Bus().publish, speed=speed)


def test_a_part_is_selected_by_time_and_topic() -> None:
    messages = timed(0.0, 1.0, 2.0, 3.0) + timed(3.5, topic="b/c")

    def chosen(**options: Any) -> list[float]:
        return [at - BEGAN_AT for at, _ in select(messages, **options)]

    assert chosen() == [0.0, 1.0, 2.0, 3.0, 3.5]
    assert chosen(start=1.0, end=3.0, is_from_beginning=(True, True)) == [1.0, 2.0]
    assert chosen(start=BEGAN_AT + 2.5) == [3.0, 3.5]
    assert chosen(start=1.0, end=BEGAN_AT + 1.5, is_from_beginning=(True, False)) == [1.0]
    assert chosen(patterns=["b/*"]) == [3.5]
    assert chosen(patterns=["x", "**"], start=3.2, is_from_beginning=(True, False)) == [3.5]
