"""Nodes that fall silent: suspected, asked for, expired, and back again."""

from __future__ import annotations

from jsonbus.core.events import InterestChanged, NodeJoined, NodeLeft, StateChanged
from jsonbus.core.wire.frames import Frame, PresenceFrame
from tests.core.link import Link

LEASE_AND_GRACE = 7.0 + 1.0


def is_question(frame: Frame) -> bool:
    return isinstance(frame, PresenceFrame) and bool(frame.suspects)


def test_crashed_node_is_sent_to_until_lease_and_grace_are_over() -> None:
    link = Link()
    a, b = link.add("a"), link.add("b")
    link.subscribe(b, "t")
    link.run(10)
    link.remove(b)
    link.run(4.9)  # it may have been heard 2 s before it crashed
    assert link.publish(a, "t", 1) == [True]
    link.run(LEASE_AND_GRACE - 4.9 + 0.3)
    assert link.events_of("a", NodeLeft) == [NodeLeft(b.settings.node, "b", "gone")]
    assert link.events_of("a", InterestChanged)
    link.run(2)
    assert link.publish(a, "t", 2) == [False]


def test_node_that_only_an_old_list_knows_expires_by_when_it_was_heard() -> None:
    link = Link()
    a, b = link.add("a"), link.add("b")
    link.run(10)
    link.remove(b)
    link.run(4)
    link.add("late")  # hears of b from a, with b's age
    link.run(0.5)
    link.remove(a)
    link.run(LEASE_AND_GRACE - 4)
    assert {event.name for event in link.events_of("late", NodeJoined)} == {"a", "b"}
    assert [event.name for event in link.events_of("late", NodeLeft)] == ["b"]


def test_one_node_asks_for_all() -> None:
    link = Link()
    nodes = link.add_many(10)
    link.remove(nodes[3])
    link.forget_sent()
    link.run(9)
    assert 1 <= len(link.senders(is_question)) <= 2
    assert link.agrees()
    assert all(len(node.view.nodes(link.now)) == 9 for node in link.nodes)


def test_all_expire_a_crashed_node_together() -> None:
    link = Link()
    nodes = link.add_many(6)
    link.remove(nodes[0])
    link.run(9)
    assert link.agrees()
    for name in ("n1", "n2", "n3", "n4", "n5"):
        assert [event.name for event in link.events_of(name, NodeLeft)] == ["n0"]
        # Silence is a guess: until another node agrees, nothing is withheld.
        assert [event.state for event in link.events_of(name, StateChanged)][-2:] == [
            "doubting",
            "sure",
        ]


def test_suspected_live_node_survives() -> None:
    link = Link()
    a, b, c = link.add("a"), link.add("b"), link.add("c")
    link.subscribe(c, "t")
    link.run(5)
    link.drop = lambda sender, receiver, frame: sender is c
    link.run_until(lambda: link.senders(is_question), 9)
    link.heal()
    link.run(20)
    assert link.events_of("a", NodeLeft) == link.events_of("b", NodeLeft) == []
    assert a.view.stats()["suspicions_sent"] + b.view.stats()["suspicions_sent"] >= 1
    assert a.has_subscribers("t") and b.has_subscribers("t")


def test_node_that_only_others_hear_is_not_expired() -> None:
    link = Link()
    a, _, c = link.add("a"), link.add("b"), link.add("c")
    link.subscribe(c, "t")
    link.run(5)
    link.drop = lambda sender, receiver, frame: sender is c and receiver is a
    link.run(60)
    assert link.events_of("a", NodeLeft) == []
    assert a.has_subscribers("t")


def test_last_other_node_that_is_gone_means_doubt_then_silence() -> None:
    link = Link()
    a, b = link.add("a"), link.add("b")
    link.run(5)
    link.remove(b)
    link.run_until(lambda: a.state == "doubting", 10)
    assert a.view.state_reason == "a node has fallen silent"
    link.run(1)
    assert a.state == "sure"


