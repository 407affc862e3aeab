"""From a value to the outbox, the hold queue, or nowhere."""

from __future__ import annotations

from typing import Any

import pytest

from jsonbus.core.limits import HOLD_MESSAGES_MAX
from jsonbus.core.node import Node
from jsonbus.core.wire.frames import MessagesFrame
from jsonbus.errors import ClosedError, InvalidTopicError, PayloadError, PayloadTooLargeError
from tests.core.link import Link, forge_presence


def make_pair(link: Link, *patterns: str, **settings: Any) -> tuple[Node, Node]:
    """A publisher that is sure, and a subscriber."""
    a, b = link.add("a", **settings), link.add("b", **settings)
    link.subscribe(b, *patterns)
    link.run(5)
    return a, b


# --- Sure -----------------------------------------------------------------------------------------


def test_wanted_message_is_sent_and_unwanted_suppressed() -> None:
    link = Link()
    a, _ = make_pair(link, "t")
    assert link.publish(a, "t", {"x": [1, None, "ü"]}) == [True]
    assert link.publish(a, "u", 1) == [False]
    assert link.values("b") == [{"x": [1, None, "ü"]}]
    stats = a.view.stats()
    assert (stats["messages_published"], stats["messages_suppressed"]) == (1, 1)
    assert stats["messages_sent"] == 1


def test_decision_follows_the_subscriptions_of_others() -> None:
    link = Link()
    a, b = make_pair(link)
    assert link.publish(a, "t", 1, 2) == [False, False]
    link.subscribe(b, "t")
    link.run(0.01)
    assert link.publish(a, "t", 3, 4) == [True, True]
    b.unsubscribe("t", "sink", link.now)
    link.run(0.01)
    assert link.publish(a, "t", 5, 6) == [False, False]
    assert link.values("b") == [3, 4]


@pytest.mark.parametrize(
    ("pattern", "topic"), [("a/*", "a/b"), ("a/**", "a"), ("**", "x/y/z"), ("*/b/**", "a/b/c")]
)
def test_patterns_of_others_are_understood(pattern: str, topic: str) -> None:
    link = Link()
    a, _ = make_pair(link, pattern)
    assert link.publish(a, topic, 1) == [True]
    assert link.values("b") == [1]


def test_burst_shares_datagrams() -> None:
    link = Link()
    a, _ = make_pair(link, "t")
    link.forget_sent()
    link.publish(a, "t", *range(100))
    assert link.values("b") == list(range(100))
    assert len(link.frames("a", MessagesFrame)) <= 3


def test_value_that_nobody_wants_is_not_looked_at() -> None:
    link = Link()
    a, _ = make_pair(link, "t")
    assert a.publish("u", object(), link.now) is False


def test_own_subscriptions_get_own_messages() -> None:
    link = Link()
    a, _ = make_pair(link, "t")
    link.subscribe(a, "t", "local")
    link.run(1)
    link.publish(a, "t", 1)
    assert link.publish(a, "local", (1, 2)) == [True]
    sent, local = link.received["a"]
    assert (sent.value, sent.sequence, sent.node) == (1, 1, a.settings.node)
    assert (local.value, local.sequence) == ([1, 2], None)  # as JSON carries it
    assert a.view.stats()["messages_local"] == 1
    assert link.values("b") == [1]


def test_sequence_of_a_message_is_the_same_here_and_there() -> None:
    link = Link()
    a, b = make_pair(link, "t")
    link.subscribe(a, "t")
    link.run(1)
    link.publish(a, "t", *"xyz")
    assert [message.sequence for message in link.received["a"]] == [1, 2, 3]
    assert [message.sequence for message in link.received["b"]] == [1, 2, 3]
    assert b.view.stats()["messages_received"] == 3


# --- Errors ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("topic", ["", "a//b", "a/*", "jsonbus.bye", "x" * 256, 7, None, ["t"]])
def test_invalid_topic_is_an_error_whoever_wants_it(topic: object) -> None:
    link = Link()
    a, _ = make_pair(link, "**")
    with pytest.raises(InvalidTopicError):
        a.publish(topic, 1, link.now)  # type: ignore[arg-type]


def test_value_that_is_not_json_is_an_error_and_sends_nothing() -> None:
    link = Link()
    a, _ = make_pair(link, "t")
    with pytest.raises(PayloadError):
        a.publish("t", object(), link.now)
    assert not a.outbox.has_output
    assert link.publish(a, "t", 1) == [True]
    (message,) = link.received["b"]
    assert message.sequence == 1


