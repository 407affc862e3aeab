"""What is let in, and what an attacker on the same wire cannot get in."""

from __future__ import annotations

import itertools
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jsonbus.sealed.datagrams import (
    SALT_END,
    SEAL_BYTES,
    Answer,
    Challenge,
    Sealer,
    decode_control,
)
from jsonbus.sealed.keys import parse_ring
from jsonbus.sealed.opener import (
    CHALLENGE_S,
    CHALLENGED_MAX,
    FRESH_S,
    KEPT_S,
    REPLIES_MAX,
    SENDERS_MAX,
    START_S,
    WINDOW,
    Opener,
)
from jsonbus.sealed.strangers import BURST, RATE
from tests.sealed.material import OTHER_SECRET, START_WALL, key, ring

RING = parse_ring(ring())
HOST, ELSEWHERE = ("10.0.0.1", 2416), ("10.0.0.66", 2416)
CAUSES = "open foreign forged replayed stale unproven".split()


def counts(**expected: int) -> dict[str, int]:
    """All figures of an opener: those named, and 0."""
    return {f"datagrams_{cause}": expected.get(cause, 0) for cause in CAUSES}


class Node:
    """One node of a sealed bus: it seals and opens, by a clock that tests move."""

    salts = itertools.count(1)

    def __init__(self, parsed: object = None, *, ahead_s: float = 0.0) -> None:
        self.ring = parse_ring(parsed) if parsed else RING
        self.salt = next(Node.salts).to_bytes(16, "big")
        self.dice = random.Random(self.salt)
        self.ahead_s = ahead_s
        self.now = 0.0
        self.warned: list[tuple[str, float]] = []
        self.sealer = Sealer(self.ring, self.ring.keys[0], self.salt)
        self.restart_opener()

    def restart_opener(self) -> None:
        self.opener = Opener(
            self.ring, self.salt, self.dice.randbytes, lambda *args: self.warned.append(args)
        )

    @property
    def wall(self) -> float:
        return START_WALL + self.now + self.ahead_s

    def text(self) -> bytes:
        return b'{"topic":"door","payload":1,"jb":{"t":%d}}' % int(self.wall * 1_000_000)

    def seal(self, text: bytes | None = None) -> bytes:
        return self.sealer.seal(self.text() if text is None else text)

    def open(self, data: bytes, sender: tuple[str, int] = HOST) -> bytes | None:
        return self.opener.open(data, sender, self.now, self.wall)

    def take_replies(self) -> list[bytes]:
        replies = [self.seal(reply) for reply in self.opener.replies]
        self.opener.replies.clear()
        return replies


def at(now: float, *nodes: Node) -> None:
    for node in nodes:
        node.now = now


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


# --- Freshness ------------------------------------------------------------------------------------


def test_a_recording_is_refused_by_a_node_that_was_started_after_it() -> None:
    a = Node()
    recorded = a.seal()
    later = Node()
    at(FRESH_S + 1, later)
    assert later.open(recorded) is None
    assert later.opener.figures == counts(stale=1)
    assert later.opener.senders == 0


def test_a_recording_is_refused_by_a_receiver_that_was_restarted() -> None:
    a, b = Node(), Node()
    recorded = [a.seal() for _ in range(5)]
    assert all(b.open(data) for data in recorded)
    at(FRESH_S + 1, a, b)
    b.restart_opener()
    assert not any(b.open(data) for data in recorded)
    assert b.opener.figures == counts(stale=5)


def test_a_recording_is_refused_after_its_sender_was_restarted() -> None:
    before, b = Node(), Node()
    recorded = [before.seal() for _ in range(5)]
    assert all(b.open(data) for data in recorded)
    after = Node()
    assert b.open(after.seal())
    assert not any(b.open(data) for data in recorded)
    assert b.opener.figures == counts(replayed=5)


@pytest.mark.parametrize("ahead_s", [0.0, FRESH_S - 1])
def test_a_recording_is_refused_after_its_sender_was_forgotten(ahead_s: float) -> None:
    a, b = Node(ahead_s=ahead_s), Node()
    recorded = a.seal()
    assert b.open(recorded)
    at(KEPT_S + 1, b)
    other = Node()  # a newcomer, so that places are looked through
    at(KEPT_S + 1, other)
    assert b.open(other.seal())
    assert b.opener.senders == 1
    assert b.open(recorded) is None


