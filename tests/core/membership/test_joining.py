"""joining, sure, doubting: the states alone; test_membership.py has them among nodes."""

from __future__ import annotations

import math

import pytest

from jsonbus.core.membership.joining import DOUBTING, JOINING, SURE, Joining

NOW = 1000.0
LEASE_S = 7.0


def start() -> Joining:
    joining = Joining(lambda: LEASE_S)
    joining.start(NOW)
    return joining


def run(joining: Joining, until: float, *, is_alone: bool = True) -> list[float]:
    """Let its timers end one by one; when it announced, in seconds since NOW."""
    announced = []
    while (at := joining.timer_at()) <= NOW + until:
        if joining.take_announcement(at):
            announced.append(round(at - NOW, 6))
        joining.take_verdict(at, is_alone)
    return announced


def test_nothing_happens_before_the_start() -> None:
    joining = Joining(lambda: LEASE_S)
    assert joining.state == JOINING
    assert not joining.is_settled
    assert joining.timer_at() == math.inf


def test_joiner_announces_at_once_and_repeats_until_it_gives_up() -> None:
    joining = start()
    joining.hear_settled(NOW)
    assert run(joining, 10.0) == [0.0, 0.25, 0.5, 1.0]


def test_agreement_ends_the_repeats_and_makes_sure() -> None:
    joining = start()
    joining.take_announcement(NOW)
    assert joining.agree()
    assert joining.state == SURE
    assert joining.is_settled
    assert joining.timer_at() == math.inf


def test_second_agreement_changes_nothing() -> None:
    joining = start()
    joining.take_announcement(NOW)
    joining.agree()
    assert not joining.agree()


def test_confirmation_ends_the_repeats_but_does_not_make_sure() -> None:
    joining = start()
    joining.take_announcement(NOW)
    joining.hear_settled(NOW)  # else it goes on: it waits for silence
    joining.confirm()
    assert run(joining, 1.0) == []
    assert joining.state == JOINING


def test_confirmation_before_the_first_announcement_confirms_nothing() -> None:
    joining = start()
    joining.confirm()
    assert run(joining, 0.0) == [0.0]


def test_sleep_while_joining_is_not_taken_for_silence() -> None:
    joining = start()
    run(joining, 0.5)
    woke_at = NOW + 60.0
    joining.distrust_silence(woke_at)
    assert joining.take_verdict(woke_at, is_alone=True)
    assert joining.state == DOUBTING  # its time to join is over, but everything is sent
    assert joining.take_announcement(woke_at)


def test_silence_before_the_network_changed_does_not_count() -> None:
    joining = start()
    run(joining, 0.5)
    joining.distrust_silence(NOW + 0.5)
    assert run(joining, 1.24) == [0.5, 0.75, 1.0]
    assert joining.state == JOINING
    run(joining, 1.25)
    assert joining.state == SURE


def test_doubt_of_a_node_that_slept_waits_for_silence_anew() -> None:
    joining = start()
    joining.hear_settled(NOW)
    run(joining, 1.5)
    assert joining.state == DOUBTING
    joining.distrust_silence(NOW + 60.0)
    assert not joining.take_verdict(NOW + 60.0, is_alone=True)
    assert joining.state == DOUBTING


def test_doubt_of_a_node_that_slept_lasts_a_lease_though_it_announces_again() -> None:
    joining = start()
    joining.hear_settled(NOW)
    run(joining, 1.5)
    woke_at = NOW + 5.0
    joining.distrust_silence(woke_at)
    joining.doubt(woke_at, "it slept", announces=True)
    run(joining, 5.0 + LEASE_S - 0.01, is_alone=False)
    assert joining.state == DOUBTING
    run(joining, 5.0 + LEASE_S, is_alone=False)
    assert joining.state == SURE


def test_half_a_second_of_silence_after_two_announcements_makes_sure() -> None:
    joining = start()
    run(joining, 0.74)
    assert joining.state == JOINING
    run(joining, 0.75)
    assert joining.state == SURE


def test_two_announcements_in_quick_succession_do_not_shorten_the_silence() -> None:
    # Both may be lost in the same moment.
    joining = start()
    joining.take_announcement(NOW)
    joining.announce_change(NOW + 0.01, NOW + 0.015)
    run(joining, 0.74)
    assert joining.state == JOINING
    run(joining, 0.75)
    assert joining.state == SURE


