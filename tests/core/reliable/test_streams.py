"""Streams: in order, exactly once, asked for when missing, given up when it cannot be had."""

from __future__ import annotations

import math
import random

import pytest

from jsonbus.core.limits import (
    GAP_WAIT_S,
    HISTORY_AGE_S,
    NAK_DELAY_MAX_S,
    NAK_WAITS_S,
    SLICE_WAIT_S,
    STREAM_JUMP,
)
from jsonbus.core.reliable.streams import IN_TURN, LostRange, Streams
from tests.core.reliable.stream_receiver import KEY, NOW, Receiver

# --- In turn --------------------------------------------------------------------------------------


def test_messages_in_turn_are_delivered_at_once() -> None:
    streams: Streams[str] = Streams(lambda: 1, random.Random(1))
    stream = streams.open(KEY, 1, NOW)
    assert streams.receive(stream, 1, "one", 3, NOW) is IN_TURN
    assert streams.receive(stream, 2, "two", 3, NOW) is IN_TURN
    assert streams.ready == []
    assert streams.timer_at() == math.inf


def test_stream_begins_with_what_is_heard_first() -> None:
    receiver = Receiver()
    receiver.receive(41, 42)
    receiver.run(60)
    assert receiver.delivered == [41, 42]
    assert receiver.naks == receiver.gaps == []


def test_opened_stream_begins_where_it_was_told() -> None:
    receiver = Receiver()
    receiver.streams.open(KEY, 39, NOW)
    receiver.receive(41)
    receiver.run(GAP_WAIT_S)
    assert receiver.naks == [(0.005, [(39, 40)])]
    receiver.receive(39, 40)
    assert receiver.delivered == [39, 40, 41]


def test_streams_are_apart() -> None:
    receiver = Receiver()
    keys = [("n", 7, "a"), ("n", 7, "b"), ("n", 8, "a"), ("m", 7, "a")]
    for sequence in (1, 2):
        for key in keys:
            receiver.receive(sequence, key=key)
    assert receiver.delivered == [1] * 4 + [2] * 4
    assert len(receiver.streams.by_key) == 4
    assert ("n", 7, "b") in receiver.streams.by_key


def test_publisher_that_starts_anew_is_a_new_stream() -> None:
    receiver = Receiver()
    receiver.receive(500, 501)
    receiver.receive(1, 2, key=("n", 8, "a"))
    assert receiver.delivered == [500, 501, 1, 2]


def test_repeats_are_dropped_and_counted() -> None:
    receiver = Receiver()
    receiver.receive(1, 2, 2, 1, 5, 5, 3, 3, 5)
    assert receiver.delivered == [1, 2, 3]
    assert receiver.refused == 5
    receiver.receive(4)
    assert receiver.delivered == [1, 2, 3, 4, 5]


def test_what_is_ready_comes_first_even_if_it_is_taken_late() -> None:
    streams: Streams[int] = Streams(lambda: 1, random.Random(1))
    stream = streams.open(KEY, 1, NOW)
    for sequence in (1, 3, 2, 4):
        streams.receive(stream, sequence, sequence, 1, NOW)
    assert streams.take_ready() == [2, 3, 4]


# --- Gaps -----------------------------------------------------------------------------------------


def test_what_only_came_late_is_not_asked_for() -> None:
    receiver = Receiver()
    receiver.receive(1, 3)
    receiver.run(GAP_WAIT_S - 0.001)
    receiver.receive(2)
    receiver.run(60)
    assert receiver.delivered == [1, 2, 3]
    assert receiver.naks == []
    assert receiver.streams.timer_at() == math.inf


def test_all_gaps_of_a_stream_are_asked_for_at_once() -> None:
    receiver = Receiver()
    receiver.receive(1, 3, 4, 7, 9)
    receiver.run(GAP_WAIT_S)
    assert receiver.naks == [(0.005, [(2, 2), (5, 6), (8, 8)])]


def test_repairs_are_delivered_in_order() -> None:
    receiver = Receiver()
    receiver.receive(1, 8)
    receiver.run(0.01)
    receiver.receive(5, 3, 7, 2)
    assert receiver.delivered == [1, 2, 3]
    receiver.receive(6, 4)
    assert receiver.delivered == [1, 2, 3, 4, 5, 6, 7, 8]
    assert (receiver.streams.waiting.messages, receiver.streams.waiting.size_bytes) == (0, 0)


def test_repair_that_arrives_cancels_the_next_request() -> None:
    receiver = Receiver()
    receiver.receive(1, 3)
    receiver.run(0.01)
    receiver.receive(2)
    receiver.run(60)
    assert len(receiver.naks) == 1