def test_what_was_said_shortly_before_a_restart_is_refused_after_it() -> None:
    a, b = Node(), Node()
    recorded = [a.seal() for _ in range(5)]
    assert all(b.open(data) for data in recorded)
    at(START_S + 1, a, b)
    b.restart_opener()
    assert b.open(recorded[0]) is None
    assert b.open(a.seal())
    assert not any(b.open(data) for data in recorded)  # nor now that the sender is known
    assert b.opener.figures == counts(stale=6)


def test_a_sender_whose_clock_is_a_little_behind_is_heard_by_a_node_that_starts() -> None:
    a, b = Node(ahead_s=-START_S + 1), Node()
    assert b.open(a.seal())


def test_a_sender_whose_clock_is_behind_by_more_is_challenged_by_a_node_that_starts() -> None:
    a, b = Node(ahead_s=-START_S - 1), Node()
    assert b.open(a.seal()) is None
    exchange_replies(a, b)
    assert b.open(a.seal())
    assert b.opener.figures == counts(stale=1)


def test_a_challenge_costs_a_sender_whose_clock_is_right_nothing_that_was_overtaken() -> None:
    a, b = Node(), Node()
    recorded = a.seal()
    at(START_S + 1, a, b)
    assert b.open(recorded) is None
    overtaken = a.seal()
    assert b.open(a.seal())
    exchange_replies(a, b)
    assert b.open(overtaken)


def test_what_was_sent_before_the_first_datagram_that_was_heard_has_to_be_fresh() -> None:
    a, b = Node(), Node()
    kept_back = [a.seal() for _ in range(5)]
    at(FRESH_S + 1, a, b)
    assert b.open(a.seal())
    assert not any(b.open(data) for data in kept_back)
    assert b.opener.figures == counts(stale=5)


def test_who_holds_back_all_that_a_sender_says_cannot_let_it_in_late() -> None:
    a, b = Node(), Node()
    assert b.open(a.seal())
    kept_back = []
    for now in range(1, 120):
        at(now, a)
        kept_back.append(a.seal())
    at(119, b)
    let_in = [b.open(data) is not None for data in kept_back]
    assert let_in == [False] * (119 - 61) + [True] * 61


@pytest.mark.parametrize(
    "text", [b"[]", b"", b"no JSON", b'{"jb":{"t":"1"}}', b'{"jb":{"t":true}}']
)
def test_a_stranger_whose_datagram_tells_no_time_is_refused(text: bytes) -> None:
    b = Node()
    assert b.open(Node().seal(text)) is None
    assert b.opener.figures == counts(stale=1)


# --- Clocks that are wrong ------------------------------------------------------------------------


def exchange_replies(*nodes: Node) -> int:
    """Let challenges and answers pass until there are no more; return how many they were."""
    passed = 0
    while any(each.opener.replies for each in nodes):
        for sender in nodes:
            for data in sender.take_replies():
                passed += 1
                for node in nodes:
                    assert node.open(data) is None
    return passed


def reply_to(a: Node, b: Node) -> list[bytes]:
    """Let a hear what b wants to know, and return what it wants to say to that."""
    for data in b.take_replies():
        assert a.open(data) is None
    replies = [*a.opener.replies]
    a.opener.replies.clear()
    return replies


@pytest.mark.parametrize("ahead_s", [-3e8, -FRESH_S - 5, FRESH_S + 5, 3e8])
def test_a_node_whose_clock_is_wrong_is_heard_once_it_has_answered(ahead_s: float) -> None:
    a, b = Node(ahead_s=ahead_s), Node()
    assert b.open(a.seal()) is None
    assert a.open(b.seal()) is None
    assert exchange_replies(a, b) == 4
    assert b.open(a.seal()) == a.text()
    assert a.open(b.seal()) == b.text()
    assert b.opener.figures == a.opener.figures == counts(stale=1)


def test_a_node_whose_clock_is_wrong_stays_heard() -> None:
    a, b = Node(ahead_s=-1e6), Node()
    b.open(a.seal())
    exchange_replies(a, b)
    for now in range(0, 500, 20):
        at(now, a, b)
        assert b.open(a.seal()) == a.text()


def test_a_clock_that_is_set_right_makes_nobody_deaf() -> None:
    a, b = Node(ahead_s=-1e6), Node()
    b.open(a.seal())
    exchange_replies(a, b)
    at(10, a, b)
    a.ahead_s = 0.0
    assert b.open(a.seal()) == a.text()
    assert a.open(b.seal()) == b.text()


