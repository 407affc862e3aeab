"""A subscriber that was away gets what it missed, or is told how much that was."""

from __future__ import annotations

from typing import Any

import pytest

from jsonbus.core.events import GapFound
from jsonbus.core.limits import HISTORY_AGE_S
from jsonbus.core.node import Node
from jsonbus.core.wire.frames import BeatFrame, FragmentFrame, NakFrame, PresenceFrame, RepairFrame
from jsonbus.errors import PayloadError
from tests.core.link import Link

AWAY_S = 12.0  # longer than a lease and the grace


def make_pair(link: Link) -> tuple[Node, Node]:
    """A publisher and a subscriber of t that has a place in the stream.

    Somebody else is there as well: a publisher that is alone is not sure, and sends everything.
    """
    p, s, _ = link.add("p"), link.add("s"), link.add("else")
    link.subscribe(s, "t")
    link.run(5)
    assert p.publish("t", 0, link.now, is_reliable=True)
    link.move()
    assert link.values("s") == [0]
    return p, s


def publish(link: Link, node: Node, *values: Any) -> list[bool]:
    """Publish the values to t, reliably; return which of them were accepted."""
    accepted = [node.publish("t", value, link.now, is_reliable=True) for value in values]
    link.move()
    return accepted


def let_expire(link: Link, publisher: Node) -> None:
    """Let time pass until the publisher is sure that nobody else wants t."""
    is_wanted = publisher._router.is_wanted_elsewhere
    link.run_until(lambda: publisher.state == "sure" and not is_wanted("t"), AWAY_S)


def cut_off(link: Link, node: Node, publisher: Node) -> None:
    """Cut the node off for so long that the publisher believes that it is gone."""
    link.cut_off(node)
    let_expire(link, publisher)
    link.forget_sent()


def count_told(link: Link) -> int:
    return sum(gap.last - gap.first + 1 for gap in link.events_of("s", GapFound))


@pytest.mark.parametrize("is_stopped", [False, True])
def test_who_comes_back_soon_gets_everything_in_order(is_stopped: bool) -> None:
    link = Link()
    p, s = make_pair(link)
    if is_stopped:
        link.remove(s)
        let_expire(link, p)
    else:
        cut_off(link, s, p)
    assert publish(link, p, *range(1, 51)) == [False] * 50
    assert p.view.stats()["messages_suppressed"] == 50
    link.run(3)
    if is_stopped:
        link.nodes.append(s)
        s.doubt_network("this node did not listen", link.now)
    link.heal()
    link.run(6)
    assert link.values("s") == list(range(51))
    assert publish(link, p, 51) == [True]
    assert link.values("s") == list(range(52))
    assert link.events_of("s", GapFound) == []
    assert s.view.stats()["messages_lost"] == 0


def test_datagrams_have_room_for_sequences_that_grew_while_nobody_was_there() -> None:
    link = Link()
    p, s = make_pair(link)
    cut_off(link, s, p)
    for number in range(10_000):
        assert not p.publish("t", number, link.now, is_reliable=True)
    link.heal()
    link.run_until(lambda: p._router.is_wanted_elsewhere("t"), 6)
    for _ in range(200):
        assert p.publish("t", 1, link.now, is_reliable=True)
    datagrams = p.outbox.take(link.now)
    assert len(datagrams) >= 2 and max(map(len, datagrams)) <= 1_400


def test_who_comes_back_late_is_told_the_exact_number_in_one_gap() -> None:
    link = Link()
    p, s = make_pair(link)
    cut_off(link, s, p)
    publish(link, p, *range(1, 51))
    link.run(HISTORY_AGE_S + 3)
    assert p.view.stats()["messages_kept_for_repair"] == 0
    link.heal()
    link.run(6)
    (gap,) = link.events_of("s", GapFound)
    assert (gap.topic, gap.first, gap.last) == ("t", 2, 51)
    assert publish(link, p, 51) == [True]
    assert link.values("s") == [0, 51]
    assert s.view.stats()["messages_given_up"] == 50


def test_who_comes_back_in_between_gets_what_is_kept_and_is_told_the_rest() -> None:
    link = Link()
    p, s = make_pair(link)
    link.cut_off(s)
    for number in range(1, 301):
        publish(link, p, number)
        link.run(0.1)
    link.heal()
    link.run(6)
    got = link.values("s")
    assert got == [0, *range(301 - len(got) + 1, 301)]
    assert len(got) > 20
    assert len(got) + count_told(link) == 301
    assert len(link.events_of("s", GapFound)) == 1


def test_an_outage_that_swallows_all_beats_of_the_first_seconds_is_told_in_the_end() -> None:
    link = Link()
    p, s = make_pair(link)
    link.drop = lambda sender, receiver, frame: (
        receiver is s and not isinstance(frame, PresenceFrame)
    )
    publish(link, p, *range(1, 51))
    link.run(60)
    assert p.view.stats()["messages_kept_for_repair"] == 0
    assert s.state == "sure"  # neither was missed by the other
    link.heal()
    link.run(120)
    assert count_told(link) == 50


def test_a_long_stop_is_told_by_the_subscriber_that_was_stopped() -> None:
    link = Link()
    p, s = make_pair(link)
    link.remove(s)
    let_expire(link, p)
    publish(link, p, *range(1, 51))
    link.run(1000)
    link.nodes.append(s)
    s.handle_timer(link.now)
    link.run(6)
    assert count_told(link) == 50


def test_more_than_any_history_holds_is_told_exactly() -> None:
    link = Link()
    p, s = make_pair(link)
    cut_off(link, s, p)
    for number in range(1, 40_001):
        p.publish("t", number, link.now, is_reliable=True)
    link.run(HISTORY_AGE_S + 3)
    link.heal()
    link.run(6)
    assert count_told(link) == 40_000
    publish(link, p, "next")
    assert link.values("s") == [0, "next"]


