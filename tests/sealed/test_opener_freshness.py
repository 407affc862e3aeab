"""Recordings, datagrams that were held back, and clocks that are wrong."""

from __future__ import annotations

import pytest

from jsonbus.sealed.datagrams import Answer, Challenge, decode_control
from jsonbus.sealed.opener import CHALLENGE_S, CHALLENGED_MAX, FRESH_S, KEPT_S, REPLIES_MAX, START_S
from tests.sealed.nodes import Node, at, counts


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


def test_a_challenge_that_is_played_back_is_answered_once() -> None:
    a, b = Node(ahead_s=1e6), Node()
    b.open(a.seal())
    a.open(b.seal())
    (challenge,) = b.take_replies()
    for _ in range(REPLIES_MAX):
        a.open(challenge)
    own, answer = map(decode_control, a.opener.replies)
    assert isinstance(own, Challenge)
    assert isinstance(answer, Answer)


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