def test_silent_publisher_is_asked_five_times_and_then_given_up() -> None:
    receiver = Receiver()
    receiver.receive(1, 3)
    receiver.run(60)
    at = [0.005, 0.065, 0.185, 0.425, 0.905]
    assert receiver.naks == [(each, [(2, 2)]) for each in at]
    assert receiver.gaps == [(1.385, 2, 2)]
    assert receiver.delivered == [1, 3]
    assert receiver.streams.given_up == 1


def test_gap_names_its_stream() -> None:
    streams: Streams[int] = Streams(lambda: 1, random.Random(1))
    stream = streams.open(KEY, 1, NOW)
    streams.receive(stream, 4, 4, 1, NOW)
    streams.hear_beat(stream, 4, 4, NOW)
    assert streams.take_lost() == [LostRange("n", 7, "a", 1, 3)]
    assert streams.take_lost() == []
    assert streams.take_ready() == [4]


def test_publisher_that_is_heard_is_asked_for_as_long_as_a_history_lasts() -> None:
    receiver = Receiver()
    receiver.receive(1, 3)
    for sequence in range(4, 204):
        receiver.run(0.1)
        receiver.receive(sequence)
    assert 15 < len(receiver.naks) < 25
    [(at, first, last)] = receiver.gaps
    assert (first, last) == (2, 2)
    assert HISTORY_AGE_S <= at < HISTORY_AGE_S + 0.5
    assert receiver.delivered == [1, *range(3, 204)]


def test_publisher_that_falls_silent_has_five_tries_from_then_on() -> None:
    receiver = Receiver()
    receiver.receive(1, 3)
    receiver.run(0.5)
    receiver.receive(4)
    receiver.run(60)
    assert len(receiver.naks) == 4 + 5
    assert len(receiver.gaps) == 1


def test_publisher_that_is_heard_after_the_fifth_try_is_asked_again() -> None:
    receiver = Receiver()
    receiver.receive(1, 3)
    receiver.run(1.0)
    receiver.receive(4)
    receiver.run(0.5)
    assert [at for at, _ in receiver.naks[5:]] == [1.385]
    assert receiver.gaps == []


def test_parts_of_a_gap_are_asked_for_together() -> None:
    receiver = Receiver()
    receiver.receive(1, 10)
    receiver.run(0.006)
    receiver.receive(5)
    receiver.streams.hear_nak(KEY, [(2, 9)], receiver.now)  # it crossed the repair
    receiver.run(0.06)
    assert receiver.naks[1:] == [(0.065, [(2, 4), (6, 9)])]


def test_gap_given_up_behind_another_one_leaves_the_order_alone() -> None:
    receiver = Receiver()
    receiver.receive(1)
    receiver.receive(5)  # misses 2 … 4
    receiver.run(0.01)
    receiver.receive(3)
    receiver.receive(8)  # misses 6, 7
    receiver.run(60)
    assert receiver.delivered == [1, 3, 5, 8]
    assert sorted(gap[1:] for gap in receiver.gaps) == [(2, 2), (4, 4), (6, 7)]
    receiver.receive(2, 4, 6, 7, 9)
    assert receiver.delivered == [1, 3, 5, 8, 9]


def test_partial_repair_makes_the_rest_be_asked_for_sooner() -> None:
    receiver = Receiver()
    receiver.receive(1, 100)
    receiver.run(0.5)  # four tries
    receiver.receive(*range(2, 50))
    receiver.run(0.6)
    assert [at for at, _ in receiver.naks[4:]] == [0.905, 1.025]
    assert receiver.naks[-1][1] == [(50, 99)]


# --- Beats ----------------------------------------------------------------------------------------


def test_beat_tells_that_the_last_messages_were_lost() -> None:
    receiver = Receiver()
    receiver.receive(1)
    receiver.beat(3, 1)
    receiver.run(0.01)
    assert receiver.naks == [(0.005, [(2, 3)])]
    receiver.receive(2, 3)
    assert receiver.delivered == [1, 2, 3]


def test_beat_that_tells_nothing_new_changes_nothing() -> None:
    receiver = Receiver()
    receiver.receive(1, 2)
    receiver.beat(2, 1)
    receiver.beat(1, 1)
    receiver.run(60)
    assert receiver.naks == receiver.gaps == []


def test_what_the_publisher_no_longer_has_is_given_up_at_once() -> None:
    receiver = Receiver()
    receiver.receive(1, 3, 6, 9)
    receiver.beat(9, 6)
    assert receiver.gaps == [(0.0, 2, 2), (0.0, 4, 5)]
    assert receiver.delivered == [1, 3, 6]
    receiver.receive(7, 8)
    assert receiver.delivered == [1, 3, 6, 7, 8, 9]


