"""What a publisher keeps, sends again, and says about it; and when it has to wait."""

from __future__ import annotations

import math

import pytest

from jsonbus.core.limits import (
    BEATS_PER_CALL,
    HISTORY_AGE_S,
    HISTORY_BYTES_MAX,
    HISTORY_KEEP_MAX_S,
    HISTORY_KEEP_MIN_S,
    HISTORY_MESSAGES_MAX,
    HISTORY_TOPIC_BYTES_MAX,
    HISTORY_TOPIC_MESSAGES_MAX,
    RECORD_OVERHEAD_BYTES,
    REPAIR_BURST_BYTES,
    REPAIR_BYTES_PER_S,
    REPAIRS_PER_NAK,
)
from jsonbus.core.reliable import history as history_module
from jsonbus.core.reliable.history import History, HistoryRecord

NOW = 1000.0
MIB = 1 << 20


def approx(instant: float) -> object:
    return pytest.approx(instant, abs=1e-6, rel=0)


def publish(history: History, topic: str, text: bytes = b"1", now: float = NOW) -> int:
    return publish_together(history, topic, [text], now)


def publish_together(history: History, topic: str, texts: list[bytes], now: float = NOW) -> int:
    """Messages that leave in one datagram; the sequence of the first."""
    history.begin(topic)
    return history.keep(topic, tuple(texts), 901 + history.topics[topic].last, now)


def publish_many(history: History, topic: str, count: int, now: float = NOW) -> None:
    for _ in range(count):
        publish(history, topic, now=now)


def sequences(records: list[HistoryRecord]) -> list[int]:
    return [record.sequence for record in records]


def beats_until(history: History, end: float) -> list[tuple[float, str, int, int]]:
    beats = []
    while (at := history.timer_at()) <= end:
        beats.extend((round(at - NOW, 6), *beat) for beat in history.beats(at))
    return beats


# --- Sequences ------------------------------------------------------------------------------------


def test_sequences_count_from_1_per_topic() -> None:
    history = History()
    assert [publish(history, "a"), publish(history, "a"), publish(history, "b")] == [1, 2, 1]


def test_messages_kept_together_have_sequences_that_follow_each_other() -> None:
    history = History()
    together = [publish_together(history, "a", [b"1", b"2", b"3"]) for _ in range(2)]
    assert (together, publish(history, "a"), len(history)) == ([1, 4], 7, 7)


def test_sequence_goes_on_when_the_history_has_expired() -> None:
    history = History()
    publish(history, "a")
    history.beats(NOW + HISTORY_AGE_S)
    assert len(history) == 0
    assert publish(history, "a") == 2


def test_topics_are_bounded_and_a_forgotten_one_never_goes_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(history_module, "HISTORY_TOPICS_MAX", 10)
    history = History()
    publish_many(history, "long", 5)
    history.beats(NOW + 2 * HISTORY_AGE_S)
    for number in range(100):
        at = NOW + 20 * (number + 2)
        publish(history, f"t{number}", now=at)
        assert len(history.topics) <= 10
    assert publish(history, "long") > 5
    assert len(history._beats._at) <= 10


# --- Bounds ---------------------------------------------------------------------------------------


def test_messages_of_a_topic_are_bounded() -> None:
    history = History()
    publish_many(history, "a", HISTORY_TOPIC_MESSAGES_MAX + 3)
    publish(history, "b")
    assert len(history) == HISTORY_TOPIC_MESSAGES_MAX + 1
    assert sequences(history.take_nak("a", [(1, 5)], NOW)) == [4, 5]


def test_messages_in_all_are_bounded_and_the_oldest_go_first() -> None:
    history = History()
    per_topic = HISTORY_TOPIC_MESSAGES_MAX - 10
    for topic in "abc":
        publish_many(history, topic, per_topic)
    assert len(history) == HISTORY_MESSAGES_MAX
    assert history.take_nak("a", [(1, 1)], NOW) == []
    assert sequences(history.take_nak("c", [(1, 1)], NOW)) == [1]


def test_bytes_of_a_topic_are_bounded() -> None:
    history = History()
    for _ in range(20):
        publish(history, "a", bytes(MIB))
    assert len(history) == 15
    assert history.size_bytes == 15 * (MIB + RECORD_OVERHEAD_BYTES) <= HISTORY_TOPIC_BYTES_MAX


def test_bytes_in_all_are_bounded() -> None:
    history = History()
    for topic in "abcd":
        for _ in range(10):
            publish(history, topic, bytes(MIB))
    assert len(history) == 31
    assert history.size_bytes <= HISTORY_BYTES_MAX