def test_large_messages_come_too() -> None:
    link = Link()
    p, s = make_pair(link)
    large = [letter * 20_000 for letter in "abc"]
    cut_off(link, s, p)
    publish(link, p, large[0], 1, large[1], large[2], 2)
    assert not link.frames("p", FragmentFrame)
    link.heal()
    link.run(6)
    assert link.values("s") == [0, large[0], 1, large[1], large[2], 2]


def test_nothing_is_sent_for_messages_that_nobody_wants() -> None:
    link = Link()
    p, s = make_pair(link)
    cut_off(link, s, p)
    for number in range(100):
        publish(link, p, number)
        link.run(0.2)
        if number == 5:  # what followed the last message that was sent
            link.forget_sent()
    assert not link.frames("p", BeatFrame)
    assert not link.frames("p", RepairFrame)
    assert p.view.stats()["messages_kept_for_repair"] <= 1 + HISTORY_AGE_S / 0.2
    link.run(HISTORY_AGE_S + 3)
    assert p.view.stats()["messages_kept_for_repair"] == 0


def test_a_new_subscriber_begins_at_the_present_without_a_gap() -> None:
    link = Link()
    p, s = make_pair(link)
    link.unsubscribe(s, "t")
    link.run(1)
    assert publish(link, p, *range(1, 11)) == [False] * 10
    link.subscribe(s, "t")
    late = link.add("late")
    link.subscribe(late, "t")
    link.run(3)
    publish(link, p, 11)
    link.run(3)
    assert link.values("s") == [0, 11]
    assert link.values("late") == [11]
    assert not link.events_of("s", GapFound) + link.events_of("late", GapFound)
    assert not link.frames("s", NakFrame) + link.frames("late", NakFrame)


def test_a_loss_of_other_messages_brings_no_unsent_ones_to_a_new_subscriber() -> None:
    link = Link()
    p, s = make_pair(link)
    link.unsubscribe(s, "t")
    link.run(1)
    publish(link, p, *range(1, 11))
    late = link.add("late")
    link.subscribe(late, "t", "other")
    link.run(1)
    link.drop = lambda sender, receiver, frame: receiver is late
    p.publish("other", 1, link.now)
    link.move()
    link.heal()
    publish(link, p, 11)
    link.run(3)
    assert link.values("late") == [11]


def test_messages_of_a_topic_that_has_local_subscribers_only_are_counted_too() -> None:
    link = Link()
    p, s = make_pair(link)
    link.subscribe(p, "t")
    link.run(1)
    cut_off(link, s, p)
    assert publish(link, p, 1, 2) == [True, True]
    link.heal()
    link.run(6)
    assert link.values("s") == [0, 1, 2]
    assert link.values("p") == [1, 2]


def test_a_value_that_is_no_json_leaves_no_gap() -> None:
    link = Link()
    p, s = make_pair(link)
    cut_off(link, s, p)
    with pytest.raises(PayloadError):
        p.publish("t", object(), link.now, is_reliable=True)
    publish(link, p, 1)
    link.heal()
    link.run(6)
    assert link.values("s") == [0, 1]
    assert s.view.stats()["messages_given_up"] == 0


def test_many_nodes_that_appear_at_once_cause_few_beats() -> None:
    link = Link()
    make_pair(link)
    link.run(HISTORY_AGE_S + 3)
    link.forget_sent()
    for number in range(20):
        link.subscribe(link.add(f"new{number}"), "t")
        link.run(0.1)
    assert 2 <= len(link.frames("p", BeatFrame)) <= 6
    link.run(HISTORY_AGE_S + 3)
    link.forget_sent()
    link.run(60)
    assert len(link.frames("p", BeatFrame)) <= 5  # they thin out


def test_beats_for_a_node_that_appears_come_in_the_order_of_what_it_wants() -> None:
    link = Link()
    p = link.add("p")
    topics = [f"t{number}" for number in range(12)]
    reader = link.add("reader")
    link.subscribe(reader, *topics)
    link.run(3)
    for topic in reversed(topics):
        assert p.publish(topic, 1, link.now, is_reliable=True)
    link.run(HISTORY_AGE_S + 3)
    link.forget_sent()
    link.subscribe(link.add("new"), *topics)
    link.run(1)
    first = link.frames("p", BeatFrame)[0]
    assert [topic for topic, _, _ in first.beats] == sorted(topics)


@pytest.mark.parametrize("count", [0, 100])
def test_who_was_only_deaf_asks_a_publisher_that_never_missed_it(count: int) -> None:
    link = Link()
    p, s = make_pair(link)
    link.drop = lambda sender, receiver, frame: receiver is s
    assert all(publish(link, p, *range(1, count + 1)))
    link.run(HISTORY_AGE_S + 5)
    assert p.has_subscribers("t")
    link.forget_sent()
    link.heal()
    link.run(6)
    assert count_told(link) == count
    assert 1 <= len(link.frames("s", NakFrame)) <= 2


def test_a_publisher_that_is_back_is_not_asked_about_what_is_no_longer_wanted() -> None:
    link = Link()
    p, s = make_pair(link)
    link.drop = lambda sender, receiver, frame: receiver is s
    link.run(HISTORY_AGE_S + 5)
    link.heal()
    link.forget_sent()
    link.run_until(lambda: s._membership.list.get(p.settings.node), 6)
    link.unsubscribe(s, "t")
    link.run(6)
    assert not link.frames("s", NakFrame)