def test_gap_is_cut_where_the_history_begins() -> None:
    receiver = Receiver()
    receiver.receive(1)
    receiver.beat(20, 11)
    assert receiver.gaps == [(0.0, 2, 10)]
    receiver.run(0.01)
    assert receiver.naks == [(0.005, [(11, 20)])]


def test_beat_of_an_expired_history_ends_all_waiting() -> None:
    receiver = Receiver()
    receiver.receive(1, 3)
    receiver.beat(5, 6)
    assert receiver.gaps == [(0.0, 2, 2), (0.0, 4, 5)]
    assert receiver.delivered == [1, 3]
    receiver.receive(6)
    assert receiver.delivered == [1, 3, 6]
    assert receiver.streams.timer_at() == math.inf


def test_beat_of_an_unknown_stream_begins_it_behind_the_last() -> None:
    receiver = Receiver()
    receiver.beat(5, 1)
    receiver.receive(6)
    receiver.run(60)
    assert receiver.delivered == [6]
    assert receiver.naks == []


@pytest.mark.parametrize(("last", "first"), [(5, 7), (STREAM_JUMP + 5, 1), (2**53, 2**53 + 2)])
def test_beats_that_no_publisher_sends_are_ignored(last: int, first: int) -> None:
    receiver = Receiver()
    receiver.receive(1)
    receiver.beat(last, first)
    receiver.run(60)
    assert receiver.gaps == receiver.naks == []


# --- Other subscribers ----------------------------------------------------------------------------


def test_delay_is_drawn_among_the_subscribers() -> None:
    at = []
    for seed in range(200):
        receiver = Receiver(subscribers=1000, seed=seed)
        receiver.receive(1, 3)
        receiver.run(0.1)
        at.append(receiver.naks[0][0])
    assert GAP_WAIT_S < min(at) < max(at) <= GAP_WAIT_S + NAK_DELAY_MAX_S
    assert sum(at) / len(at) > 0.04  # most of them wait for long


def test_request_of_another_subscriber_is_as_good_as_an_own_one() -> None:
    receiver = Receiver()
    receiver.receive(1, 3)
    receiver.streams.hear_nak(KEY, [(2, 2)], NOW)
    receiver.run(0.059)
    assert receiver.naks == []
    receiver.run(0.002)
    assert receiver.naks == [(0.06, [(2, 2)])]


def test_request_for_more_spares_for_less_does_not() -> None:
    receiver = Receiver()
    receiver.receive(1, 4, 9)
    receiver.streams.hear_nak(KEY, [(2, 2), (5, 20)], NOW)
    receiver.run(0.006)
    assert receiver.naks == [(0.005, [(2, 3)])]


def test_requests_that_cross_each_other_count_once() -> None:
    receiver = Receiver()
    receiver.receive(1, 3)
    receiver.run(0.006)
    for _ in range(10):
        receiver.run(0.001)
        receiver.streams.hear_nak(KEY, [(2, 2)], receiver.now)
    receiver.run(60)
    assert len(receiver.naks) == 5


def test_whoever_is_always_spared_gives_up_as_well() -> None:
    receiver = Receiver()
    receiver.receive(1, 3)
    for wait_s in NAK_WAITS_S:
        receiver.streams.hear_nak(KEY, [(2, 2)], receiver.now)
        receiver.run(wait_s - 0.001)
    assert receiver.naks == receiver.gaps == []
    receiver.run(0.01)
    assert [gap[1:] for gap in receiver.gaps] == [(2, 2)]


def test_requests_for_what_is_not_missing_are_nothing() -> None:
    receiver = Receiver()
    receiver.streams.hear_nak(KEY, [(1, 5)], NOW)
    receiver.receive(1)
    receiver.streams.hear_nak(KEY, [(1, 5)], NOW)
    receiver.run(60)
    assert receiver.naks == []


# --- Slices ---------------------------------------------------------------------------------------


def test_message_whose_slices_keep_arriving_is_not_asked_for() -> None:
    receiver = Receiver()
    receiver.receive(1, 5)
    for _ in range(20):
        receiver.run(0.004)
        receiver.streams.touch(KEY, 3, receiver.now)
    assert {tuple(ranges) for _, ranges in receiver.naks} == {((2, 2), (4, 4))}
    receiver.run(SLICE_WAIT_S)
    assert receiver.naks[-1] == (0.1, [(3, 3)])


def test_slices_of_what_is_not_missing_are_nothing() -> None:
    receiver = Receiver()
    receiver.streams.touch(KEY, 3, NOW)
    receiver.receive(1)
    receiver.streams.touch(KEY, 2, NOW)
    receiver.receive(3)
    receiver.streams.touch(KEY, 3, NOW)
    receiver.run(0.006)
    assert receiver.naks == [(0.005, [(2, 2)])]