def test_expired_node_that_is_heard_again_comes_back_with_what_it_wants() -> None:
    link = Link()
    a, b = link.add("a"), link.add("b")
    link.subscribe(b, "t")
    link.run(5)
    link.cut_off(b)
    link.run(12)
    assert not a.has_subscribers("t")
    link.heal()
    b.ping(link.now)  # any word of it will do
    link.move()
    assert a.has_subscribers("t")
    assert link.publish(a, "t", 1) == [True]
    assert [event.name for event in link.events_of("a", NodeJoined)] == ["b", "b"]
    link.run(3)
    assert link.agrees()


def test_node_that_was_gone_for_long_comes_back_as_an_unknown_one() -> None:
    # Others may have forgotten a newer version of it by then, and would take the old one for news.
    link = Link()
    a, b = link.add("a"), link.add("b")
    link.subscribe(b, "t")
    link.run(5)
    link.cut_off(b)
    link.run(30)
    link.heal()
    b.ping(link.now)
    link.move()
    assert not a.has_subscribers("t")
    link.run(3)
    assert a.has_subscribers("t")
    assert link.agrees()


def test_node_that_slept_does_not_bring_back_what_the_others_have_forgotten() -> None:
    link = Link()
    a, b = link.add("a"), link.add("b")
    link.subscribe(b, "t")
    link.run(5)
    link.nodes.remove(a)  # a's machine is suspended
    link.cut_off(b)
    link.run(30)
    link.nodes.insert(0, a)
    link.run_until(lambda: not a.has_subscribers("t"), 3)
    link.heal()
    b.ping(link.now)
    link.move()
    assert not a.has_subscribers("t")
    link.run(3)
    assert a.has_subscribers("t")
    assert link.agrees()


def test_node_cut_off_for_long_agrees_again() -> None:
    link = Link()
    a, b = link.add("a"), link.add("b")
    link.subscribe(b, "t")
    link.run(5)
    link.cut_off(b)
    link.run(100)
    link.subscribe(b, "u")
    link.run(2)
    link.heal()
    link.run(4)
    assert a.has_subscribers("t") and a.has_subscribers("u")
    assert link.agrees()


def test_late_joiner_does_not_bring_back_a_gone_node_without_its_patterns() -> None:
    # Tombstones travel without patterns. The node that was only cut off must get what it wants.
    link = Link()
    a, b = link.add("a"), link.add("b")
    link.subscribe(b, "t")
    link.run(5)
    link.cut_off(b)
    link.run(9)
    assert not a.has_subscribers("t")
    late = link.add("late")
    link.run(2)
    link.heal()
    link.run(6)
    assert a.has_subscribers("t") and late.has_subscribers("t")
    assert link.agrees()


def test_everybody_who_was_cut_off_is_expired_and_comes_back() -> None:
    link = Link()
    nodes = link.add_many(8)
    link.subscribe(nodes[0], "left")
    link.subscribe(nodes[7], "right")
    link.run(3)
    link.cut_off(*nodes[:4])
    link.run(15)
    assert all(len(node.view.nodes(link.now)) == 4 for node in nodes)
    link.heal()
    link.run(6)
    assert link.agrees()
    assert nodes[7].has_subscribers("left") and nodes[0].has_subscribers("right")


def test_node_that_slept_does_not_expire_the_others_without_asking() -> None:
    link = Link()
    a, b = link.add("a"), link.add("b")
    link.subscribe(b, "t")
    link.run(5)
    link.nodes.remove(a)  # a's machine is suspended
    link.run(60)
    link.nodes.insert(0, a)
    link.run(3)
    assert link.events_of("a", NodeLeft) == []
    assert a.has_subscribers("t")


def test_silent_nodes_list_entry_ages_in_lists() -> None:
    # Who learns of a node by a list alone must expire it when the list's age says so.
    link = Link()
    a, b = link.add("a", share_delay_s=0.0), link.add("b")
    link.run(5)
    link.remove(b)
    link.run(5)
    late = link.add("late")
    link.run(0.1)
    ages = {info.name: info.heard_s_ago for info in late.view.nodes(link.now)}
    assert 4.9 < ages["b"] < 7.2
    link.run(4)
    assert [info.name for info in late.view.nodes(link.now)] == ["late", "a"]
    assert a.state == "sure"
