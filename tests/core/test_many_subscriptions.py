"""A node with more subscriptions than a datagram can name."""

from __future__ import annotations

import random
from typing import Any

import pytest

from jsonbus.core.limits import GIVE_REPEAT_S, GIVE_TIMES, NAMED_BYTES_MAX
from jsonbus.core.membership.naming import Naming, in_datagrams
from jsonbus.core.node import Node
from jsonbus.core.wire.encode import encode_list
from jsonbus.core.wire.frames import ListFrame, RetainedFrame
from tests.core.link import START, Link, digest_of, forge

MANY = 100_000
TOPICS = [f"plant/{number % 100}/{number}" for number in range(MANY)]
NEAR = [f"plant/7/{number}" for number in range(5_000)]  # more than fit; one pattern covers all


@pytest.fixture
def link() -> Link:
    return Link()


def make_pair(link: Link, topics: list[str]) -> tuple[Node, Node]:
    """A publisher, and a subscriber to those topics."""
    publisher, reader = link.add("publisher"), link.add("reader")
    link.run(3)
    for topic in topics:
        reader.subscribe(topic, "sink", link.now)
    link.run(3)
    assert link.agrees()
    return publisher, reader


def namings(link: Link) -> list[ListFrame]:
    return [each for each in link.frames("reader", ListFrame) if each.topics and not each.entries]


