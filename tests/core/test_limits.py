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
