"""What a node tells of itself, where it is and what: who hears of it, and when."""

from __future__ import annotations

import pytest

from jsonbus.core.events import NodeJoined, NodeLeft
from jsonbus.core.limits import INTRODUCTION_HEARTBEATS
from jsonbus.core.node import Node
from jsonbus.core.wire.encode import about_size_bytes, encode_list
from jsonbus.core.wire.frames import (
    ABOUT_UNKNOWN,
    About,
    Frame,
    ListFrame,
    PongFrame,
    PresenceFrame,
)
from jsonbus.core.wire.names import (
    DATAGRAM_BYTES_MAX,
    HOST_BYTES_MAX,
    PORT_MAX,
    SOFTWARE_BYTES_MAX,
)
from tests.core.link import Link, forge, is_announcement, is_share

DESK, ATTIC = About("desk", "0.2.0"), About("attic", "0.3.0")
LONGEST = About("\\" * HOST_BYTES_MAX, '"' * SOFTWARE_BYTES_MAX, PORT_MAX)  # JSON doubles them


def told(frame: Frame) -> About:
    return (
        frame.about if isinstance(frame, ListFrame | PresenceFrame | PongFrame) else ABOUT_UNKNOWN
    )


def known(node: Node, name: str, now: float) -> About:
    """What the node knows of the one with that name."""
    (info,) = [each for each in node.view.nodes(now) if each.name == name]
    return About(info.host, info.version, info.channel_port)


@pytest.mark.parametrize("mode", ["basic", "master", "delayed"])
def test_who_joins_is_known_at_once_with_where_and_what_it_is(mode: str) -> None:
    link = Link()
    a = link.add("a", mode=mode, about=DESK)
    link.run(5)
    b = link.add("b", mode=mode, about=ATTIC)  # and no time for anything but what it says first
    assert link.events_of("a", NodeJoined) == [NodeJoined(b.settings.node, "b", ATTIC)]
    assert known(a, "b", link.now) == ATTIC
    assert known(a, "a", link.now) == DESK


def test_who_leaves_or_is_gone_is_reported_with_what_it_had_told() -> None:
    link = Link()
    link.add("a")
    b, c = link.add("b", about=ATTIC), link.add("c", about=DESK)
    link.run(5)
    link.close(b)
    link.remove(c)
    link.run(20)
    assert link.events_of("a", NodeLeft) == [
        NodeLeft(b.settings.node, "b", "left", ATTIC),
        NodeLeft(c.settings.node, "c", "gone", DESK),
    ]


def test_late_joiner_knows_everybody_after_a_heartbeat() -> None:
    link = Link()
    link.add_many(10, about=DESK)
    late = link.add("late")
    link.run(1)
    assert len(late.view.nodes(link.now)) == 11
    link.run(2)
    assert {known(late, f"n{number}", link.now) for number in range(10)} == {DESK}


def test_late_joiner_knows_everybody_after_a_ping() -> None:
    link = Link()
    link.add_many(10, about=DESK)
    late = link.add("late")
    link.run(0.5)
    late.ping(link.now)
    link.run(0)
    link.move()
    assert {known(late, f"n{number}", link.now) for number in range(10)} == {DESK}


def test_node_that_always_talks_says_now_and_then_who_it_is() -> None:
    link = Link()
    a, b = link.add("a", about=DESK), link.add("b", about=DESK)
    link.subscribe(b, "t")
    link.run(100)
    link.forget_sent()
    for number in range(200):
        link.publish(a, "t", number)
        link.run(0.5)
    at = link.times("a", lambda frame: told(frame) == DESK)
    gaps = [later - earlier for earlier, later in zip(at, at[1:], strict=False)]
    # A heartbeat is 2 s, and looked at when the next one would be due.
    assert max(gaps) <= (INTRODUCTION_HEARTBEATS + 1) * 2.0
    assert len(at) <= 100 / (INTRODUCTION_HEARTBEATS * 2.0) + 4  # Trickle's


def test_lists_of_others_tell_nothing() -> None:
    link = Link()
    link.add_many(3, about=DESK)
    link.add("late", about=ATTIC)
    link.run(3)
    shares = [frame for _, _, frame in link.sent if is_share(frame)]
    assert shares and {told(frame) for frame in shares} == {ABOUT_UNKNOWN}


def test_node_that_has_nothing_to_tell_says_nothing() -> None:
    link = Link()
    a, b = link.add("a"), link.add("b")
    link.run(5)
    a.ping(link.now)
    link.move()
    assert not any(b'"host"' in data or b'"sw"' in data for data in link.datagrams)
    assert known(a, "b", link.now) == ABOUT_UNKNOWN
    assert b in link.nodes


def test_news_take_the_place_of_what_was_told_before() -> None:
    link = Link()
    a = link.add("a")
    link.run(3)
    fields = {"entries": [], "digest": None, "sums": None, "covers": None, "settled": False}
    b = link.add("b", about=DESK)
    forged = {"node": b.settings.node, "incarnation": b.settings.incarnation, **fields}
    link.inject(forge(encode_list, counter=100, about=ATTIC, **forged))
    assert known(a, "b", link.now) == ATTIC
    link.inject(forge(encode_list, counter=101, **forged))
    assert known(a, "b", link.now) == ATTIC


def test_it_never_makes_a_datagram_larger_than_allowed() -> None:
    link = Link()
    a = link.add("n" * 255, receive_buffer_bytes=2**53, about=LONGEST)
    number = 0
    while len(link.datagrams) < 40:
        a.subscribe(f"topic/{number}", "sink", link.now)
        number += 1
        link.run(0.1)
    assert max(map(len, link.datagrams)) <= 1400
    assert any(told(frame) == LONGEST for _, _, frame in link.sent if is_announcement(frame))


def test_largest_entry_is_announced_without_it() -> None:
    link = Link()
    a = link.add("a", opened=False, about=LONGEST)
    for number in range(230):
        a.subscribe(f"{number:03d}" + "x" * 250, "sink", link.now)
    link.open(a)
    (announcement,) = [frame for _, _, frame in link.sent if is_announcement(frame)]
    assert told(announcement) == ABOUT_UNKNOWN
    assert DATAGRAM_BYTES_MAX * 0.9 < max(map(len, link.datagrams)) <= DATAGRAM_BYTES_MAX
    link.run(5)
    assert any(told(frame) == LONGEST for frame in link.frames("a", PresenceFrame))


@pytest.mark.parametrize(
    "about", [ABOUT_UNKNOWN, DESK, About("desk"), About(None, "1"), About(channel_port=1), LONGEST]
)
def test_its_size_is_exact(about: About) -> None:
    fields = {"entries": [], "digest": None, "sums": None, "covers": None, "settled": False}
    with_it, without = forge(encode_list, about=about, **fields), forge(encode_list, **fields)
    assert len(with_it) - len(without) == about_size_bytes(about)
