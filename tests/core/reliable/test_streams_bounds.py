"""Streams: what bounds them, however many there are, and however they lie."""

from __future__ import annotations

import pytest

from jsonbus.core.limits import (
    STREAM_ASK_RANGES_MAX,
    STREAM_BACK_S,
    STREAM_BYTES_MAX,
    STREAM_GAPS_MAX,
    STREAM_IDLE_CHECKS,
    STREAM_IDLE_S,
    STREAM_JUMP,
)
from jsonbus.core.reliable import gaps, streams
from tests.core.reliable.stream_receiver import KEY, NOW, Receiver

# --- Bounds ---------------------------------------------------------------------------------------


def test_what_finds_no_room_is_asked_for_later() -> None:
    receiver = Receiver()
    receiver.receive(1)
    receiver.receive(3, 4, 5, size=STREAM_BYTES_MAX // 2)
    assert receiver.refused == 1
    assert receiver.streams.waiting.size_bytes == STREAM_BYTES_MAX
    receiver.receive(2)
    receiver.beat(5, 1)
    receiver.run(0.01)
    assert receiver.naks[-1][1] == [(5, 5)]
    receiver.receive(5)
    assert receiver.delivered == [1, 2, 3, 4, 5]


def test_one_message_waits_however_large() -> None:
    receiver = Receiver()
    receiver.receive(1)
    receiver.receive(3, size=2 * STREAM_BYTES_MAX)
    receiver.receive(2)
    assert receiver.delivered == [1, 2, 3]


def test_waiting_messages_of_all_streams_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gaps, "STREAMS_AHEAD_MAX", 10)
    receiver = Receiver()
    for number in range(20):
        receiver.receive(1, 3, key=("n", 7, f"t{number}"))
    assert receiver.streams.waiting.messages == 10
    assert receiver.refused == 10
    receiver.receive(2, key=("n", 7, "t0"))
    assert receiver.streams.waiting.messages == 9


def test_waiting_bytes_of_all_streams_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gaps, "STREAMS_BYTES_MAX", 1000)
    receiver = Receiver()
    for number in range(20):
        receiver.receive(1, 3, 4, key=("n", 7, f"t{number}"), size=90)
    assert receiver.streams.waiting.size_bytes == 990


def test_beats_add_no_gaps_beyond_the_bound() -> None:
    receiver = Receiver()
    receiver.receive(*range(1, 2 * STREAM_GAPS_MAX + 2, 2))
    for last in range(3000, 3100):
        receiver.beat(last, 1)
    receiver.run(0.01)
    assert sum(len(ranges) for _, ranges in receiver.naks) == STREAM_GAPS_MAX


def test_stream_asks_for_many_gaps_in_lots() -> None:
    receiver = Receiver(subscribers=5)
    receiver.receive(*range(1, 1002, 2))
    receiver.run(0.02)
    assert {at for at, _ in receiver.naks} == {receiver.naks[0][0]}
    assert sum(len(ranges) for _, ranges in receiver.naks) == STREAM_ASK_RANGES_MAX
    assert receiver.naks[0][1][0] == (2, 2)


def test_stream_that_makes_room_leaves_nothing_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "STREAMS_MAX", 1)
    receiver = Receiver()
    receiver.receive(1, 3)
    receiver.receive(1, key=("m", 7, "a"))
    assert receiver.delivered == [1, 3, 1]
    assert receiver.gaps == [(0.0, 2, 2)]
    assert receiver.streams.waiting.messages == 0
    receiver.run(60)
    assert receiver.naks == []


def test_gaps_of_a_stream_are_bounded() -> None:
    receiver = Receiver()
    receiver.receive(*range(1, 4 * STREAM_GAPS_MAX, 2))
    assert receiver.streams.waiting.messages == STREAM_GAPS_MAX
    receiver.run(0.01)
    asked = {each for _, ranges in receiver.naks for each in ranges}
    assert len(asked) == STREAM_GAPS_MAX
    assert all(len(ranges) <= 60 for _, ranges in receiver.naks)
    for sequence in range(2, 4 * STREAM_GAPS_MAX):
        receiver.receive(sequence)
    assert receiver.delivered == list(range(1, 4 * STREAM_GAPS_MAX))


def test_streams_are_bounded_and_those_in_use_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "STREAMS_MAX", 10)
    receiver = Receiver()
    receiver.receive(1)
    for number in range(100):
        receiver.now += 0.001
        receiver.receive(number + 2)
        receiver.receive(1, key=(f"forged{number}", 1, "a"))
        assert len(receiver.streams.by_key) <= 10
    assert KEY in receiver.streams.by_key
    assert receiver.refused == 0


