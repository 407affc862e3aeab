"""Passive subscriptions: they see what travels, and change nothing about it."""

from __future__ import annotations

from typing import Any

import pytest

from jsonbus.core.node import Node
from jsonbus.core.wire.frames import FragmentFrame, Frame, MessagesFrame, NakFrame
from tests.core.link import Link


def look_on(link: Link, name: str, *patterns: str, **settings: Any) -> Node:
    """A node that has only looked on for a while."""
    node = link.add(name, **settings)
    for pattern in patterns:
        node.subscribe(pattern, "onlooker", link.now, is_passive=True)
    link.run(5)
    return node


def make_group(link: Link, *patterns: str) -> tuple[Node, Node, Node]:
    """A publisher p, a subscriber s, and o, which looks on at everything."""
    p, s = link.add("p"), link.add("s")
    link.subscribe(s, *patterns)
    o = look_on(link, "o", "**")
    link.forget_sent()
    return p, s, o


def test_onlooker_sees_what_others_want_and_pulls_nothing() -> None:
    link = Link()
    p, _, o = make_group(link, "wanted")
    assert link.publish(p, "wanted", 1) == [True]
    assert link.publish(p, "unwanted", 2) == [False]
    assert link.values("o") == link.values("s") == [1]
    assert o.own_entry().patterns == ()
    assert not p.has_subscribers("unwanted")
    assert p.view.stats()["messages_suppressed"] == 1


def test_onlooker_is_in_no_list_and_announces_nothing() -> None:
    link = Link()
    _, _, o = make_group(link, "wanted")
    version = o.own_entry().version
    o.subscribe("more/**", "other", link.now, is_passive=True)
    link.run(1)
    assert o.own_entry().version == version
    assert not any(isinstance(frame, MessagesFrame) for _, _, frame in link.sent)
    assert o.view.subscriptions() == {"wanted": [link.nodes[1].settings.node]}
    assert not o.has_subscribers("more/x")
    assert o.view.explain("more/x").verdict == "suppressed"


@pytest.mark.parametrize("size", [10, 5_000])
def test_onlooker_of_a_reliable_topic_asks_for_nothing(size: int) -> None:
    link = Link()
    p, s, o = make_group(link, "t")
    # The onlooker misses every other message; the subscriber none.
    kinds = (MessagesFrame, FragmentFrame)

    def drop(sender: Node, receiver: Node, frame: Frame) -> bool:
        if receiver is not o or not isinstance(frame, kinds):
            return False
        number = frame.number if isinstance(frame, FragmentFrame) else frame.header.first_message
        return number % 2 == 0

    link.drop = drop
    values = [[number, "x" * size] for number in range(10)]
    for value in values:
        p.publish("t", value, link.now, is_reliable=True)
        link.move()
    link.run(10)
    assert link.values("s") == values
    assert link.values("o") == values[::2]
    assert link.frames("o", NakFrame) == []
    assert o.view.stats()["messages_lost"] == 5
    assert o.view.stats()["messages_delivered"] == 5


def test_onlooker_beside_a_subscriber_gets_what_was_sent_again() -> None:
    link = Link()
    p, s, _ = make_group(link, "t")
    s.subscribe("t", "onlooker", link.now, is_passive=True)
    link.drop = lambda sender, receiver, frame: (
        receiver is s and isinstance(frame, MessagesFrame) and frame.header.first_message == 2
    )
    for value in range(3):
        p.publish("t", value, link.now, is_reliable=True)
        link.move()
    link.run(10)
    assert sorted(link.values("s")) == [0, 0, 1, 1, 2, 2]  # both got all of them


def test_onlooker_gets_what_waited_for_a_subscriber_that_has_gone() -> None:
    link = Link()
    p, s, _ = make_group(link, "t")
    s.subscribe("t", "beside", link.now, is_passive=True)
    link.drop = lambda sender, receiver, frame: (
        receiver is s and isinstance(frame, MessagesFrame) and frame.header.first_message == 2
    )
    for value in range(4):
        p.publish("t", value, link.now, is_reliable=True)
        link.move()
    assert link.values("s") == [0, 0]
    assert s.unsubscribe("t", "sink", link.now)
    link.move()
    assert link.values("s") == [0, 0, 2, 3]
    assert s.view.stats()["messages_delivered"] == 3
    link.run(10)
    assert link.values("s") == [0, 0, 2, 3]


def test_onlooker_is_given_no_retained_values_and_sees_fresh_ones() -> None:
    link = Link()
    p, _, _ = make_group(link, "t")
    p.publish("t", "old", link.now, is_retained=True)
    link.move()
    late = look_on(link, "late", "t")
    assert link.received["late"] == []
    p.publish("t", "new", link.now, is_retained=True)
    link.move()
    assert [(m.value, m.retained) for m in link.received["late"]] == [("new", False)]
    # What only passed by is not taken for the last value that a subscriber is owed.
    link.subscribe(late, "t")
    link.run(3)
    assert [(m.value, m.retained) for m in link.received["late"][1:]] == [("new", True)]


def test_onlooker_sees_what_its_own_node_sends_and_not_what_it_suppresses() -> None:
    link = Link()
    _, _, o = make_group(link, "wanted")
    link.publish(o, "wanted", 1, 2)
    assert link.publish(o, "unwanted", 3) == [False]
    assert link.values("o") == [1, 2]
    assert [message.sequence for message in link.received["o"]] == [1, 2]
    assert o.view.stats()["messages_local"] == 0


def test_onlooker_sees_what_its_own_node_held_once_it_is_sent() -> None:
    link = Link()
    s = link.add("s")
    link.subscribe(s, "wanted")
    link.run(5)
    o = link.add("o", opened=False)
    o.subscribe("**", "onlooker", link.now, is_passive=True)
    o.publish("wanted", 1, link.now)
    o.publish("unwanted", 2, link.now)
    link.open(o)
    link.run(3)
    assert link.values("s") == link.values("o") == [1]


def test_onlooker_sees_plain_datagrams() -> None:
    link = Link()
    make_group(link)
    link.inject(b'{"topic":"door","payload":"open"}')
    assert link.values("o") == ["open"]


def test_ended_onlooker_sees_no_more_and_costs_nothing() -> None:
    link = Link()
    p, _, o = make_group(link, "wanted")
    o.subscribe("more", "onlooker", link.now, is_passive=True)
    assert o.unsubscribe("**", "onlooker", link.now)
    assert not o.unsubscribe("**", "onlooker", link.now)
    link.publish(p, "wanted", 1)
    assert link.values("o") == []
    assert o.view.stats()["messages_unwanted"] == 1
    assert o.unsubscribe(("more",), "onlooker", link.now)
    assert o._subscriptions._inboxes == {}


@pytest.mark.slow
def test_passive_patterns_need_no_room_in_a_datagram() -> None:
    link = Link()
    p, s = link.add("p"), link.add("s")
    link.subscribe(s, "room/999")
    o = link.add("o")
    o.subscribe(
        tuple(f"room/{number}" for number in range(100_000)), "onlooker", link.now, is_passive=True
    )
    link.run(5)
    link.publish(p, "room/999", 1)
    assert link.values("o") == [1]