def test_a_clock_that_goes_wrong_costs_one_challenge() -> None:
    a, b = Node(), Node()
    assert b.open(a.seal())
    at(10, a, b)
    a.ahead_s = 1e6
    assert b.open(a.seal()) is None
    exchange_replies(a, b)
    assert b.open(a.seal()) == a.text()


def test_a_recording_of_a_wrong_clock_is_refused_after_the_challenge() -> None:
    a, b = Node(ahead_s=1000.0), Node()
    recorded = a.seal()
    b.open(recorded)
    exchange_replies(a, b)
    at(500, a, b)
    assert b.open(a.seal())
    assert b.open(recorded) is None
    at(1000, b)  # by now it would be fresh
    assert b.open(recorded) is None


def test_what_was_held_back_from_a_clock_that_is_ahead_is_refused_when_its_time_has_come() -> None:
    a, b = Node(ahead_s=600.0), Node()
    b.open(a.seal())
    exchange_replies(a, b)
    assert b.open(a.seal())
    held_back = [a.seal() for _ in range(3)]
    at(598, a, b)
    assert b.open(held_back[0]) is None  # above all that came
    assert b.open(a.seal())
    at(599, b)
    assert b.open(held_back[1]) is None  # below
    at(600, b)
    assert b.open(held_back[2]) is None


def test_a_clock_never_seems_to_be_less_ahead_because_its_answer_was_delayed() -> None:
    a, b = Node(ahead_s=600.0), Node()
    b.open(a.seal())
    answers = [a.seal(reply) for reply in reply_to(a, b)]
    at(CHALLENGE_S - 1, b)
    for answer in answers:
        b.open(answer)
    recorded = a.seal()  # the clock of a stands still in this test: sealed at 0
    at(FRESH_S + 1, b)
    assert b.open(recorded) is None


def test_an_answer_that_was_recorded_shows_nothing() -> None:
    a, b = Node(ahead_s=1000.0), Node()
    b.open(a.seal())
    (challenge,) = b.take_replies()
    a.open(challenge)
    (answer,) = a.take_replies()
    late = a.seal()
    b.restart_opener()
    at(1, a, b)
    assert b.open(late) is None  # challenged again, with another number
    assert b.open(answer) is None
    assert b.open(a.seal()) is None


def test_an_answer_that_comes_too_late_shows_nothing() -> None:
    a, b = Node(ahead_s=1000.0), Node()
    b.open(a.seal())
    for data in b.take_replies():
        a.open(data)
    answers = a.take_replies()
    at(CHALLENGE_S + 1, a, b)
    assert [b.open(data) for data in answers] == [None]
    assert b.open(a.seal()) is None
    assert b.opener.figures == counts(stale=2)


def test_only_the_node_that_was_asked_answers() -> None:
    a, b, other = Node(ahead_s=1000.0), Node(), Node()
    b.open(a.seal())
    challenge = decode_control(b.opener.replies[0])
    assert isinstance(challenge, Challenge)
    for data in b.take_replies():
        other.open(data)
    assert not other.opener.replies
    # Not even who has the key can answer for it: the salt tells who answers.
    assert b.open(other.seal(Answer(challenge.nonce, other.wall).encode())) is None
    assert b.open(a.seal()) is None


def test_a_clock_that_differs_is_told_with_address_and_seconds() -> None:
    a, b = Node(ahead_s=1000.0), Node()
    for _ in range(5):
        b.open(a.seal())
    assert b.warned == [("10.0.0.1", pytest.approx(1000.0))]


def test_a_sender_is_challenged_again_only_after_a_while() -> None:
    a, b = Node(ahead_s=1000.0), Node()
    asked = 0
    for now in range(31):
        at(now, a, b)
        b.open(a.seal())
        asked += len(b.take_replies())
    assert asked == 4


def test_recordings_of_many_senders_cause_a_bounded_number_of_challenges() -> None:
    b = Node()
    for number in range(2 * CHALLENGED_MAX):
        b.open(Node(ahead_s=1000.0).seal(), (f"10.1.{number // 100}.{number % 100}", 1))
    assert len(b.opener.replies) == REPLIES_MAX
    assert len(b.opener._challenged) == CHALLENGED_MAX


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
