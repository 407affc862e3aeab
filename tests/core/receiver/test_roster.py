"""Repeats recognized, gaps counted, forgeries survived."""

from __future__ import annotations

import random

import pytest

from jsonbus.core import roster
from jsonbus.core.counters import Counters
from jsonbus.core.limits import COUNTER_JUMP, DUPLICATE_WINDOW
from jsonbus.core.roster import Peer, Roster
from jsonbus.core.wire.frames import Header
from tests.core.link import Link

ADDRESS = ("10.0.0.1", 2416)


def make_header(
    counter: int = 1, first_message: int = 1, *, node: str = "x", incarnation: int = 5
) -> Header:
    return Header(node, incarnation, counter, first_message, 0)


def meet(counter: int = 1, first_message: int = 1) -> Peer:
    """A peer whose first datagram was that one, heard."""
    peer = Peer(make_header(counter, first_message), ADDRESS)
    assert peer.admit(counter)
    return peer


# --- Repeats --------------------------------------------------------------------------------------


def test_every_datagram_is_admitted_once() -> None:
    peer = meet(1)
    assert [peer.admit(counter) for counter in (2, 3, 3, 2, 1, 4)] == [
        True,
        True,
        False,
        False,
        False,
        True,
    ]


def test_datagrams_out_of_order_are_admitted_once() -> None:
    peer = meet(1)
    counters = list(range(2, 1_000))
    random.Random(1).shuffle(counters)
    assert all(peer.admit(counter) for counter in counters)
    assert not any(peer.admit(counter) for counter in counters)


def test_window_reaches_back_1024_datagrams_and_not_further() -> None:
    peer = meet(1)
    assert DUPLICATE_WINDOW == 1024
    assert peer.admit(3_000)
    assert peer.admit(3_000 - 1_023)
    assert not peer.admit(3_000 - 1_023)
    assert not peer.admit(3_000 - 1_024)


def test_gap_wider_than_the_window_empties_it() -> None:
    peer = meet(1)
    for counter in range(2, 11):
        assert peer.admit(counter)
    assert peer.admit(2_010)
    assert all(peer.admit(counter) for counter in range(2_001, 2_010))
    assert not peer.admit(2_010)


def test_datagrams_from_before_the_first_one_heard_are_admitted_once() -> None:
    peer = meet(10)
    assert peer.admit(9)
    assert not peer.admit(9)


def test_forged_jump_ahead_does_not_mute_the_node() -> None:
    peer = meet(1)
    assert peer.admit(2**40)  # may be true, may be forged
    assert not peer.admit(2**40)
    assert [peer.admit(counter) for counter in (2, 3, 4)] == [True, True, True]


def test_forged_jump_ahead_does_not_make_repeats_look_new() -> None:
    peer = meet(1)
    assert peer.admit(2)
    assert peer.admit(2**40)
    assert not peer.admit(2)
    assert not peer.admit(1)


def test_jump_that_the_next_datagram_confirms_is_believed() -> None:
    peer = meet(1)
    assert peer.admit(2**40)
    assert peer.admit(2**40 + 1)
    assert peer.admit(2**40 + 2)
    assert not peer.admit(2**40 + 1)


def test_many_forged_jumps_do_not_mute_the_node() -> None:
    peer = meet(1)
    dice = random.Random(1)
    for counter in range(2, 200):
        peer.admit(dice.randrange(2 * COUNTER_JUMP, 2**53, 5_000))
        assert peer.admit(counter)


def test_forged_first_datagram_does_not_mute_the_node() -> None:
    peer = meet(2**40)
    admitted = [peer.admit(counter) for counter in range(100_000, 100_050)]
    assert admitted == [True] * 50
    assert not peer.admit(100_049)


# --- Gaps -----------------------------------------------------------------------------------------


def test_messages_in_order_are_not_missing() -> None:
    peer = meet(1, 1)
    assert [peer.count_messages(first, count) for first, count in ((1, 3), (4, 1), (5, 0))] == [
        0,
        0,
        0,
    ]
    assert (peer.received, peer.lost) == (4, 0)


def test_gap_is_counted_exactly() -> None:
    peer = meet(1, 1)
    peer.count_messages(1, 1)
    assert peer.count_messages(5, 2) == 3
    assert (peer.received, peer.lost) == (3, 3)


def test_late_messages_are_taken_off_the_count() -> None:
    peer = meet(1, 1)
    peer.count_messages(1, 1)
    peer.count_messages(5, 1)
    assert peer.count_messages(3, 2) == -2
    assert peer.lost == 1
    assert peer.count_messages(2, 1) == -1
    assert peer.lost == 0


def test_control_datagram_reveals_a_loss_at_the_end_of_a_burst() -> None:
    peer = meet(1, 1)
    peer.count_messages(1, 2)
    assert peer.count_messages(6, 0) == 3
    assert peer.count_messages(6, 0) == 0
    assert peer.count_messages(6, 1) == 0
    assert peer.lost == 3


