"""Retained values among nodes: the last one, once, to whoever comes late."""

from __future__ import annotations

import random
from typing import Any

import pytest

from jsonbus.core.limits import GIVE_DELAY_MAX_S, GIVE_TIMES
from jsonbus.core.node import Node
from jsonbus.core.values import retained
from jsonbus.core.wire.frames import Frame, MessagesFrame, RetainedFrame
from jsonbus.errors import LocalError
from tests.core.link import Link


def retain(link: Link, node: Node, topic: str, *values: Any, is_reliable: bool = False) -> None:
    for value in values:
        assert node.publish(topic, value, link.now, is_reliable=is_reliable, is_retained=True)
    link.move()


def make_publisher(link: Link) -> Node:
    p = link.add("p")
    link.run(3)
    return p


def join(link: Link, name: str, *patterns: str, **settings: Any) -> Node:
    """A node that comes late, and has been served."""
    node = link.add(name, **settings)
    link.subscribe(node, *patterns)
    link.run(3)
    return node


def got(link: Link, name: str) -> list[tuple[str, Any, bool]]:
    return [(message.topic, message.value, message.retained) for message in link.received[name]]


def test_a_late_subscriber_gets_the_last_value_once_flagged() -> None:
    link = Link()
    p = make_publisher(link)
    retain(link, p, "door", "open", "closed")  # nobody is there
    join(link, "late", "door")
    assert got(link, "late") == [("door", "closed", True)]
    (message,) = link.received["late"]
    assert (message.name, message.node) == ("p", p.settings.node)
    assert message.sent_at < message.received_at
    link.run(20)
    assert len(link.received["late"]) == 1
    assert len(link.frames("p", RetainedFrame)) == GIVE_TIMES


def test_who_is_there_gets_the_fresh_value_and_no_other() -> None:
    link = Link()
    p = make_publisher(link)
    join(link, "early", "**")
    retain(link, p, "door", "open")
    join(link, "late", "door")
    link.run(5)
    assert got(link, "early") == [("door", "open", False)]
    assert got(link, "late") == [("door", "open", True)]
    (fresh,), (given,) = link.received["early"], link.received["late"]
    assert fresh.sequence == given.sequence == 1
    assert given.sent_at == pytest.approx(fresh.sent_at, abs=1e-5)


@pytest.mark.parametrize("pattern", ["a/*", "a/**", "**"])
def test_a_pattern_gets_all_topics_that_it_matches(pattern: str) -> None:
    link = Link()
    p = make_publisher(link)
    for number in range(100):
        retain(link, p, f"a/{number}", {"number": number, "text": "x" * 30})
    retain(link, p, "b", 1)
    join(link, "late", pattern)
    values = {topic: value for topic, value, _ in got(link, "late") if topic != "b"}
    assert {value["number"] for value in values.values()} == set(range(100))
    assert max(map(len, link.datagrams)) <= 1400


def test_none_ends_it_and_reaches_who_is_there() -> None:
    link = Link()
    p = make_publisher(link)
    join(link, "early", "door")
    retain(link, p, "door", "open")
    retain(link, p, "door", None)
    assert p.view.stats()["values_retained"] == 0
    join(link, "late", "door")
    assert got(link, "early") == [("door", "open", False), ("door", None, False)]
    assert got(link, "late") == []
    early = link.nodes[1]
    early.subscribe("door", "another", link.now)
    assert early.take_deliveries() == []


def test_a_fresh_value_cancels_what_was_about_to_be_given() -> None:
    link = Link()
    p = make_publisher(link)
    retain(link, p, "door", "old")
    late = link.add("late")
    link.subscribe(late, "door")
    link.run_until(lambda: p.has_subscribers("door"), 3)
    link.forget_sent()
    retain(link, p, "door", "new")
    link.run(3)
    assert got(link, "late") == [("door", "new", False)]
    assert link.frames("p", RetainedFrame) == []


@pytest.mark.parametrize("seed", range(10))
def test_a_lost_gift_is_made_good(seed: int) -> None:
    link = Link(seed)
    p = make_publisher(link)
    retain(link, p, "door", "open")
    dropped: list[Frame] = []

    def drop(sender: Node, receiver: Node, frame: Frame) -> bool:
        if isinstance(frame, RetainedFrame) and len(dropped) < GIVE_TIMES - 1:
            dropped.append(frame)
            return True
        return False

    late = link.add("late")
    link.subscribe(late, "door")
    link.drop = drop
    link.run(3)
    assert got(link, "late") == [("door", "open", True)]


def test_a_subscriber_that_starts_anew_is_given_it_again() -> None:
    link = Link()
    p = make_publisher(link)
    retain(link, p, "door", "open")
    late = join(link, "late", "door", node="same", incarnation=1)
    link.remove(late)
    link.run(1)
    again = link.add("again", node="same", incarnation=2)
    link.subscribe(again, "door")
    link.run(3)
    assert got(link, "again") == [("door", "open", True)]