def expire_for(receiver: Receiver, checks: int) -> None:
    for _ in range(checks):
        receiver.now += STREAM_IDLE_S
        receiver.streams.expire(receiver.now)


def test_idle_streams_are_dropped_after_many_checks() -> None:
    receiver = Receiver()
    receiver.receive(1)
    receiver.receive(1, key=("m", 1, "b"))
    expire_for(receiver, STREAM_IDLE_CHECKS - 1)
    receiver.now += 1
    receiver.receive(2)
    expire_for(receiver, 1)
    assert list(receiver.streams.by_key) == [KEY]
    expire_for(receiver, STREAM_IDLE_CHECKS)
    assert receiver.streams.by_key == receiver.streams._by_node == {}


def test_a_stream_is_kept_over_a_long_stop_and_while_its_publisher_is_here() -> None:
    receiver = Receiver()
    receiver.receive(1)
    receiver.now += 1000 * STREAM_IDLE_S
    receiver.streams.expire(receiver.now)
    assert KEY in receiver.streams.by_key
    receiver.streams._is_here = lambda node, incarnation: (node, incarnation) == KEY[:2]
    expire_for(receiver, 2 * STREAM_IDLE_CHECKS)
    assert KEY in receiver.streams.by_key


def test_gone_node_leaves_no_request_and_nothing_waiting() -> None:
    receiver = Receiver()
    receiver.receive(1, 3)
    receiver.receive(1, 3, key=("m", 7, "a"))
    receiver.streams.forget("n")
    receiver.streams.forget("stranger")
    receiver.collect()
    assert receiver.delivered == [1, 1, 3]
    assert receiver.gaps == [(0.0, 2, 2)]
    receiver.receive(2, 3)  # it was unreachable only, and repairs for others
    assert receiver.delivered == [1, 1, 3]


# --- Jumps ----------------------------------------------------------------------------------------


def test_forged_sequence_far_ahead_changes_nothing() -> None:
    receiver = Receiver()
    receiver.receive(1, 2**52, 2, 3)
    receiver.run(60)
    assert receiver.delivered == [1, 2, 3]
    assert receiver.gaps == receiver.naks == []


def test_confirmed_jump_is_one_gap() -> None:
    receiver = Receiver()
    receiver.receive(1, 100_000, 100_001)
    assert receiver.gaps == [(0.0, 2, 99_999)]
    receiver.run(0.006)
    assert receiver.naks == [(0.005, [(100_000, 100_000)])]
    receiver.receive(100_000)
    assert receiver.delivered == [1, 100_000, 100_001]


def test_jump_with_gaps_open_delivers_what_waits() -> None:
    receiver = Receiver()
    receiver.receive(1, 3, 100_000, 100_001)
    assert receiver.gaps == [(0.0, 2, 2), (0.0, 4, 99_999)]
    assert receiver.delivered == [1, 3]


def test_jump_behind_a_gap_makes_one_gap_of_both() -> None:
    receiver = Receiver()
    receiver.receive(1)
    receiver.beat(5, 1)
    receiver.receive(100_000, 100_001)
    assert receiver.gaps == [(0.0, 2, 99_999)]


def test_jump_told_by_beats_asks_for_what_can_be_had() -> None:
    receiver = Receiver()
    receiver.receive(1)
    receiver.beat(100_000, 99_990)
    assert receiver.gaps == []
    receiver.beat(100_000, 99_990)
    assert receiver.gaps == [(0.0, 2, 99_989)]
    receiver.run(0.006)
    assert receiver.naks == [(0.005, [(99_990, 100_000)])]


def test_longest_gap_that_a_history_can_fill_is_asked_for() -> None:
    receiver = Receiver()
    receiver.receive(1, STREAM_JUMP + 1)
    receiver.run(0.006)
    assert receiver.naks == [(0.005, [(2, STREAM_JUMP)])]


def test_stream_that_a_forged_message_began_goes_back() -> None:
    receiver = Receiver()
    receiver.receive(2**52)
    for sequence in range(1, 10):
        receiver.now += 0.5
        receiver.receive(sequence)
    assert receiver.now - NOW > STREAM_BACK_S
    assert receiver.delivered[1:] == []
    receiver.run(0.006)
    assert receiver.naks[0][1] == [(4, 4)]
    receiver.receive(4)
    assert receiver.delivered[1:] == [4, 5, 6, 7, 8, 9]


def test_echoes_from_long_ago_do_not_take_a_stream_back() -> None:
    receiver = Receiver()
    receiver.receive(100_000)
    receiver.receive(1, 2, 3, 4)
    assert receiver.delivered == [100_000]
