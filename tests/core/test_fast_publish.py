"""The short way to a datagram: which topics have a prefix, for how long, and what becomes of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jsonbus.core.fast_publish import FastPublish
from jsonbus.core.limits import PLAIN_HEARD_S
from jsonbus.core.node import Node
from jsonbus.core.wire.codec import dumps
from jsonbus.core.wire.decode import decode
from jsonbus.core.wire.frames import MessagesFrame
from tests.core.generated import unhurried
from tests.core.link import Link, forge_presence

PLAIN = b'{"topic":"sensor","payload":1}'


def make_pair(link: Link, *patterns: str, **fields: Any) -> tuple[Node, Node]:
    """A publisher that is sure, and a subscriber."""
    a, b = link.add("a", **fields), link.add("b")
    link.subscribe(b, *patterns)
    link.run(5)
    return a, b


def send(node: Node, topic: str, value: object) -> bool:
    """What a front end does on the short way; whether there was a prefix."""
    prefix = node.fast_publish.prefixes.get(topic)
    if prefix is None:
        return False
    if prefix:
        node.fast_publish.queued.append(prefix + dumps(value))
    else:
        next(node.fast_publish.suppressed)
    return True


# --- Which topics have a prefix -------------------------------------------------------------------


def test_wanted_topic_has_a_lane_once_it_was_published_to() -> None:
    link = Link()
    a, _ = make_pair(link, "t", 'q"\\')
    assert a.fast_publish.prefixes == {}
    a.publish("t", 1, link.now)
    a.publish('q"\\', 1, link.now)
    # The outbox finds the end of a topic by its quote, so one with escapes has no prefix.
    assert a.fast_publish.prefixes == {"t": b'["t",'}


def test_suppressed_topic_has_an_empty_lane() -> None:
    link = Link()
    a, _ = make_pair(link, "t")
    assert a.publish("u", 1, link.now) is False
    assert a.fast_publish.prefixes == {"u": b""}


def test_topic_with_own_subscriptions_has_none() -> None:
    link = Link()
    a, _ = make_pair(link, "t")
    link.subscribe(a, "t", "local")
    link.run(1)
    link.publish(a, "t", 1)
    link.publish(a, "local", 2)
    assert a.fast_publish.prefixes == {}
    assert link.values("a") == [1, 2]


def test_joiner_has_no_lane_for_what_it_holds() -> None:
    link = Link()
    link.add("b", share_delay_s=0.05)
    link.run(5)
    a = link.add("a")
    a.publish("t", 1, link.now)
    assert (a.state, a.held, a.fast_publish.prefixes) == ("joining", 1, {})


def test_basic_and_doubting_nodes_send_everything_on_lanes() -> None:
    link = Link()
    basic = link.add("basic", mode="basic")
    doubting, _ = make_pair(link)
    doubting.doubt_network("the network interfaces changed", link.now)
    for node in (basic, doubting):
        assert node.publish("u", 1, link.now)
        assert node.fast_publish.prefixes == {"u": b'["u",'}


def test_publisher_of_single_messages_has_none_but_for_what_is_suppressed() -> None:
    link = Link()
    a, _ = make_pair(link, "t", batching=False)
    a.publish("t", 1, link.now)
    a.publish("u", 1, link.now)
    assert a.fast_publish.prefixes == {"u": b""}


def test_no_lane_while_a_plain_peer_is_here_and_lanes_again_afterwards() -> None:
    link = Link()
    a, _ = make_pair(link, "t")
    link.inject(PLAIN)
    link.run(PLAIN_HEARD_S - 1)
    link.publish(a, "t", 1)
    assert a.fast_publish.prefixes == {}
    link.run(2)
    link.publish(a, "t", 2)
    assert a.fast_publish.prefixes == {"t": b'["t",'}


def test_failed_publish_leaves_no_lane() -> None:
    link = Link()
    a, _ = make_pair(link, "t")
    with pytest.raises(ValueError):
        a.publish("t", object(), link.now)
    with pytest.raises(ValueError):
        a.publish("a//b", 1, link.now)
    assert a.fast_publish.prefixes == {}


# --- How long -------------------------------------------------------------------------------------


def subscribe_there(link: Link, a: Node, b: Node) -> None:
    link.subscribe(b, "u")


def unsubscribe_there(link: Link, a: Node, b: Node) -> None:
    b.unsubscribe("t", "sink", link.now)


def subscribe_here(link: Link, a: Node, b: Node) -> None:
    link.subscribe(a, "t")


def unsubscribe_here(link: Link, a: Node, b: Node) -> None:
    a.unsubscribe("mine", "sink", link.now)


def another_comes(link: Link, a: Node, b: Node) -> None:
    link.add("c", mode="basic")


def subscriber_leaves(link: Link, a: Node, b: Node) -> None:
    if b in link.nodes:
        link.close(b)


def doubt(link: Link, a: Node, b: Node) -> None:
    a.doubt_network("this node did not listen for 9.0 s", link.now)


def hear_plain_peer(link: Link, a: Node, b: Node) -> None:
    link.inject(PLAIN)


def hear_plain_list(link: Link, a: Node, b: Node) -> None:
    link.inject(b'{"topic":"jsonbus.topics","payload":["jsonbus.topics","u"]}')


def close(link: Link, a: Node, b: Node) -> None:
    a.close(link.now)


CHANGES = [
    subscribe_there,
    unsubscribe_there,
    subscribe_here,
    unsubscribe_here,
    another_comes,
    subscriber_leaves,
    doubt,
    hear_plain_peer,
    hear_plain_list,
    close,
]


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_lanes_are_forgotten_when_something_changes(
    change: Callable[[Link, Node, Node], None],
) -> None:
    link = Link()
    a, b = make_pair(link, "t")
    link.subscribe(a, "mine")
    link.run(10)
    link.publish(a, "t", 1)
    link.publish(a, "u", 1)
    assert a.fast_publish.prefixes == {"t": b'["t",', "u": b""}
    prefixes = a.fast_publish.prefixes
    change(link, a, b)
    link.move()
    if change in (subscribe_there, unsubscribe_there):
        link.run(0.02)  # changes are queued before they are announced
    assert a.fast_publish.prefixes == {}
    assert a.fast_publish.prefixes is prefixes  # front ends look into this very dict


@pytest.mark.parametrize("change", CHANGES[:-1], ids=lambda change: change.__name__)
def test_lanes_say_what_the_long_way_does(change: Callable[[Link, Node, Node], None]) -> None:
    link = Link()
    a, b = make_pair(link, "t")
    link.subscribe(a, "mine")
    link.run(10)
    for _ in range(2):
        for topic in "tu":
            is_sent = a.publish(topic, 1, link.now)
            assert bool(a.fast_publish.prefixes.get(topic, is_sent)) == is_sent
            assert not (a.fast_publish.prefixes.get(topic) and a._router.route(topic).inboxes)
        change(link, a, b)
        link.run(0.5)


def test_messages_and_heartbeats_of_others_change_nothing() -> None:
    link = Link()
    a, b = make_pair(link, "t")
    link.run(60)
    link.publish(a, "t", 1)
    link.publish(a, "u", 1)
    link.publish(b, "t", 1)
    b.ping(link.now)
    link.run(10)
    assert a.fast_publish.prefixes == {"t": b'["t",', "u": b""}


def test_difference_of_lists_is_a_change_of_state() -> None:
    link = Link()
    a, _ = make_pair(link, "t")
    link.run(10)
    link.publish(a, "u", 1)
    link.inject(forge_presence())
    link.run_until(lambda: a.state == "doubting", 5)
    assert a.fast_publish.prefixes.get("u") != b""


# --- What gathers ---------------------------------------------------------------------------------


def test_gathered_messages_leave_with_right_numbers_and_counters() -> None:
    link = Link()
    a, b = make_pair(link, "t", "v")
    link.publish(a, "t", 0)
    link.publish(a, "v", 1)
    for number in range(2, 250):
        assert send(a, "tv"[number % 2], number)
    assert a.outbox.has_output and a.outbox.has_full_batch
    stats = a.view.stats()
    assert (stats["messages_published"], stats["messages_sent"]) == (250, 2)
    link.move()
    received = link.received["b"]
    assert [message.value for message in received] == list(range(250))
    assert [message.sequence for message in received] == list(range(1, 251))
    assert {message.topic: message.value % 2 for message in received} == {"t": 0, "v": 1}
    stats = a.view.stats()
    assert (stats["messages_published"], stats["messages_sent"]) == (250, 250)
    assert b.view.stats()["messages_lost"] == 0


def test_short_and_long_way_keep_their_order() -> None:
    link = Link()
    a, _ = make_pair(link, "t")
    link.publish(a, "t", 0)
    for number in range(1, 100):
        assert number % 3 == 0 or send(a, "t", number)
        if number % 3 == 0:
            a.publish("t", number, link.now)
        if number % 10 == 0:
            a.ping(link.now)
    link.move()
    assert link.values("b") == list(range(100))
    assert [each.sequence for each in link.received["b"]] == list(range(1, 101))


def test_message_with_own_subscriptions_knows_its_number_behind_gathered_ones() -> None:
    link = Link()
    a, _ = make_pair(link, "t", "v")
    link.subscribe(a, "v")
    link.run(1)
    a.publish("t", 0, link.now)
    assert send(a, "t", 1)
    link.publish(a, "v", 2)
    assert [each.sequence for each in link.received["a"]] == [3]
    assert [each.sequence for each in link.received["b"]] == [1, 2, 3]


def test_gathered_message_leaves_before_the_goodbye() -> None:
    link = Link()
    a, _ = make_pair(link, "t")
    a.publish("t", 1, link.now)
    assert send(a, "t", 2)
    link.close(a)
    assert link.values("b") == [1, 2]


def test_lone_datagram_is_a_message_like_any_other_and_a_sign_of_life() -> None:
    link = Link()
    a, b = make_pair(link, "t")
    link.publish(a, "t", 0)
    link.run(60)
    prefix, presences = a.fast_publish.prefixes["t"], a.view.stats()["presences_sent"]
    for number in range(1, 20):
        data = a.outbox.make_single(prefix, dumps(number), link.now)
        assert data is not None
        frame = decode(data)
        assert isinstance(frame, MessagesFrame) and frame.header is not None
        assert (frame.items, frame.header.first_message) == ([["t", number]], number + 1)
        b.receive_datagram(data, ("10.0.0.1", 2416), link.now)
        link.run(0.5)
    link.move()
    assert link.values("b") == list(range(20))
    assert (b.view.stats()["messages_lost"], b.view.stats()["datagrams_repeated"]) == (0, 0)
    assert (a.view.stats()["messages_published"], a.view.stats()["messages_sent"]) == (20, 20)
    assert a.view.stats()["presences_sent"] == presences


def test_no_lone_datagram_overtakes_what_waits() -> None:
    link = Link()
    a, _ = make_pair(link, "t")
    a.publish("t", 1, link.now)
    assert a.outbox.make_single(a.fast_publish.prefixes["t"], b"2", link.now) is None
    link.move()
    a.ping(link.now)
    assert a.outbox.make_single(a.fast_publish.prefixes["t"], b"2", link.now) is None
    assert a.view.stats()["messages_published"] == 1


# --- Counting what is suppressed ------------------------------------------------------------------


def test_suppressed_messages_of_both_ways_are_counted() -> None:
    link = Link()
    a, _ = make_pair(link, "t")
    a.publish("u", 1, link.now)
    for _ in range(5):
        assert send(a, "u", object())
    assert a.view.stats()["messages_suppressed"] == 6
    assert a.view.stats()["messages_suppressed"] == 6
    assert not a.outbox.has_output


@settings(unhurried, max_examples=50)
@given(st.lists(st.booleans(), max_size=50))
def test_asking_does_not_count(script: list[bool]) -> None:
    fast_publish = FastPublish()
    suppressed = 0
    for is_asked in script:
        if is_asked:
            assert fast_publish.count_suppressed() == suppressed
        else:
            next(fast_publish.suppressed)
            suppressed += 1
    assert fast_publish.count_suppressed() == suppressed


# --- Reliable messages ----------------------------------------------------------------------------


def send_reliably(link: Link, node: Node, topic: str, value: object) -> bool:
    """As a front end does it; whether it took the short way."""
    prefix = node.fast_publish.reliable_prefixes.get(topic)
    if prefix:
        node.fast_publish.queued.append(prefix + dumps(value))
    else:
        node.publish(topic, value, link.now, is_reliable=True)
    return bool(prefix)


def positions(link: Link, name: str) -> list[tuple[object, int | None]]:
    return [(message.value, message.position) for message in link.received[name]]


def test_reliable_messages_take_the_short_way_from_the_second_on_and_keep_their_order() -> None:
    link = Link()
    a, _ = make_pair(link, "t")
    short = []
    for number in range(10):
        short.append(send_reliably(link, a, "t", number))
        if number % 3 == 0:
            link.move()
    link.move()
    assert short == [False] + [True] * 9
    assert positions(link, "b") == [(number, number + 1) for number in range(10)]
    assert a.view.stats()["messages_kept_for_repair"] == 10


def test_short_and_long_way_of_one_topic_share_their_sequences() -> None:
    link = Link()
    a, _ = make_pair(link, "t")
    for number in range(40):
        if number % 4 == 3:
            a.publish("t", number, link.now, is_reliable=True, is_retained=number % 8 == 7)
        elif number % 5 == 4:
            a.publish("t", number, link.now)
        else:
            send_reliably(link, a, "t", number)
    link.move()
    got = positions(link, "b")
    assert [value for value, _ in got] == list(range(40))
    reliable = [position for _, position in got if position is not None]
    assert reliable == list(range(1, len(reliable) + 1))
    assert len(reliable) > 30


def test_short_way_of_reliable_messages_ends_when_a_subscription_changes() -> None:
    link = Link()
    a, b = make_pair(link, "t")
    for number in range(3):
        send_reliably(link, a, "t", number)
        link.move()
    assert a.fast_publish.reliable_prefixes
    b.unsubscribe("t", "sink", link.now)
    link.run(1)
    assert a.fast_publish.reliable_prefixes == {}
    assert a.publish("t", "unsent", link.now, is_reliable=True) is False
    assert a.view.stats()["messages_kept_for_repair"] == 4


def test_short_way_of_reliable_messages_ends_while_messages_are_asked_for() -> None:
    link = Link()
    a, _ = make_pair(link, "t")
    for number in range(3):
        send_reliably(link, a, "t", number)
        link.move()
    link.drop = lambda sender, receiver, frame: isinstance(frame, MessagesFrame)
    send_reliably(link, a, "t", "lost")
    link.move()
    link.heal()
    send_reliably(link, a, "t", "after")
    link.move()
    link.run(0.1)
    assert a.fast_publish.reliable_prefixes == {}
    assert not send_reliably(link, a, "t", "slow")
    link.run(10)
    short = [send_reliably(link, a, "t", "quick") for _ in range(3)]
    link.move()
    assert short[-1]
    expected = [0, 1, 2, "lost", "after", "slow", "quick", "quick", "quick"]
    assert positions(link, "b") == [(value, n) for n, value in enumerate(expected, 1)]


def test_unsent_message_comes_after_those_of_its_topic_that_wait() -> None:
    link = Link()
    a, b = make_pair(link, "t")
    for number in range(3):
        send_reliably(link, a, "t", number)
        link.move()
    assert send_reliably(link, a, "t", "waits")
    a.reliable.keep_unsent(a._router.route("t"), b'"unsent"', link.now, is_retained=False)
    link.move()
    assert positions(link, "b")[-1] == ("waits", 4)
    assert send_reliably(link, a, "t", "next")
    link.move()
    link.run(1)
    assert positions(link, "b")[-2:] == [("unsent", 5), ("next", 6)]