def test_a_second_subscription_of_the_same_node_gets_it_too_and_the_first_not_again() -> None:
    link = Link()
    p = make_publisher(link)
    retain(link, p, "door", "open")
    late = join(link, "late", "door")
    assert got(link, "late") == [("door", "open", True)]
    late.subscribe("**", "second", link.now)
    ((sink, messages),) = late.take_deliveries()
    assert sink == "second"
    assert [(each.value, each.retained) for each in messages] == [("open", True)]
    link.run(3)
    assert len(link.received["late"]) == 1
    # Also of a value that came when it was fresh.
    retain(link, p, "door", "closed")
    late.subscribe("door", "third", link.now)
    link.move()
    assert [message.value for message in link.received["late"]][-1] == "closed"


def test_the_publishers_own_subscription_gets_it_too() -> None:
    link = Link()
    p = make_publisher(link)
    retain(link, p, "door", {"state": "open"})
    p.subscribe("door", "own", link.now)
    ((_, (message,)),) = p.take_deliveries()
    assert (message.value, message.retained, message.node) == (
        {"state": "open"},
        True,
        p.settings.node,
    )


@pytest.mark.parametrize("size", [5_000, 200_000])
def test_a_large_value_is_retained_too(size: int) -> None:
    link = Link()
    p = make_publisher(link)
    value = ["x" * size, '"quoted"']
    join(link, "early", "other")
    retain(link, p, "map", value)
    join(link, "late", "map")
    link.run(2)
    assert got(link, "late") == [("map", value, True)]
    assert got(link, "early") == []
    assert max(map(len, link.datagrams)) <= 1400


def test_many_that_come_at_once_are_served_together() -> None:
    link = Link()
    p = make_publisher(link)
    retain(link, p, "door", "open")
    for number in range(20):
        node = link.add(f"n{number}")
        link.subscribe(node, "door")
    link.run(4)
    for number in range(20):
        assert got(link, f"n{number}") == [("door", "open", True)]
    assert len(link.frames("p", RetainedFrame)) <= 4 * GIVE_TIMES


def test_it_may_be_reliable_as_well() -> None:
    link = Link()
    p = make_publisher(link)
    join(link, "early", "t")
    dice = random.Random(3)
    link.drop = lambda s, r, frame: isinstance(frame, MessagesFrame) and dice.random() < 0.3
    for number in range(40):
        retain(link, p, "t", number, is_reliable=True)
        link.run(0.01)
    link.heal()
    link.run(3)
    assert [message.value for message in link.received["early"]] == list(range(40))
    join(link, "late", "t")
    assert got(link, "late") == [("t", 39, True)]


def test_a_plain_peer_gets_fresh_values_and_is_given_none() -> None:
    link = Link()
    p = make_publisher(link)
    retain(link, p, "door", "open")
    link.inject(b'{"topic":"jsonbus.topics","payload":["jsonbus.topics","door"]}')
    link.forget_sent()
    retain(link, p, "door", "closed")
    link.run(3)
    assert link.datagrams[0].startswith(b'{"topic":"door","payload":"closed"')
    assert link.frames("p", RetainedFrame) == []


def test_what_is_kept_is_bounded_and_the_publisher_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(retained, "RETAINED_TOPICS_MAX", 3)
    monkeypatch.setattr(retained, "RETAINED_BYTES_MAX", 100)
    link = Link()
    p = make_publisher(link)
    for number in range(3):
        retain(link, p, f"t/{number}", number)
    with pytest.raises(LocalError, match="3 topics have a retained value, no more are allowed"):
        p.publish("t/3", 3, link.now, is_retained=True)
    retain(link, p, "t/0", "again")
    with pytest.raises(LocalError, match="would exceed 100"):
        p.publish("t/0", "x" * 100, link.now, is_retained=True)
    retain(link, p, "t/1", None)
    retain(link, p, "t/3", 3)
    join(link, "late", "**")
    assert sorted(got(link, "late")) == [("t/0", "again", True), ("t/2", 2, True), ("t/3", 3, True)]


def test_gifts_wait_no_longer_than_they_should() -> None:
    link = Link()
    p = make_publisher(link)
    retain(link, p, "door", "open")
    late = link.add("late")
    link.subscribe(late, "door")
    link.run_until(lambda: p.has_subscribers("door"), 3)
    known_at = link.now
    link.run_until(lambda: link.received["late"], 3)
    assert link.now - known_at <= GIVE_DELAY_MAX_S + 0.002


def test_a_value_that_was_heard_fresh_is_not_given_again_after_an_outage() -> None:
    link = Link()
    p = make_publisher(link)
    s = join(link, "s", "door")
    retain(link, p, "door", "open")
    link.cut_off(s)
    link.run(30)  # both have given the other up
    link.heal()
    link.run(30)
    assert got(link, "s") == [("door", "open", False)]


def test_who_subscribes_anew_after_an_outage_is_given_the_value_again() -> None:
    link = Link()
    p = make_publisher(link)
    retain(link, p, "door", "open")
    s = join(link, "s", "door")
    link.unsubscribe(s, "door")
    link.cut_off(s)
    link.run(30)  # what came from who is gone is no longer kept
    link.heal()
    link.run(30)
    link.subscribe(s, "door")
    link.run(3)
    assert got(link, "s") == [("door", "open", True)] * 2