@pytest.mark.parametrize("size", [HISTORY_TOPIC_BYTES_MAX, 2 * HISTORY_BYTES_MAX])
def test_one_message_is_kept_however_large(size: int) -> None:
    history = History()
    publish(history, "a")
    publish(history, "a", bytes(size))
    assert sequences(history.take_nak("a", [(1, 2)], NOW)) == [2]


def test_as_many_of_those_kept_together_are_pushed_out_as_must_be() -> None:
    history = History()
    publish_together(history, "a", [b"1"] * 100)
    for _ in range(HISTORY_TOPIC_MESSAGES_MAX // 50):
        publish_together(history, "a", [b"1"] * 50)
        assert len(history) <= HISTORY_TOPIC_MESSAGES_MAX
    publish(history, "a")
    assert len(history) == HISTORY_TOPIC_MESSAGES_MAX
    first = history.topics["a"].first
    (record,) = history.take_nak("a", [(first - 1, first)], NOW)
    assert (record.sequence, record.number, record.text) == (first, 900 + first, b"1")
    assert history.size_bytes == len(history) * (1 + RECORD_OVERHEAD_BYTES)


def test_messages_kept_together_are_asked_for_and_sent_again_one_by_one() -> None:
    history = History()
    publish_together(history, "a", [b"%d" % number for number in range(10)])
    records = history.take_nak("a", [(2, 3), (9, 9)], NOW)
    assert [(each.sequence, each.number, each.text) for each in records] == [
        (2, 902, b"1"),
        (3, 903, b"2"),
        (9, 909, b"8"),
    ]
    assert sequences(history.take_nak("a", [(1, 10)], NOW + 0.01)) == [1, 4, 5, 6, 7, 8, 10]


def test_messages_expire_by_age() -> None:
    history = History()
    publish(history, "a")
    publish(history, "a", now=NOW + 5)
    publish(history, "b", now=NOW + HISTORY_AGE_S)
    assert len(history) == 2
    assert sequences(history.take_nak("a", [(1, 2)], NOW + HISTORY_AGE_S)) == [2]


def test_nothing_is_left_of_what_has_expired() -> None:
    history = History()
    publish_many(history, "a", 100)
    beats_until(history, NOW + 60)
    assert (len(history), history.size_bytes) == (0, 0)
    beats_until(history, NOW + 7200)
    assert history.timer_at() == math.inf


# --- Repairs --------------------------------------------------------------------------------------


def test_what_was_asked_for_is_sent_again() -> None:
    history = History()
    publish_many(history, "a", 9)
    records = history.take_nak("a", [(2, 3), (7, 7)], NOW)
    assert sequences(records) == [2, 3, 7]
    assert (records[0].topic, records[0].number, records[0].text) == ("a", 902, b"1")
    assert history.repaired == 3


def test_repeated_requests_are_ignored_for_50_ms() -> None:
    history = History()
    publish_many(history, "a", 9)
    history.take_nak("a", [(2, 3)], NOW)
    assert sequences(history.take_nak("a", [(2, 4)], NOW + 0.049)) == [4]
    assert sequences(history.take_nak("a", [(2, 4)], NOW + 0.051)) == [2, 3]


def test_requests_for_unknown_topics_and_for_the_future_are_nothing() -> None:
    history = History()
    publish_many(history, "a", 3)
    assert history.take_nak("b", [(1, 3)], NOW) == []
    assert history.take_nak("a", [(4, 2**53), (9, 2)], NOW) == []
    assert (history.unavailable, history.pace.keep_s(NOW)) == (0, HISTORY_KEEP_MIN_S)


def test_request_for_what_is_gone_is_answered_by_a_beat_at_once() -> None:
    history = History()
    publish(history, "a", bytes(HISTORY_TOPIC_BYTES_MAX))
    publish(history, "a", bytes(HISTORY_TOPIC_BYTES_MAX))
    assert sequences(history.take_nak("a", [(1, 2)], NOW + 0.01)) == [2]
    assert history.timer_at() == NOW + 0.01
    assert history.beats(NOW + 0.01) == [("a", 2, 2)]
    assert history.unavailable == 1


def test_request_for_an_expired_topic_is_answered_by_a_beat() -> None:
    history = History()
    publish(history, "a")
    beats_until(history, NOW + 30)
    history.take_nak("a", [(1, 1)], NOW + 30)
    assert history.beats(NOW + 30) == [("a", 1, 2)]
    assert history.timer_at() > NOW + 30


def test_many_requests_for_what_is_gone_make_one_beat_in_50_ms() -> None:
    history = History()
    publish(history, "a")
    beats_until(history, NOW + 30)
    answered = []
    for number in range(100):
        now = NOW + 30 + number / 1000
        history.take_nak("a", [(1, 1)], now)
        answered += history.beats(now)
    assert len(answered) == 2


def take_repairs(history: History, end: float) -> list[tuple[float, int]]:
    """What is sent again until then, and when."""
    repairs = []
    while (at := history.timer_at()) <= end:
        repairs += [(at, record.sequence) for record in history.repairs(at)]
        history.beats(at)
    return repairs


def test_one_request_is_answered_within_bounds() -> None:
    history = History()
    publish_many(history, "a", 5000)
    forged = [(0, 2**53)] * 1000
    repaired = history.take_nak("a", forged, NOW)
    assert history.take_nak("a", forged, NOW) == []
    repaired_later = take_repairs(history, NOW + 0.04)
    assert len(repaired) + len(repaired_later) == REPAIRS_PER_NAK
    assert len(history._asked) == 0


def test_repairs_keep_a_pace_and_their_order() -> None:
    history = History()
    publish_many(history, "a", 1000)
    size = 1 + RECORD_OVERHEAD_BYTES
    at_once = sequences(history.take_nak("a", [(1, 1000)], NOW))
    assert len(at_once) == REPAIR_BURST_BYTES // size + 1
    later = take_repairs(history, NOW + 1)
    assert at_once + [sequence for _, sequence in later] == list(range(1, 1001))
    for at, sequence in later:
        assert sequence * size <= REPAIR_BURST_BYTES + (at - NOW) * REPAIR_BYTES_PER_S + size
    assert later[-1][0] < NOW + 0.02
    assert len({at for at, _ in later}) <= 20
    assert history.repaired == 1000


def test_what_waits_to_be_sent_again_is_not_asked_for_twice() -> None:
    history = History()
    publish_many(history, "a", 1000)
    sent = len(history.take_nak("a", [(1, 1000)], NOW))
    for _ in range(10):
        sent += len(history.take_nak("a", [(1, 1000)], NOW))
    sent += len(take_repairs(history, NOW + 0.04))
    assert sent == 1000


def test_what_has_to_wait_for_long_is_sent_again_once() -> None:
    history = History()
    publish(history, "a")
    publish(history, "b", bytes(16 * MIB))
    history.take_nak("b", [(1, 1)], NOW)
    for number in range(1, 5):
        assert history.take_nak("a", [(1, 1)], NOW + number / 10) == []
    assert len(take_repairs(history, NOW + 10)) == 1


def test_repairs_are_slower_while_messages_are_held_for_longer() -> None:
    history = History()
    publish_many(history, "a", 1000)
    history.take_nak("a", [(1, 1000)], NOW + 3)
    history.beats(NOW + 3)
    last_at = take_repairs(history, NOW + 4)[-1][0]
    rate = HISTORY_TOPIC_BYTES_MAX / HISTORY_KEEP_MAX_S
    seconds = (1000 * (1 + RECORD_OVERHEAD_BYTES) - REPAIR_BURST_BYTES) / rate
    assert seconds - 0.002 < last_at - NOW - 3 < seconds + 0.002


def test_what_was_pushed_out_in_the_meantime_is_not_sent_again() -> None:
    history = History()
    publish_many(history, "a", 1000)
    sent = sequences(history.take_nak("a", [(1, 1000)], NOW))
    publish(history, "a", bytes(HISTORY_TOPIC_BYTES_MAX))
    assert take_repairs(history, NOW + 1) == []
    assert history.repaired == len(sent)


def test_the_largest_message_is_sent_again_and_paid_for_afterwards() -> None:
    history = History()
    publish(history, "a")
    publish(history, "b", bytes(16 * MIB))
    assert sequences(history.take_nak("b", [(1, 1)], NOW)) == [1]
    assert history.take_nak("a", [(1, 1)], NOW + 0.1) == []
    [(at, sequence)] = take_repairs(history, NOW + 10)
    assert sequence == 1
    assert NOW + 0.5 < at < NOW + 1


# --- Beats ----------------------------------------------------------------------------------------


def test_beats_follow_the_last_message_at_growing_intervals_for_an_hour() -> None:
    history = History()
    publish_many(history, "a", 7)
    beats = beats_until(history, NOW + 7200)
    kept = [0.05, 0.15, 0.35, 0.75, 1.55, 3.15, 5.15, 7.15, 9.15]
    late = [11.15 + 4 * (2**number - 1) for number in range(11)]
    assert [at for at, *_ in beats] == kept + late
    assert all(beat[1:] == ("a", 7, 1) for beat in beats[: len(kept)])
    assert all(beat[1:] == ("a", 7, 8) for beat in beats[len(kept) :])  # all of it is gone
    assert 3600 < late[-1] < 7200


def test_every_message_puts_the_beat_off() -> None:
    history = History()
    for number in range(100):
        publish(history, "a", now=NOW + number / 100)
    assert history.timer_at() == approx(NOW + 0.99 + 0.05)


def test_message_brings_a_distant_beat_forward() -> None:
    history = History()
    publish(history, "a")
    beats_until(history, NOW + 6)
    publish(history, "a", now=NOW + 6)
    assert history.timer_at() == approx(NOW + 6.05)


def test_request_makes_a_distant_beat_come_soon() -> None:
    history = History()
    publish(history, "a")
    beats_until(history, NOW + 6)
    history.take_nak("a", [(1, 1)], NOW + 6)
    assert history.timer_at() == approx(NOW + 6.05)


def test_requests_do_not_put_a_beat_off() -> None:
    history = History()
    publish_many(history, "a", 9)
    for number in range(1, 9):
        history.take_nak("a", [(number, number)], NOW + number * 0.006)
    assert history.timer_at() == approx(NOW + 0.05)


def test_beats_of_many_topics_come_in_bounded_lots() -> None:
    history = History()
    for number in range(3 * BEATS_PER_CALL):
        publish(history, f"t{number}")
    at = history.timer_at()
    lots = [history.beats(at) for _ in range(4)]
    assert [len(lot) for lot in lots] == [BEATS_PER_CALL] * 3 + [0]
    assert len({beat[0] for lot in lots for beat in lot}) == 3 * BEATS_PER_CALL


# --- Waiting --------------------------------------------------------------------------------------


def fill(history: History, now: float = NOW) -> None:
    publish_many(history, "a", HISTORY_TOPIC_MESSAGES_MAX, now)


def test_there_is_room_until_the_history_is_full() -> None:
    history = History()
    publish_many(history, "a", HISTORY_TOPIC_MESSAGES_MAX - 1)
    assert history.room_at("a", 1, NOW) == NOW
    publish(history, "a")
    assert history.room_at("a", 1, NOW) > NOW
    assert history.room_at("a", 1, NOW) == approx(NOW + HISTORY_KEEP_MIN_S)
    assert history.room_at("a", 1, NOW + HISTORY_KEEP_MIN_S) == NOW + HISTORY_KEEP_MIN_S
    assert history.room_at("b", 1, NOW) == NOW


def test_room_in_all_counts_too() -> None:
    history = History()
    fill(history)
    publish_many(history, "b", HISTORY_TOPIC_MESSAGES_MAX, NOW + 0.05)
    assert history.room_at("c", 1, NOW + 0.05) == approx(NOW + HISTORY_KEEP_MIN_S)


def test_room_for_a_large_message_waits_for_all_that_must_go() -> None:
    history = History()
    for number in range(15):
        publish(history, "a", bytes(MIB), NOW + number / 1000)
    now = NOW + 0.014
    assert history.room_at("a", 100, now) == now
    assert history.room_at("a", 3 * MIB, now) == approx(NOW + 0.002 + HISTORY_KEEP_MIN_S)
    assert history.room_at("a", 16 * MIB, now) == approx(NOW + 0.014 + HISTORY_KEEP_MIN_S)


def test_there_is_no_room_for_more_than_the_history_holds() -> None:
    history = History()
    publish(history, "a")
    now = NOW + 1  # nothing that is kept is needed any more
    assert history.room_at("a", 1, now, HISTORY_TOPIC_MESSAGES_MAX) == now
    assert history.room_at("a", 1, now, HISTORY_TOPIC_MESSAGES_MAX + 1) > now


def test_whoever_waits_for_room_pushes_nothing_out_too_early() -> None:
    history = History()
    now = NOW
    for _ in range(3 * HISTORY_TOPIC_MESSAGES_MAX):
        now = history.room_at("a", 1, now)
        publish(history, "a", now=now)
    assert history.pushed_out == 0
    assert now == approx(NOW + 2 * HISTORY_KEEP_MIN_S)


def test_whoever_does_not_wait_is_counted() -> None:
    history = History()
    fill(history)
    publish_many(history, "a", 5)
    assert history.pushed_out == 5


def test_messages_are_held_for_longer_while_requests_keep_coming() -> None:
    history = History()
    publish_many(history, "a", 100)
    holds = []
    for number in range(8):
        now = NOW + 0.06 * (number + 1)
        publish_many(history, "a", 100, now)
        history.take_nak("a", [(100 * number + 101, 100 * number + 101)], now)
        holds.append(round(history.pace.keep_s(now), 3))
    assert holds == [0.2, 0.4, 0.8, 1.6, 2.0, 2.0, 2.0, 2.0]


def test_requests_of_one_burst_count_as_one() -> None:
    history = History()
    publish_many(history, "a", 100)
    for sequence in range(1, 50):
        history.take_nak("a", [(sequence, sequence)], NOW + 0.01)
    assert history.pace.keep_s(NOW + 0.01) == 2 * HISTORY_KEEP_MIN_S


def test_messages_are_held_for_twice_the_age_at_which_they_are_asked_for() -> None:
    history = History()
    publish(history, "a")
    history.take_nak("a", [(1, 1)], NOW + 0.4)
    assert history.pace.keep_s(NOW + 0.4) == approx(0.8)


def test_hold_time_falls_back_without_requests() -> None:
    history = History()
    publish(history, "a")
    history.take_nak("a", [(1, 1)], NOW + 5)
    holds = [history.pace.keep_s(NOW + 5 + second) for second in (0, 0.9, 1, 2, 3, 4, 5, 5000)]
    assert holds == [HISTORY_KEEP_MAX_S, 2.0, 1.0, 0.5, 0.25, 0.125, 0.1, HISTORY_KEEP_MIN_S]


def test_what_was_asked_for_is_held_anew_but_not_for_ever() -> None:
    history = History()
    fill(history)
    history.take_nak("a", [(1, 1)], NOW + 0.09)
    assert history.room_at("a", 1, NOW + 0.11) == approx(NOW + 0.09 + 0.2)
    for number in range(200):
        history.take_nak("a", [(1, 1)], NOW + number / 20)
    assert history.room_at("a", 1, NOW + 9.9) <= NOW + HISTORY_AGE_S


def test_publishing_is_spread_while_messages_are_held_for_longer() -> None:
    history = History()
    publish(history, "a")
    history.take_nak("a", [(1, 1)], NOW + 3)
    now = NOW + 3
    instants = []
    for _ in range(1000):
        now = history.room_at("a", 1, now)
        publish(history, "a", now=now)
        instants.append(now)
    assert instants[50] == NOW + 3  # a burst, and then in step
    per_message_s = HISTORY_KEEP_MAX_S / HISTORY_TOPIC_MESSAGES_MAX
    assert instants[-1] - instants[-101] == approx(100 * per_message_s)


def test_publishing_is_not_slowed_without_requests() -> None:
    history = History()
    for _ in range(1000):
        assert history.room_at("a", 1, NOW) == NOW
        publish(history, "a")


# --- At ease --------------------------------------------------------------------------------------


def test_publisher_is_at_ease_until_the_history_is_full_of_what_is_needed() -> None:
    history = History()
    assert not history.is_at_ease("a", NOW)  # nothing was sent yet
    while not history.topics or history.is_at_ease("a", NOW):
        assert history.room_at("a", 100 * 100, NOW, 100) == NOW
        publish_together(history, "a", [bytes(100)] * 100)
    assert history.pushed_out == 0
    assert len(history) > HISTORY_TOPIC_MESSAGES_MAX * 0.8
    publish(history, "a", now=NOW + HISTORY_KEEP_MIN_S + 0.02)
    assert history.is_at_ease("a", NOW + HISTORY_KEEP_MIN_S + 0.02)


def test_publisher_at_ease_pushes_nothing_out_too_early() -> None:
    history = History()
    now, at_ease = NOW, 0
    for number in range(3_000):
        topic = "ab"[number % 2]
        now += 0.0001
        if history.is_at_ease(topic, now):
            at_ease += 1
        else:
            now = history.room_at(topic, 60 * 50, now, 60)
        publish_together(history, topic, [bytes(50)] * 60, now)
    assert history.pushed_out == 0
    assert 100 < at_ease < 3_000


def test_publisher_is_not_at_ease_while_requests_come() -> None:
    history = History()
    publish(history, "a")
    assert history.is_at_ease("a", NOW)
    history.take_nak("a", [(1, 1)], NOW + 0.01)
    assert not history.is_at_ease("a", NOW + 0.01)
    assert history.pace.keep_s(NOW + 10) == HISTORY_KEEP_MIN_S
    assert history.is_at_ease("a", NOW + 10)
