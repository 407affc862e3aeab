"""Nodes that change, leave and come back, on one wire."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from jsonbus.core.events import NodeLeft, StateChanged
from jsonbus.core.node import Node
from jsonbus.core.wire.encode import encode_list
from jsonbus.core.wire.frames import ByeFrame, Entry, ListFrame
from tests.core.link import Link, forge, forge_presence, is_announcement, is_share


def states(link: Link, name: str) -> list[str]:
    return [event.state for event in link.events_of(name, StateChanged)]


# --- Changes --------------------------------------------------------------------------------------


def test_subscriptions_before_opening_are_in_the_first_announcement() -> None:
    link = Link()
    a = link.add("a", opened=False)
    link.subscribe(a, "x", "y")
    link.open(a)
    assert a.own_entry().version == 1
    assert a.own_entry().patterns == ("x", "y")
    assert len(link.frames("a", ListFrame)) == 1


def test_changes_are_gathered_and_announced_within_milliseconds() -> None:
    link = Link()
    a, b = link.add("a"), link.add("b")
    link.run(5)
    link.forget_sent()
    link.subscribe(b, "x", "y", "z")
    link.run(0.006)
    assert len(link.times("b", is_announcement)) == 1
    assert all(a.has_subscribers(topic) for topic in "xyz")


def test_change_that_was_lost_is_repeated() -> None:
    link = Link()
    a, b = link.add("a"), link.add("b")
    link.run(5)
    link.cut_off(b)
    link.subscribe(b, "t")
    link.run(0.2)
    link.heal()
    assert not a.has_subscribers("t")
    link.run(0.06)
    assert a.has_subscribers("t")


def test_change_of_which_all_repeats_were_lost_is_noticed_by_the_digest() -> None:
    link = Link()
    a, b = link.add("a"), link.add("b")
    link.run(5)
    link.cut_off(b)
    link.subscribe(b, "t")
    link.run(1.1)
    link.heal()
    link.run(4)
    assert a.has_subscribers("t")
    assert link.agrees()


def test_unsubscribing_ends_the_sending() -> None:
    link = Link()
    a, b = link.add("a"), link.add("b")
    link.subscribe(b, "t", "u")
    link.run(5)
    assert b.unsubscribe("t", "sink", link.now)
    link.run(0.01)
    assert link.publish(a, "t", 1) == [False]
    assert link.publish(a, "u", 2) == [True]
    assert link.values("b") == [2]


def test_topic_that_two_nodes_want_is_wanted_until_both_left() -> None:
    link = Link()
    a, b, c = link.add("a"), link.add("b"), link.add("c")
    link.subscribe(b, "t")
    link.subscribe(c, "t")
    link.run(5)
    link.close(b)
    assert link.publish(a, "t", 1) == [True]
    link.close(c)
    assert link.publish(a, "t", 2) == [False]


def test_subscribing_twice_to_the_same_is_no_change_to_announce() -> None:
    link = Link()
    a = link.add("a")
    link.subscribe(a, "t")
    link.run(5)
    version = a.own_entry().version
    a.subscribe("t", "another sink", link.now)
    assert a.own_entry().version == version


# --- Leaving --------------------------------------------------------------------------------------


def test_node_that_leaves_is_out_at_once() -> None:
    link = Link()
    a, b = link.add("a"), link.add("b")
    link.subscribe(b, "t")
    link.run(5)
    link.close(b)
    assert link.publish(a, "t", 1) == [False]
    assert link.events_of("a", NodeLeft) == [NodeLeft(b.settings.node, "b", "left")]
    assert a.state == "sure"


def test_joiner_that_left_again_is_owed_nothing() -> None:
    link = Link()
    link.add("a", share_delay_s=0.1)
    link.run(3)
    link.close(link.add("b"))
    link.run(1)
    assert link.senders(is_share) == []


def test_last_of_the_others_to_leave_ends_the_doubt() -> None:
    link = Link()
    a, b = link.add("a"), link.add("b")
    link.run(5)
    link.inject(forge_presence())
    link.run(0.11)
    assert a.state == "doubting"
    link.close(b)
    link.run(9)
    assert a.state == "sure"


def test_datagram_that_a_goodbye_overtook_does_not_bring_the_node_back() -> None:
    link = Link()
    a, b = link.add("a"), link.add("b")
    link.subscribe(b, "t")
    link.run(5)
    b.ping(link.now)
    (late,) = b.outbox.take(link.now)
    link.close(b)
    a.receive_datagram(late, ("10.0.0.2", 2416), link.now)
    link.run(1)
    assert not a.has_subscribers("t")
    assert states(link, "a") == ["sure"]


def test_old_list_does_not_bring_back_who_left() -> None:
    link = Link()
    a, b, c = link.add("a"), link.add("b"), link.add("c")
    link.run(5)
    gone = b.own_entry()
    link.close(b)
    old = forge(
        encode_list,
        node=c.settings.node,
        incarnation=c.settings.incarnation,
        counter=500,
        entries=[(gone, 0.5)],
        digest=None,
        sums=None,
        covers=None,
        settled=True,
    )
    a.receive_datagram(old, ("10.0.0.3", 2416), link.now)
    assert [info.name for info in a.view.nodes(link.now)] == ["a", "c"]


@pytest.mark.parametrize("is_own_word", [False, True])
def test_an_older_version_of_a_node_that_was_forgotten_comes_back_by_its_own_word_only(
    is_own_word: bool,
) -> None:
    link = Link()
    a, b, c = link.add("a"), link.add("b"), link.add("c")
    link.run(5)
    old = b.own_entry()
    link.subscribe(b, "t")
    link.run(2)
    link.cut_off(b)  # alive, but far away for longer than anybody remembers
    link.run(30)
    link.remove(b)
    speaker = b if is_own_word else c
    share = forge(
        encode_list,
        node=speaker.settings.node,
        incarnation=speaker.settings.incarnation,
        counter=500,
        entries=[(old, 0.1)],
        digest=None,
        sums=None,
        covers=None,
        settled=True,
    )
    a.receive_datagram(share, ("10.0.0.3", 2416), link.now)
    found = [info.name for info in a.view.nodes(link.now)]
    assert found == (["a", "b", "c"] if is_own_word else ["a", "c"])


def test_lost_goodbye_is_found_out_by_the_digest() -> None:
    link = Link()
    a, b, c = link.add("a"), link.add("b"), link.add("c")
    link.subscribe(b, "t")
    link.run(5)
    link.drop = lambda sender, receiver, frame: isinstance(frame, ByeFrame) and receiver is a
    link.close(b)
    link.heal()
    assert a.has_subscribers("t") and not c.has_subscribers("t")
    link.run(5)
    assert not a.has_subscribers("t")
    assert link.agrees()


def test_tombstones_are_forgotten_although_lists_carry_them() -> None:
    link = Link()
    before = link.add("first")
    link.run(2)
    for number in range(20):
        after = link.add(f"n{number}")
        link.run(2)
        link.close(before)
        link.run(2)
        before = after
    link.forget_sent()
    link.add("last")
    link.run(1)
    (share,) = [frame for _, _, frame in link.sent if is_share(frame)]
    assert len(share.entries) <= 2 + 3  # the two that live, and the departures of one lease


def test_restarted_node_takes_its_own_place() -> None:
    link = Link()
    a, b = link.add("a"), link.add("b")
    link.subscribe(b, "old")
    link.run(5)
    link.remove(b)
    again = link.add(
        "b again",
        opened=False,
        node=b.settings.node,
        incarnation=b.settings.incarnation + 1,
    )
    link.subscribe(again, "new")
    link.open(again)
    link.run(1)
    assert a.has_subscribers("new") and not a.has_subscribers("old")
    assert len(a.view.nodes(link.now)) == 2
    link.publish(a, "new", 1)
    assert link.values("b again") == [1]


def test_node_restarted_after_its_goodbye_is_heard() -> None:
    link = Link()
    a, b = link.add("a"), link.add("b")
    link.run(5)
    link.close(b)
    again = link.add("b again", node=b.settings.node, incarnation=b.settings.incarnation + 1)
    link.run(1)
    assert [info.name for info in a.view.nodes(link.now)] == ["a", "b again"]
    assert again.state == "sure"


def announce_of(node: Node, **changes: Any) -> bytes:
    """Somebody's list that says this of the node."""
    entry = replace(node.own_entry(), **changes)
    return forge(
        encode_list, entries=[(entry, 0.0)], digest=None, sums=None, covers=None, settled=False
    )


