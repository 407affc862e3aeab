"""What is let in, and what an attacker on the same wire cannot get in."""

from __future__ import annotations

import itertools
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jsonbus.sealed.datagrams import SALT_END, SEAL_BYTES
from jsonbus.sealed.keys import parse_ring
from jsonbus.sealed.opener import KEPT_S, SENDERS_MAX, WINDOW
from jsonbus.sealed.strangers import BURST, RATE
from tests.sealed.material import OTHER_SECRET, key, ring
from tests.sealed.nodes import ELSEWHERE, RING, Node, at, counts


def test_what_is_sealed_arrives_as_it_was() -> None:
    a, b = Node(), Node()
    for _ in range(3):
        assert b.open(a.seal()) == a.text()
    assert b.opener.figures == counts()


def test_any_changed_bit_is_refused_and_changes_nothing() -> None:
    a, b = Node(), Node()
    assert b.open(a.seal())
    data = a.seal()
    for place, bit in itertools.product(range(len(data)), range(8)):
        changed = bytearray(data)
        changed[place] ^= 1 << bit
        assert b.open(bytes(changed)) is None, (place, bit)
    assert b.opener.senders == 1
    assert sum(b.opener.figures.values()) == 8 * len(data)
    assert b.open(data) == a.text()


def test_any_changed_bit_of_a_strangers_datagram_is_refused_and_remembers_nobody() -> None:
    a, b = Node(), Node()
    text, data = a.text(), a.seal()
    for place, bit in itertools.product(range(len(data)), range(8)):
        changed = bytearray(data)
        changed[place] ^= 1 << bit
        assert b.open(bytes(changed)) is None, (place, bit)
        at(b.now + 1 / RATE, b)
    assert b.opener.senders == 0
    assert b.opener.figures["datagrams_unproven"] == 0
    assert b.open(data) == text


@pytest.mark.parametrize("is_known", [True, False])
def test_a_datagram_that_was_cut_is_refused_at_every_length(is_known: bool) -> None:
    a, b = Node(), Node()
    if is_known:
        b.open(a.seal())
    data = a.seal()
    for length in range(len(data)):
        assert b.open(data[:length]) is None, length
    assert b.open(data + b"\0") is None
    assert sum(b.opener.figures.values()) == len(data) + 1
    assert b.open(data) == a.text()


@given(st.binary(max_size=200), st.binary(max_size=200))
def test_whatever_comes_is_let_in_or_counted(start: bytes, rest: bytes) -> None:
    a, b = Node(), Node()
    known = a.seal()
    b.open(known)
    for data in (start + rest, known[: len(start)] + rest, known[:SALT_END] + rest):
        before = sum(b.opener.figures.values())
        assert b.open(data) is None
        assert sum(b.opener.figures.values()) == before + 1


def test_open_datagrams_are_counted() -> None:
    b = Node()
    for data in (b'{"topic":"door","payload":1}', b"", b"\xb5", b"\xb5\x02" + bytes(60)):
        assert b.open(data) is None
    assert b.opener.figures == counts(open=4)


def test_a_datagram_of_another_bus_costs_no_derivation() -> None:
    b = Node()
    for other in (ring(bus="shop"), ring(key("k2")), ring(key(secret=OTHER_SECRET))):
        assert b.open(Node(other).seal()) is None
    assert b.opener.figures == counts(foreign=3)


def test_who_names_the_key_but_does_not_have_it_is_refused() -> None:
    thief, b = Node(ring(key(secret=OTHER_SECRET))), Node()
    data = thief.seal()
    assert b.open(data[:2] + RING.wire_id(RING.keys[0]) + data[6:]) is None
    assert b.opener.figures == counts(forged=1)


def test_what_this_node_sent_is_passed_over_even_if_somebody_else_brings_it_back() -> None:
    a = Node()
    assert a.open(a.seal()) is None
    assert a.open(a.seal(), ELSEWHERE) is None
    assert a.opener.figures == counts()


def test_the_salt_of_another_node_does_not_help() -> None:
    a, b, thief = Node(), Node(), Node()
    b.open(a.seal())
    data = thief.seal()
    assert b.open(data[:6] + a.salt + data[SALT_END:]) is None
    assert b.open(data) == thief.text()


# --- Repeats --------------------------------------------------------------------------------------


def test_a_datagram_that_comes_again_is_refused() -> None:
    a, b = Node(), Node()
    sent = [a.seal() for _ in range(5)]
    for data in sent:
        assert b.open(data)
    for data in sent:
        assert b.open(data) is None
    assert b.opener.figures == counts(replayed=5)


