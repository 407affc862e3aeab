"""master: one node answers, at once."""

from __future__ import annotations

import random

import pytest

from jsonbus.core.events import MasterMissing, StateChanged
from jsonbus.core.membership.strategies import ShareStrategy
from jsonbus.core.settings import NodeSettings
from jsonbus.core.wire.frames import ListFrame, PresenceFrame
from tests.core.link import Link, is_announcement, is_share


def add_group(link: Link, plain_members: int, masters: int = 1) -> None:
    for number in range(masters):
        link.add(f"master{number}", mode="master", is_master=True)
    for number in range(plain_members):
        link.subscribe(link.add(f"n{number}", mode="master"), f"t{number}")
    link.run(5)
    link.forget_sent()


def test_master_answers_at_once_whatever_the_dice_say() -> None:
    strategy = ShareStrategy(NodeSettings("a", 1, "a", mode="master", is_master=True))
    assert strategy.answers
    assert strategy.draw_delay_s(1_000, random.Random(1)) == 0.0
    assert not ShareStrategy(NodeSettings("a", 1, "a", mode="master", is_master=False)).answers


def test_master_answers_a_joiner_without_delay() -> None:
    link = Link()
    add_group(link, 3)
    joiner = link.add("late", mode="master")
    assert joiner.state == "sure"
    assert len(joiner.view.nodes(link.now)) == 5
    assert link.senders(is_share) == ["master0"]


def test_only_the_master_answers_a_joiner() -> None:
    link = Link()
    add_group(link, 9)
    link.add("late", mode="master")
    link.run(1.0)
    assert set(link.senders(is_share)) == {"master0"}
    assert link.senders(is_announcement) == ["late"]


def test_master_does_not_answer_a_list_that_lacks_nothing() -> None:
    link = Link()
    add_group(link, 3)
    link.subscribe(link.nodes[2], "more")
    link.run(1.5)
    assert link.senders(is_share) == []


def test_two_masters_are_harmless() -> None:
    link = Link()
    add_group(link, 3, masters=2)
    joiner = link.add("late", mode="master")
    link.run(3)
    assert joiner.state == "sure"
    assert len(joiner.view.nodes(link.now)) == 6
    assert 1 <= len(link.senders(is_share)) <= 4
    assert all(node.state == "sure" for node in link.nodes)


def test_joiners_within_an_instant_share_one_answer() -> None:
    link = Link()
    add_group(link, 2)
    joiners = [link.add(f"late{number}", mode="master") for number in range(20)]
    link.run(1)
    assert (
        len(link.senders(is_share)) <= 5
    )  # one at once, then one for all the others, with repeats
    assert all(node.state == "sure" for node in joiners)


def test_without_a_master_every_node_tells_a_joiner_of_itself() -> None:
    link = Link()
    for number in range(3):
        link.add(f"n{number}", mode="master")
    link.run(5)
    joiner = link.add("late", mode="master")
    link.run_until(lambda: joiner.state == "sure", 0.5)
    assert joiner.state == "sure"
    assert link.events_of("late", MasterMissing) == [MasterMissing()]
    assert len(joiner.view.nodes(link.now)) == 4
    assert link.senders(is_share) == []


def test_two_joiners_that_know_only_each_other_do_not_confirm_each_other() -> None:
    link = Link()
    for number in range(3):
        link.add(f"n{number}", mode="master").subscribe("wanted", "sink", link.now)
    link.run(5)
    # They hear that others are here, but not what these want.
    link.drop = lambda sender, receiver, frame: (
        receiver.settings.name in ("x", "y")
        and sender.settings.name.startswith("n")
        and isinstance(frame, (ListFrame, PresenceFrame))
    )
    x, y = link.add("x", mode="master"), link.add("y", mode="master")
    for _ in range(3):
        link.nodes[0].ping(link.now)
        link.run(0.5)
    link.run(4)
    assert x.own_entry().node in {node.node for node in y.view.nodes(link.now)}
    assert (x.state, y.state) == ("doubting", "doubting")
    assert link.publish(x, "wanted", 1) == [True]
    link.drop = lambda sender, receiver, frame: False
    link.run(12)
    assert (x.state, y.state) == ("sure", "sure")


def test_uninformed_joiner_says_that_the_master_is_missing() -> None:
    link = Link()
    for number in range(3):
        link.add(f"n{number}", mode="master")
    link.run(5)
    link.drop = lambda sender, receiver, frame: (
        receiver.settings.name == "late" and isinstance(frame, ListFrame)
    )
    joiner = link.add("late", mode="master")
    link.nodes[0].ping(link.now)  # it is there, and never says what it wants
    link.run(10)
    assert link.events_of("late", MasterMissing) == [MasterMissing()]
    assert joiner.state == "doubting"
    assert link.publish(joiner, "anything", 1) == [True]


def test_first_node_of_a_group_without_master_does_not_miss_one() -> None:
    link = Link()
    node = link.add("first", mode="master")
    link.run(5)
    assert node.state == "sure"
    assert link.events_of("first", MasterMissing) == []


@pytest.mark.parametrize("mode", ["master", "delayed"])
def test_master_is_missed_only_where_there_should_be_one(mode: str) -> None:
    link = Link()
    link.add("first", mode=mode, is_master=mode == "master")
    link.run(3)
    link.add("second", mode=mode)
    link.run(3)
    assert link.events_of("first", MasterMissing) == []
    assert link.events_of("second", MasterMissing) == []


def test_master_that_comes_later_informs_everybody() -> None:
    link = Link()
    nodes = [link.add(f"n{number}", mode="master") for number in range(3)]
    link.run(3)
    nodes.append(link.add("late", mode="master"))
    link.run(5)
    link.add("master", mode="master", is_master=True)
    link.run(10)
    assert all(node.state == "sure" for node in link.nodes)
    assert all(len(node.view.nodes(link.now)) == 5 for node in link.nodes)


def test_killed_master_leaves_its_group_working() -> None:
    link = Link()
    add_group(link, 2)
    link.remove(link.nodes[0])
    link.run(10)
    n0, n1 = link.nodes
    assert link.publish(n0, "t1", 1) == [True]
    assert link.values("n1") == [1]
    assert link.publish(n0, "unwanted", 1) == [False]
    assert [event.state for event in link.events_of("n0", StateChanged)][-1] == "sure"


def test_members_that_differ_tell_what_they_know_of_themselves() -> None:
    # Nobody answers for others here; a change that was lost must still get through.
    link = Link()
    a, b = link.add("a", mode="master"), link.add("b", mode="master")
    link.run(5)
    link.cut_off(b)
    link.subscribe(b, "t")
    link.run(1.5)  # all its repeats are lost
    assert not a.has_subscribers("t")
    link.heal()
    link.run(4)
    assert a.has_subscribers("t")
    assert link.senders(is_share) == []
    assert any(isinstance(frame, ListFrame) for frame in link.frames("b", ListFrame))
