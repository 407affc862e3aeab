"""What the bounds promise each other."""

from __future__ import annotations

from jsonbus.core import limits


def test_joiner_gives_up_only_after_silence_and_all_repeats() -> None:
    assert limits.ANNOUNCE_REPEATS_S == (0.25, 0.5, 1.0)
    assert limits.ANNOUNCE_REPEATS_S[0] + limits.SILENCE_S < limits.JOIN_S_MAX
    assert max(limits.ANNOUNCE_REPEATS_S) < limits.JOIN_S_MAX


def test_every_answer_comes_before_the_next_announcement() -> None:
    assert limits.SHARE_DELAY_MAX_S < limits.ANNOUNCE_REPEATS_S[0]


def test_suspected_node_has_time_for_several_answers() -> None:
    assert limits.SUSPECT_GRACE_S > limits.SHARE_DELAY_MAX_S + 2 * limits.DIFFERENCE_GRACE_S


def test_times_are_those_of_the_design() -> None:
    assert limits.SHARE_DELAY_MAX_S == 0.2
    assert (limits.HEARTBEAT_MIN_S, limits.HEARTBEATS_PER_S) == (2.0, 200.0)
    assert limits.LEASE_HEARTBEATS == 3.5
    assert (limits.TRICKLE_MIN_S, limits.TRICKLE_MAX_S) == (0.5, 30.0)
    assert (limits.HOLD_MESSAGES_MAX, limits.HOLD_BYTES_MAX) == (1000, 1 << 20)
    assert limits.PLAIN_LEASE_S >= 600.0
    assert limits.DUPLICATE_WINDOW == 1024


def test_repeated_request_never_comes_while_repeats_are_ignored() -> None:
    assert limits.REPAIR_IGNORE_S < limits.NAK_WAITS_S[0]


def test_message_is_held_until_it_can_have_been_asked_for() -> None:
    assert limits.GAP_WAIT_S + limits.NAK_DELAY_MAX_S < limits.HISTORY_KEEP_MIN_S
    all_tries_s = limits.GAP_WAIT_S + sum(limits.NAK_WAITS_S) + 5 * limits.NAK_DELAY_MAX_S
    assert len(limits.NAK_WAITS_S) == 5
    assert all_tries_s < limits.HISTORY_KEEP_MAX_S < limits.HISTORY_AGE_S


def test_history_has_room_for_the_largest_value_and_streams_for_a_history() -> None:
    assert limits.VALUE_BYTES_MAX <= limits.HISTORY_TOPIC_BYTES_MAX < limits.HISTORY_BYTES_MAX
    assert limits.HISTORY_TOPIC_BYTES_MAX < limits.STREAM_BYTES_MAX < limits.STREAMS_BYTES_MAX
    assert limits.STREAM_JUMP >= limits.HISTORY_TOPIC_MESSAGES_MAX
    assert limits.HISTORY_TOPICS_MAX >= 2 * limits.HISTORY_MESSAGES_MAX


def test_stream_is_remembered_for_longer_than_anything_can_be_repaired() -> None:
    assert limits.STREAM_IDLE_S > 2 * limits.HISTORY_AGE_S
    assert limits.STREAM_BACK_S > limits.BEAT_MAX_S