def test_datagrams_may_come_in_any_order_within_the_window() -> None:
    a, b = Node(), Node()
    sent = [a.seal() for _ in range(WINDOW)]
    random.Random(5).shuffle(sent)
    assert all(b.open(data) for data in sent)
    assert not any(b.open(data) for data in sent)


def test_what_is_behind_the_window_is_refused() -> None:
    a, b = Node(), Node()
    late, last = a.seal(), a.seal()
    for _ in range(WINDOW - 1):
        newest = a.seal()
    assert b.open(newest)
    assert b.open(late) is None
    assert b.open(last)
    assert b.opener.figures == counts(replayed=1)


def test_a_leap_of_the_counter_leaves_no_room_for_repeats() -> None:
    a, b = Node(), Node()
    before = a.seal()
    assert b.open(before)
    a.sealer._counter = 2**63
    for _ in range(3):
        assert b.open(a.seal())
    assert b.open(before) is None


def test_a_forgery_does_not_move_the_window() -> None:
    a, b = Node(), Node()
    assert b.open(a.seal())
    ahead = bytearray(a.seal())
    ahead[SALT_END] = 0x7F
    assert b.open(bytes(ahead)) is None
    assert b.open(a.seal())


# --- Floods ---------------------------------------------------------------------------------------


def invented(count: int, dice: random.Random) -> list[bytes]:
    """Datagrams with the right start and salts that nobody has."""
    head = b"\xb5\x01" + RING.wire_id(RING.keys[0])
    return [head + dice.randbytes(16 + 8 + 100) for _ in range(count)]


def test_a_flood_of_invented_salts_is_bounded_and_the_next_message_arrives() -> None:
    known, b = Node(), Node()
    b.open(known.seal())
    for data in invented(5000, random.Random(1)):
        assert b.open(data, ELSEWHERE) is None
    assert b.opener.figures == counts(forged=int(BURST), unproven=5000 - int(BURST))
    assert b.opener.senders == 1
    assert b.open(known.seal(), ELSEWHERE) == known.text()
    newcomer = Node()
    assert b.open(newcomer.seal()) == newcomer.text()


def test_a_newcomer_from_where_a_flood_came_is_met_soon_after_it() -> None:
    newcomer, b = Node(), Node()
    for data in invented(5000, random.Random(1)):
        b.open(data)
    assert b.open(newcomer.seal()) is None
    at(1.0, newcomer, b)
    assert b.open(newcomer.seal()) == newcomer.text()


def test_a_flood_under_the_salt_of_a_sender_does_not_keep_it_out() -> None:
    known, b = Node(), Node()
    data = known.seal()
    b.open(data)
    dice = random.Random(2)
    for counter in range(2, 3000):
        b.open(data[:SALT_END] + counter.to_bytes(8, "big") + dice.randbytes(100))
    assert b.opener.figures == counts(forged=2998)
    assert b.open(known.seal()) == known.text()


def test_senders_are_bounded_and_none_that_was_heard_loses_its_place() -> None:
    first, b = Node(), Node()
    b.open(first.seal())
    for number in range(SENDERS_MAX + 100):
        b.open(Node().seal(), (f"10.{number >> 8}.{number & 255}.1", 1))
        b.now += 0.001
    assert b.opener.senders == SENDERS_MAX
    assert b.opener.figures == counts(unproven=101)
    assert b.open(first.seal()) == first.text()
    newcomer = Node()
    at(KEPT_S + 20, newcomer, b)
    assert b.open(newcomer.seal()) == newcomer.text()
    assert b.opener.senders == 1


# --- Keys -----------------------------------------------------------------------------------------


def test_a_key_that_was_dropped_opens_nothing_any_more() -> None:
    a, b = Node(), Node()
    assert b.open(a.seal())
    b.opener.renew(parse_ring(ring(key("k2", OTHER_SECRET))))
    assert b.open(a.seal()) is None
    assert b.opener.figures == counts(foreign=1)
    assert b.opener.senders == 0


def test_a_sender_that_changes_its_key_is_heard_without_a_gap() -> None:
    both = ring(key(), key("k2", OTHER_SECRET))
    a, b = Node(both), Node(both)
    old = a.seal()
    assert b.open(old)
    a.sealer.use(a.ring, a.ring.keys[1])
    assert b.open(a.seal()) == a.text()
    assert b.open(old) is None
    assert b.opener.figures == counts(replayed=1)


def test_the_smallest_datagram_is_let_in() -> None:
    a, b = Node(), Node()
    b.open(a.seal())
    data = a.seal(b"")
    assert len(data) == SEAL_BYTES
    assert b.open(data) == b""