def test_largest_value_arrives_and_one_byte_more_is_refused() -> None:
    link = Link()
    a, _ = make_pair(link, "t", value_bytes_max=100_000)
    largest = "x" * (100_000 - len('""'))
    with pytest.raises(PayloadTooLargeError, match="takes 100,001 bytes") as caught:
        a.publish("t", largest + "x", link.now)
    assert caught.value.size_bytes == 100_001
    link.publish(a, "t", largest)
    assert link.values("b") == [largest]


def test_publish_after_close_is_an_error_also_if_nobody_wants_it() -> None:
    link = Link()
    a, _ = make_pair(link, "t")
    a.close(link.now)
    for topic in ("t", "u"):
        with pytest.raises(ClosedError):
            a.publish(topic, 1, link.now)


# --- Joining --------------------------------------------------------------------------------------


def test_joiner_holds_what_nobody_is_known_to_want_and_sends_it_when_somebody_does() -> None:
    link = Link()
    b = link.add("b", share_delay_s=0.05)
    link.subscribe(b, "t")
    link.run(5)
    a = link.add("a")
    assert link.publish(a, "t", 1, 2) == [True, True]
    assert link.publish(a, "u", 3) == [True]
    assert (a.held, link.values("b")) == (3, [])
    link.run(0.051)
    assert link.values("b") == [1, 2]
    stats = a.view.stats()
    assert (stats["messages_held"], stats["held_sent"], stats["held_suppressed"]) == (3, 2, 1)
    assert stats["messages_waiting_to_be_sure"] == 0
    assert stats["messages_published"] == 2


def test_held_message_is_sent_as_soon_as_one_subscriber_is_known() -> None:
    link = Link()
    a = link.add("a")
    link.publish(a, "t", 1)
    link.run(0.1)
    b = link.add("b", opened=False)
    link.subscribe(b, "t")
    link.open(b)
    assert a.state == "joining"
    assert link.values("b") == [1]


def test_order_within_a_topic_is_kept_across_holding() -> None:
    link = Link()
    b = link.add("b", share_delay_s=0.05)
    link.subscribe(b, "t", "u")
    link.run(5)
    a = link.add("a")
    for number in range(20):
        link.publish(a, "t" if number % 2 else "u", number)
        link.run(0.005)
    link.run(1)
    received = {topic: [] for topic in "tu"}  # type: dict[str, list[int]]
    for message in link.received["b"]:
        received[message.topic].append(message.value)
    assert received["t"] == list(range(1, 20, 2))
    assert received["u"] == list(range(0, 20, 2))


def test_overflow_of_the_hold_queue_is_sent_not_lost() -> None:
    link = Link()
    b = link.add("b", share_delay_s=0.1)
    link.subscribe(b, "t")
    link.run(5)
    a = link.add("a")
    for number in range(HOLD_MESSAGES_MAX + 50):
        a.publish("t", number, link.now)
    assert a.held == HOLD_MESSAGES_MAX
    link.move()
    assert link.values("b") == list(range(50))
    link.run(1)
    assert link.values("b") == list(range(HOLD_MESSAGES_MAX + 50))


def test_doubting_joiner_sends_what_it_held() -> None:
    link = Link()
    b = link.add("b", mode="master")
    link.subscribe(b, "t")
    link.run(5)
    # Nobody answers, and what b says of itself is lost: a never learns what is wanted.
    link.drop = lambda sender, receiver, frame: receiver.settings.name == "a"
    a = link.add("a")
    link.inject(forge_presence())
    link.publish(a, "t", 1)
    assert a.held == 1
    link.run(1.6)
    assert a.state == "doubting"
    assert link.values("b") == [1]
    assert link.publish(a, "t", 2) == [True]


def test_first_node_suppresses_what_it_held_when_silence_made_it_sure() -> None:
    link = Link()
    a = link.add("a")
    link.publish(a, "t", 1)
    link.run(1)
    assert (a.state, a.held) == ("sure", 0)
    assert a.view.stats()["held_suppressed"] == 1


def test_closing_sends_what_is_held_before_the_goodbye() -> None:
    link = Link()
    b = link.add("b", share_delay_s=0.2)
    link.subscribe(b, "t")
    link.run(5)
    a = link.add("a")
    a.publish("t", 1, link.now)
    link.close(a)
    assert link.values("b") == [1]


def test_own_subscription_does_not_wait_for_certainty() -> None:
    link = Link()
    a = link.add("a", opened=False)
    link.subscribe(a, "t")
    link.open(a)
    link.publish(a, "t", 1)
    assert link.values("a") == [1]
    assert a.held == 1
    link.run(1)
    assert link.values("a") == [1]