@pytest.mark.slow
def test_a_hundred_thousand_subscriptions_get_their_messages_and_no_others(link: Link) -> None:
    publisher, reader = make_pair(link, TOPICS)
    assert max(map(len, link.datagrams)) <= 65_507
    wanted = random.Random(1).sample(TOPICS, 300)
    for number, topic in enumerate(wanted):
        assert publisher.has_subscribers(topic)
        assert publisher.publish(topic, number, link.now, is_reliable=number % 2 == 0)
    link.publish(publisher, "plant/1/unwanted", None)
    link.move()
    assert link.values("reader") == list(range(300))
    assert link.publish(publisher, "door", 1) == [False]
    newcomer = link.add("newcomer")  # hears of it by a share
    link.run(3)
    assert link.agrees()
    assert link.publish(newcomer, TOPICS[-1], "late") == [True]
    assert link.values("reader")[-1] == "late"
    # All at once, and one by one, ends as it began.
    assert reader.unsubscribe(tuple(TOPICS[: MANY // 2]), "sink", link.now)
    for topic in TOPICS[MANY // 2 :]:
        assert reader.unsubscribe(topic, "sink", link.now)
    link.run(3)
    assert link.publish(publisher, TOPICS[0], 1) == [False]
    assert publisher.view.subscriptions() == {}


def test_it_is_told_plainly_that_patterns_stand_for_others(link: Link) -> None:
    publisher, reader = make_pair(link, NEAR)
    [info] = [each for each in publisher.view.nodes(link.now) if each.name == "reader"]
    assert info.is_coarse
    assert "plant/7/*" in publisher.view.subscriptions()
    explanation = publisher.view.explain("plant/7/unwanted")
    assert explanation.verdict == "sent"
    assert "too many subscriptions" in explanation.reason
    reader.unsubscribe(tuple(NEAR[100:]), "sink", link.now)
    link.run(1)
    [info] = [each for each in publisher.view.nodes(link.now) if each.name == "reader"]
    assert not info.is_coarse
    assert set(info.wants) == set(NEAR[:100])
    assert "wanted by reader" in publisher.view.explain(NEAR[7]).reason
    assert publisher.view.explain("plant/7/unwanted").verdict == "suppressed"


def test_a_covered_subscription_needs_no_announcement(link: Link) -> None:
    publisher, reader = make_pair(link, NEAR)
    version = reader.own_entry().version
    link.forget_sent()
    reader.subscribe("plant/7/new", "sink", link.now)
    link.publish(publisher, "plant/7/new", "at once")
    link.run(3)
    assert reader.own_entry().version == version
    assert link.values("reader") == ["at once"]
    assert [frame.topics for frame in namings(link)] == [["plant/7/new"]] * GIVE_TIMES


@pytest.mark.parametrize("lost", range(GIVE_TIMES))
def test_a_covered_subscription_is_given_the_retained_value(link: Link, lost: int) -> None:
    publisher, reader = make_pair(link, NEAR)
    publisher.publish("plant/7/new", {"kept": 1}, link.now, is_retained=True)
    publisher.publish("plant/7/large", "x" * 200_000, link.now, is_retained=True)
    link.run(3)
    left = [lost]

    def drop(sender: Node, receiver: Node, frame: object) -> bool:
        if isinstance(frame, ListFrame) and frame.topics and not frame.entries:
            left[0] -= 1
            return left[0] >= 0
        return False

    link.drop = drop
    for topic in ("plant/7/new", "plant/7/large"):
        reader.subscribe(topic, "sink", link.now)
    link.run(3)
    given = [(message.topic, message.origin.is_retained) for message in link.received["reader"]]
    assert sorted(given) == [("plant/7/large", True), ("plant/7/new", True)]


def test_a_reliable_message_lost_after_a_covered_subscription_is_repaired(link: Link) -> None:
    publisher, reader = make_pair(link, NEAR)
    link.publish(publisher, NEAR[0], "before")
    reader.subscribe("plant/7/new", "sink", link.now)
    link.cut_off(publisher)
    assert publisher.publish("plant/7/new", "lost", link.now, is_reliable=True)
    link.move()
    link.heal()
    link.run(3)
    assert link.values("reader") == ["before", "lost"]


@pytest.mark.slow
def test_the_entry_grows_and_shrinks_while_others_come_and_go(link: Link) -> None:
    publisher, reader = make_pair(link, TOPICS[:10])
    dice = random.Random(3)
    wanted = set(TOPICS[:10])
    for _ in range(30):
        topics = dice.sample(TOPICS, dice.choice((10, 500, 3_000)))
        if dice.random() < 0.5:
            wanted.update(topics)
            reader.subscribe(tuple(topics), "sink", link.now)
        else:
            wanted.difference_update(topics)
            reader.unsubscribe(tuple(topics), "sink", link.now)
        link.run(0.3)
        assert publisher.state == "sure"
        some = dice.sample(sorted(wanted), min(200, len(wanted)))
        assert all(map(publisher.has_subscribers, some))
        if dice.random() < 0.2:
            link.add(f"guest at {link.now}")
    link.run(3)
    assert link.agrees()
    assert max(map(len, link.datagrams)) <= 65_507


def test_nothing_is_given_to_strangers_who_only_name_patterns(link: Link) -> None:
    publisher, _ = make_pair(link, NEAR)
    publisher.publish("plant/7/new", {"kept": 1}, link.now, is_retained=True)
    link.run(3)
    link.forget_sent()
    list_fields: dict[str, Any] = {"sums": None, "covers": None, "settled": True}
    list_fields["patterns"] = ["**"]
    for number in range(100):
        stranger, digest = f"stranger{number}", digest_of(publisher)
        link.inject(forge(encode_list, node=stranger, entries=[], digest=digest, **list_fields))
    link.run(3)
    assert link.frames("publisher", RetainedFrame) == []


def take_all(naming: Naming) -> list[tuple[float, list[str]]]:
    """What is named, and how long after START, until nothing is left to name."""
    taken = []
    while naming.timer_at != float("inf"):
        now = naming.timer_at
        taken.append((round(now - START, 3), naming.take(now)))
    return taken


def test_of_very_many_covered_patterns_everything_is_named() -> None:
    naming = Naming()
    naming.add(["a"], START)
    naming.add(["b", "c"], START)
    assert naming.take(START) == ["a", "b", "c"]
    naming.add(["x" * 200 + str(number) for number in range(NAMED_BYTES_MAX // 200)], START)
    assert naming.take(START) == ["**"]
    assert [named for _, named in take_all(naming)] == [["**"]] * (GIVE_TIMES - 1)


def test_what_is_new_is_named_as_often_after_everything_was() -> None:
    naming = Naming()
    naming.add(["**"], START)
    assert naming.take(START) == ["**"]
    assert naming.take(naming.timer_at) == ["**"]
    naming.add(["a"], START + GIVE_REPEAT_S)
    times = sum("a" in named for _, named in take_all(naming))
    assert times == GIVE_TIMES


def test_names_are_repeated_and_then_forgotten() -> None:
    naming = Naming()
    naming.add(["a"], START)
    assert take_all(naming) == [(0.005, ["a"]), (0.305, ["a"]), (0.605, ["a"])]


def test_names_are_not_repeated_sooner_because_more_are_added() -> None:
    naming, named_at = Naming(), []
    naming.add(["a"], START)
    for number in range(200):
        now = naming.timer_at
        if "a" in naming.take(now):
            named_at.append(round(now - START, 3))
        naming.add([f"b{number}"], now)
    assert named_at == [0.005, 0.305, 0.605]


def test_repeats_of_more_than_fits_a_datagram_take_several() -> None:
    naming, patterns = Naming(), [f"{number:0100}" for number in range(100)]
    for pattern in patterns:
        naming.add([pattern], START)
        assert naming.take(START) == [pattern]
    groups = list(in_datagrams(naming.take(naming.timer_at)))
    assert [pattern for group in groups for pattern in group] == patterns
    assert len(groups) == 2
    assert all(len(str(group)) <= NAMED_BYTES_MAX for group in groups)
    for number in range(1_000):
        naming.add([f"{number:0200}"], START)
        naming.take(START)
    assert "**" in naming.take(naming.timer_at)
