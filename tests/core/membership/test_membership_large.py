"""Lists larger than a datagram, and groups larger than a list that is shared whole."""

from __future__ import annotations

from jsonbus.core.limits import SHARE_DELAY_MAX_S
from jsonbus.core.wire.frames import Entry, ListFrame
from tests.core.link import Link, is_repair, is_share


def make_members(count: int, patterns: int = 1) -> list[Entry]:
    return [
        Entry(
            f"member{number:05d}",
            1_700_000_000_000 + number,
            1,
            f"member {number}",
            tuple(f"{number}/topic/{which}" for which in range(patterns)),
        )
        for number in range(count)
    ]


def test_joiner_learns_a_list_of_many_datagrams() -> None:
    link = Link()
    link.add_member("a", make_members(300), share_delay_s=0.0)
    joiner = link.add("late")
    link.run(0.1)
    assert joiner.state == "sure"
    assert len(joiner.view.nodes(link.now)) == 302
    assert joiner.has_subscribers("299/topic/0")
    assert len(link.frames("a", ListFrame)) > 10
    assert max(map(len, link.datagrams)) <= 1400


def test_joiner_takes_over_a_large_group_whose_members_were_heard_long_ago() -> None:
    link = Link()
    link.add_member("a", make_members(2_000), share_delay_s=0.0)  # H = 10 s, a lease is 35 s
    link.now += 9.0
    joiner = link.add("late")
    link.run(0.3)
    assert len(joiner.view.nodes(link.now)) == 2_002


def test_joiner_that_missed_one_part_is_not_sure_and_gets_it_with_its_next_announcement() -> None:
    link = Link()
    link.add_member("a", make_members(300), share_delay_s=0.0)
    link.drop = lambda sender, receiver, frame: (
        isinstance(frame, ListFrame) and frame.part[0] == 3 and receiver.settings.name == "late"
    )
    joiner = link.add("late")
    link.run(0.2)
    assert joiner.state == "joining"
    assert 280 < len(joiner.view.nodes(link.now)) < 302
    link.heal()
    link.run(0.1)
    assert joiner.state == "sure"
    assert len(joiner.view.nodes(link.now)) == 302


def test_change_in_a_large_group_costs_one_datagram_per_repeat() -> None:
    link = Link()
    members = make_members(100)
    a, b = link.add_member("a", members), link.add_member("b", members)
    link.run_until(lambda: a.state == "sure" == b.state and link.agrees(), 60)
    link.forget_sent()
    link.subscribe(a, "t")
    link.run(0.2)
    assert b.has_subscribers("t")
    assert [name for name, _, frame in link.sent if isinstance(frame, ListFrame)] == ["a"]


def test_members_that_differ_exchange_only_what_differs() -> None:
    link = Link()
    members = make_members(200)
    a = link.add_member("a", members)
    b = link.add_member("b", members[:-2])
    link.run(6)
    assert a.has_subscribers("199/topic/0") and b.has_subscribers("199/topic/0")
    assert b.has_subscribers("198/topic/0")
    assert len(a.view.nodes(link.now)) == len(b.view.nodes(link.now)) == 202
    assert link.senders(is_share) == []
    repairs = [frame for _, _, frame in link.sent if is_repair(frame)]
    assert repairs
    assert all(len(frame.entries) < 30 for frame in repairs)


def test_repair_is_answered_by_one_of_many() -> None:
    link = Link()
    members = make_members(60)
    for number in range(8):
        link.add_member(f"a{number}", members, node=f"answerer{number}")
    for node in link.nodes:  # they know each other
        for other in link.nodes:
            if other is not node:
                node._membership.list.put(other.own_entry(), link.now)
    link.add_member("b", [*members[:-1], *(node.own_entry() for node in link.nodes)])
    link.run_until(lambda: link.nodes[-1].has_subscribers("59/topic/0"), 6)
    link.run(SHARE_DELAY_MAX_S)
    assert len(link.senders(is_repair)) <= 3


def test_quiet_large_group_sends_no_list() -> None:
    link = Link()
    entries = make_members(100)
    link.add_member("a", entries)
    link.add_member("b", entries)
    link.run(6.5)  # they learn of each other; the silent members are not expired yet
    link.forget_sent()
    link.run(0.4)
    assert [frame for _, _, frame in link.sent if isinstance(frame, ListFrame)] == []


def test_nodes_with_many_long_patterns_agree() -> None:
    link = Link()
    nodes = [link.add(f"n{number}", opened=False) for number in range(5)]
    for number, node in enumerate(nodes):
        link.subscribe(node, *(f"{number}/{which}/{'x' * 100}" for which in range(12)))
        link.open(node)
    link.run(5)
    late = link.add("late")
    link.run(1)
    assert link.agrees()
    assert len(late.view.subscriptions()) == 60
    # Two entries do not share a datagram, but neither is one that fits made larger by another.
    assert max(map(len, link.datagrams)) <= 2000