def test_silence_counts_from_the_second_announcement_that_was_really_made() -> None:
    # A process that was held up must not take its own absence for the others' silence.
    joining = start()
    joining.take_announcement(NOW)
    late = NOW + 0.8
    joining.take_announcement(late)
    joining.take_verdict(late, True)
    assert joining.state == JOINING
    run(joining, 1.29)
    assert joining.state == JOINING
    run(joining, 1.3)
    assert joining.state == SURE


def test_settled_node_heard_means_no_silence() -> None:
    joining = start()
    run(joining, 0.3)
    joining.hear_settled(NOW)
    run(joining, 1.4)
    assert joining.state == JOINING


def test_joiner_without_an_answer_doubts_after_a_second_and_a_half() -> None:
    joining = start()
    joining.hear_settled(NOW)
    run(joining, 1.49)
    assert joining.state == JOINING
    run(joining, 1.5)
    assert joining.state == DOUBTING
    assert joining.is_settled


def test_joiner_cannot_doubt_what_it_does_not_know_yet() -> None:
    joining = start()
    assert not joining.doubt(NOW, "something differs")
    assert joining.state == JOINING


def test_doubt_changes_the_state_once_and_agreement_ends_it() -> None:
    joining = start()
    joining.take_announcement(NOW)
    joining.agree()
    assert joining.doubt(NOW + 1, "first reason")
    assert not joining.doubt(NOW + 2, "second reason")
    assert joining.reason == "first reason"
    assert joining.agree()
    assert joining.state == SURE


def test_doubt_anew_announces_and_repeats() -> None:
    joining = start()
    joining.take_announcement(NOW)
    joining.agree()
    joining.doubt(NOW + 10, "the network changed", announces=True)
    assert run(joining, 20.0, is_alone=False) == [10.0, 10.25, 10.5, 11.0]
    assert joining.state == DOUBTING


def test_in_doubt_silence_counts_only_for_a_node_that_is_alone() -> None:
    for is_alone, state in ((True, SURE), (False, DOUBTING)):
        joining = start()
        joining.take_announcement(NOW)
        joining.agree()
        joining.doubt(NOW + 10, "the network changed", announces=True)
        run(joining, 20.0, is_alone=is_alone)
        assert joining.state == state


def test_doubt_in_a_large_group_waits_for_the_longer_lease_of_that_group() -> None:
    joining = Joining(lambda: 35.0)
    joining.start(NOW)
    joining.hear_settled(NOW)
    run(joining, 36.4)
    assert joining.state == DOUBTING
    run(joining, 36.5)
    assert joining.state == SURE


def test_confirmation_does_not_end_the_wait_for_silence() -> None:
    joining = start()
    joining.take_announcement(NOW)
    joining.agree()
    joining.doubt(NOW + 10, "all other nodes are gone", announces=True)
    assert run(joining, 10.0) == [10.0]
    joining.confirm()  # by a joiner that leaves again
    run(joining, 20.0, is_alone=True)
    assert joining.state == SURE


def test_changes_are_gathered_into_one_announcement() -> None:
    joining = start()
    joining.take_announcement(NOW)
    joining.agree()
    joining.announce_change(NOW + 3.000, NOW + 3.005)
    joining.announce_change(NOW + 3.004, NOW + 3.009)
    assert run(joining, 3.1) == [3.005]


def test_change_is_repeated_until_confirmed() -> None:
    joining = start()
    joining.take_announcement(NOW)
    joining.agree()
    joining.announce_change(NOW + 3.0, NOW + 3.005)
    assert run(joining, 3.3) == [3.005, 3.25]
    joining.confirm()
    assert run(joining, 10.0) == []


def test_change_while_joining_begins_the_repeats_anew_but_not_the_wait() -> None:
    joining = start()
    joining.hear_settled(NOW)
    run(joining, 1.2)
    joining.announce_change(NOW + 1.2, NOW + 1.205)
    assert run(joining, 5.0) == [1.205, 1.45, 1.7, 2.2]
    assert joining.state == DOUBTING


@pytest.mark.parametrize("state", ["new", "joining", "doubting"])
def test_settling_stops_every_timer(state: str) -> None:
    joining = Joining(lambda: LEASE_S) if state == "new" else start()
    if state == "doubting":
        joining.hear_settled(NOW)
        run(joining, 2.0)
    joining.settle("mode basic sends everything")
    assert joining.state == SURE
    assert joining.timer_at() == math.inf