def test_who_joins_late_has_lost_nothing_of_before() -> None:
    peer = meet(500, 900)
    assert peer.count_messages(900, 1) == 0
    assert peer.lost == 0


def test_messages_from_before_the_first_one_heard_do_not_hide_a_gap() -> None:
    peer = meet(10, 10)
    peer.count_messages(10, 1)
    peer.count_messages(14, 1)
    assert peer.count_messages(5, 3) == 0
    assert peer.lost == 3


@pytest.mark.parametrize("seed", range(5))
def test_loss_is_exact_in_any_order(seed: int) -> None:
    dice = random.Random(seed)
    peer = meet(1, 1)
    peer.count_messages(1, 1)
    batches = []
    number = 2
    for _ in range(200):
        count = dice.randint(1, 9)
        batches.append((number, count))
        number += count
    heard = [batch for batch in batches[:-1] if dice.random() < 0.8]
    dice.shuffle(heard)
    for first, count in [*heard, batches[-1]]:
        peer.count_messages(first, count)
    expected = number - 2 - sum(count for _, count in [*heard, batches[-1]])
    assert peer.lost == expected


# --- Roster ---------------------------------------------------------------------------------------


def make_roster() -> Roster:
    return Roster(Counters(), lambda event: None)


def test_known_peer_is_found_again() -> None:
    known = make_roster()
    peer = known.meet(make_header(), ADDRESS)
    assert peer is not None
    assert known.peers.get("x") is peer
    assert known.meet(make_header(2), ADDRESS) is peer
    assert (peer.name, peer.address, len(known.peers)) == ("x", ADDRESS, 1)


def test_new_incarnation_takes_over_once_it_is_heard_twice() -> None:
    known = make_roster()
    old = known.meet(make_header(50), ADDRESS)
    first = known.meet(make_header(1, incarnation=6), ADDRESS)
    assert first is not old and first is not None
    assert known.meet(make_header(2, incarnation=6), ADDRESS) is first
    assert known.peers.get("x") is first
    assert known.meet(make_header(51), ADDRESS) is None  # of the former one


def test_one_forged_incarnation_does_not_mute_a_node_that_goes_on_talking() -> None:
    known = make_roster()
    real = known.meet(make_header(50), ADDRESS)
    for forged in range(10):
        known.meet(make_header(forged, incarnation=2**53), ADDRESS)
        assert known.meet(make_header(51 + forged), ADDRESS) is real


def test_a_late_datagram_of_the_former_life_does_not_make_a_repeat_of_the_new_one_new() -> None:
    known = make_roster()
    known.meet(make_header(50), ADDRESS)
    restarted = known.meet(make_header(1, incarnation=6), ADDRESS)
    assert restarted is not None and restarted.admit(1)
    known.meet(make_header(51), ADDRESS)
    again = known.meet(make_header(1, incarnation=6), ADDRESS)
    assert again is restarted and not again.admit(1)


def test_challenger_is_forgotten_when_the_node_goes_on_talking_for_long() -> None:
    known = make_roster()
    real = known.meet(make_header(50), ADDRESS)
    assert real is not None
    known.meet(make_header(1, incarnation=2**53), ADDRESS)
    for counter in range(51, 52 + DUPLICATE_WINDOW):
        known.meet(make_header(counter), ADDRESS)
    assert real.challenger is None


def test_of_senders_that_are_not_in_the_list_those_met_last_are_remembered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(roster, "PEERS_UNLISTED_MAX", 10)
    known = make_roster()
    for number in range(30):
        known.meet(make_header(node=f"n{number}"), ADDRESS)
    assert list(known.peers) == [f"n{number}" for number in range(20, 30)]


def test_nodes_that_come_and_go_are_forgotten_one_after_the_other_and_those_that_stay_are_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(roster, "PEERS_UNLISTED_MAX", 3)
    link = Link()
    here, stays = link.add("here"), link.add("stays")
    link.run(1.0)
    peer = here._roster.peers[stays.settings.node]
    visitors = []
    for number in range(8):
        visitor = link.add(f"v{number}")
        visitors.append(visitor.settings.node)
        link.run(1.0)
        link.close(visitor)
        link.run(1.0)
        link.publish(stays, "a", number)
    assert here._roster.peers == {stays.settings.node: peer} | {
        node: here._roster.peers[node] for node in visitors[-3:]
    }


def test_forged_message_number_neither_counts_nor_hides_losses() -> None:
    peer = Peer(make_header(1), ADDRESS)
    assert peer.count_messages(1, 5) == 0
    assert peer.count_messages(2**52, 1) == 0  # forged
    assert peer.count_messages(8, 1) == 2  # 6 and 7 are missing
    assert peer.lost == 2


def test_message_numbers_that_really_jumped_are_followed() -> None:
    peer = Peer(make_header(1), ADDRESS)
    peer.count_messages(1, 5)
    assert peer.count_messages(10**6, 10) == 0
    assert peer.count_messages(10**6 + 10, 10) == 0
    assert peer.count_messages(10**6 + 25, 1) == 5
