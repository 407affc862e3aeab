"""basic, and which strategy a mode has."""

from __future__ import annotations

import pytest

from jsonbus.core.membership.strategies import ShareStrategy
from jsonbus.core.settings import NodeSettings
from jsonbus.core.wire.frames import ListFrame, PresenceFrame
from tests.core.link import Link


@pytest.mark.parametrize(
    ("settings", "takes_part", "answers"),
    [
        ({"mode": "basic"}, False, False),
        ({"mode": "master"}, True, False),
        ({"mode": "master", "is_master": True}, True, True),
        ({"mode": "delayed"}, True, True),
    ],
)
def test_mode_decides_who_takes_part_and_who_answers(
    settings: dict[str, object], takes_part: bool, answers: bool
) -> None:
    strategy = ShareStrategy(NodeSettings("a", 1, "a", **settings))  # type: ignore[arg-type]
    assert strategy.takes_part is takes_part
    assert strategy.answers is answers


def test_basic_nodes_never_send_a_list() -> None:
    link = Link()
    nodes = [link.add(name, mode="basic") for name in ("a", "b", "c")]
    for node in nodes:
        link.subscribe(node, "t")
    link.run(60)
    link.close(nodes[0])
    link.run(60)
    assert link.senders(lambda frame: isinstance(frame, ListFrame)) == []


def test_basic_node_sends_everything_and_receivers_filter() -> None:
    link = Link()
    a, b = link.add("a", mode="basic"), link.add("b", mode="basic")
    link.subscribe(b, "wanted")
    assert link.publish(a, "wanted", 1) == [True]
    assert link.publish(a, "unwanted", 2) == [True]
    assert link.values("b") == [1]
    assert b.view.stats()["messages_unwanted"] == 1


def test_basic_node_is_sure_at_once_and_holds_nothing() -> None:
    link = Link()
    a = link.add("a", mode="basic", opened=False)
    link.open(a)
    assert a.state == "sure"
    link.publish(a, "t", 1)
    assert a.held == 0


def test_basic_nodes_presence_carries_no_digest() -> None:
    link = Link()
    link.add("a", mode="basic")
    link.run(5)
    presences = link.frames("a", PresenceFrame)
    assert presences
    assert all(frame.digest is None and frame.mode == "basic" for frame in presences)


def test_while_a_basic_node_is_here_others_send_everything() -> None:
    link = Link()
    a = link.add("a")
    link.run(3)
    assert link.publish(a, "t", 1) == [False]
    b = link.add("b", mode="basic")
    link.subscribe(b, "t")
    link.run(1)
    assert link.publish(a, "t", 2) == [True]
    assert link.publish(a, "unwanted", 3) == [True]
    link.close(b)
    assert link.publish(a, "t", 4) == [False]
    assert link.values("b") == [2]


def test_basic_node_that_crashed_stops_being_sent_to() -> None:
    link = Link()
    a = link.add("a")
    b = link.add("b", mode="basic")
    link.run(3)
    link.remove(b)
    assert link.publish(a, "t", 1) == [True]
    link.run(10)
    assert link.publish(a, "t", 2) == [False]


def test_late_joiner_learns_of_a_basic_node() -> None:
    link = Link()
    b = link.add("b", mode="basic")
    link.subscribe(b, "t")
    link.run(10)
    a = link.add("a")
    link.run(0.3)
    assert link.publish(a, "t", 1) == [True]
    assert link.values("b") == [1]


def test_every_basic_node_tells_a_joiner_that_it_is_there() -> None:
    # If one spoke for all, and left, the others would get nothing from the joiner.
    link = Link()
    basic = [link.add(f"b{number}", mode="basic") for number in range(5)]
    link.subscribe(basic[4], "t")
    link.run(1.3)  # before the first heartbeats
    a = link.add("a")
    link.run(0.21)
    for node in basic[:4]:
        link.close(node)
    assert link.publish(a, "t", 1) == [True]
    assert link.values("b4") == [1]


def test_basic_node_whose_first_presence_was_lost_is_known_though_it_sends_all_the_time() -> None:
    link = Link()
    a = link.add("a")
    link.run(3)
    link.drop = lambda sender, receiver, frame: isinstance(frame, PresenceFrame)
    b = link.add("b", mode="basic")
    link.drop = lambda sender, receiver, frame: False
    for number in range(30):
        link.publish(b, "u", number)
        link.run(0.1)
    assert [node.name for node in a.view.nodes(link.now)] == ["a", "b"]


def test_basic_node_knows_the_others_for_people_to_see() -> None:
    link = Link()
    b = link.add("b", mode="basic")
    a = link.add("a")
    link.subscribe(a, "t")
    link.run(3)
    assert [info.name for info in b.view.nodes(link.now)] == ["b", "a"]
    assert b.view.subscriptions()["t"] == [a.settings.node]


def test_basic_and_delayed_nodes_agree_among_the_delayed() -> None:
    link = Link()
    a, c = link.add("a"), link.add("c")
    link.add("b", mode="basic")
    link.run(5)
    assert (a.state, c.state) == ("sure", "sure")