@pytest.mark.parametrize("change", [{}, {"version": 1}, {"incarnation": 1}, {"incarnation": 2**50}])
def test_what_others_say_of_this_node_changes_nothing_unless_it_is_newer(
    change: dict[str, int],
) -> None:
    link = Link()
    a = link.add("a")
    link.subscribe(a, "x")
    link.run(3)
    mine = a.own_entry()
    a.receive_datagram(announce_of(a, **change), ("10.9.9.9", 1), link.now)
    assert a.own_entry() == mine
    assert a.view.nodes(link.now)[0].entry_version == mine.version


@pytest.mark.parametrize("mode", ["delayed", "basic"])
@pytest.mark.parametrize("end", ["left", "gone"])
def test_node_that_others_took_for_gone_says_so_at_once(mode: str, end: str) -> None:
    link = Link()
    a, b = link.add("a", mode=mode), link.add("b")
    link.run(3)
    version = a.own_entry().version
    link.inject(announce_of(a, **{end: True}))
    link.run(0.01)
    assert a.own_entry().version == version + 1
    versions = [info.entry_version for info in b.view.nodes(link.now) if info.name == "a"]
    assert versions == [version + 1]


def test_forged_last_version_is_not_believed() -> None:
    link = Link()
    a, b = link.add("a"), link.add("b")
    link.subscribe(b, "t")
    link.run(5)
    mine = b.own_entry()
    forged = Entry(mine.node, mine.incarnation, 2**53, "b")
    link.inject(
        forge(
            encode_list, entries=[(forged, 0.0)], digest=None, sums=None, covers=None, settled=False
        )
    )
    link.run(5)
    assert a.has_subscribers("t")
    assert b.own_entry() == mine


def test_lone_node_forgets_tombstones_too() -> None:
    link = Link()
    a = link.add("a")
    link.run(3)
    for number in range(5):
        link.close(link.add(f"n{number}"))
    link.run(9)
    link.forget_sent()
    link.add("late")
    link.run(1)
    (share,) = [frame for _, _, frame in link.sent if is_share(frame)]
    assert len(share.entries) == 2
    assert a.state == "sure"
