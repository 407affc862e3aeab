"""What nodes count, and tell each other of it."""

from __future__ import annotations

import pytest

from jsonbus.core.limits import INTRODUCTION_HEARTBEATS
from jsonbus.core.node import Node
from jsonbus.core.wire.encode import encode_pong
from jsonbus.core.wire.frames import Frame, MessagesFrame, PresenceFrame, Totals
from tests.core.link import Link, forge, is_share


def known(node: Node, name: str, now: float) -> Totals | None:
    (info,) = [each for each in node.view.nodes(now) if each.name == name]
    return info.totals


def test_each_node_tells_what_it_sent_suppressed_received_lost_and_repaired() -> None:
    link = Link()
    p, s, o = link.add("p"), link.add("s"), link.add("o")
    link.subscribe(s, "t")
    link.run(5)

    def drop(sender: Node, receiver: Node, frame: Frame) -> bool:
        is_message = isinstance(frame, MessagesFrame)
        return receiver is not p and is_message and frame.header.first_message == 2

    link.drop = drop
    for value in range(3):
        p.publish("t", value, link.now, is_reliable=True)
        link.move()
    link.publish(p, "unwanted", 1, 2)
    link.run(10)
    o.ping(link.now)
    link.move()
    ours, theirs = known(o, "p", link.now), known(o, "s", link.now)
    assert ours is not None and theirs is not None
    assert (ours.sent, ours.suppressed, ours.repaired) == (3, 2, 1)
    assert (theirs.received, theirs.lost) == (3, 0)
    own = known(o, "o", link.now)
    assert own is not None and (own.received, own.lost) == (2, 1)  # it only heard them pass


def test_who_answered_a_late_joiner_is_known_to_all() -> None:
    link = Link()
    link.add("master", mode="master", is_master=True)
    a = link.add("a", mode="master")
    link.run(5)
    late = link.add("late", mode="master")
    link.subscribe(late, "t")
    link.run(10)
    shares = len([1 for sender in link.senders(is_share) if sender == "master"])
    totals = known(a, "master", link.now)
    assert totals is not None and totals.shares == shares > 0
    assert known(a, "a", link.now) == Totals(shares=0)


@pytest.mark.parametrize("mode", ["basic", "master", "delayed"])
def test_totals_come_with_the_next_sign_of_life(mode: str) -> None:
    link = Link()
    a, b = link.add("a", mode=mode, is_master=mode == "master"), link.add("b", mode=mode)
    link.run(5)
    link.subscribe(b, "t")
    link.run(1)
    link.publish(a, "t", *range(7))
    link.run(2.0 * (INTRODUCTION_HEARTBEATS + 1))
    totals = known(b, "a", link.now)
    assert totals is not None and totals.sent == 7


def test_held_messages_that_nobody_wanted_count_as_suppressed() -> None:
    link = Link()
    a = link.add("a", opened=False)
    a.publish("t", 1, link.now)
    link.open(a)
    link.run(5)
    assert known(a, "a", link.now) == Totals(suppressed=1)


def test_totals_of_a_node_that_never_told_any_are_unknown() -> None:
    link = Link()
    a = link.add("a")
    link.run(5)
    link.inject(b'{"topic":"jsonbus.topics","payload":["jsonbus.topics","t"]}')
    (plain,) = [each for each in a.view.nodes(link.now) if each.is_plain]
    assert plain.totals is None
    link.add("b")
    link.move()
    assert known(a, "b", link.now) is None  # an announcement has no room for them


@pytest.mark.parametrize(
    "totals", [b"7", b"[]", b"[1,2,3,4,5]", b"[1,2,3,4,5,-1]", b"[1,2,3,4,5,true]", b'"x"']
)
def test_malformed_totals_are_refused(totals: bytes) -> None:
    link = Link()
    a, b = link.add("a"), link.add("b")
    link.run(5)
    identity = {"node": b.settings.node, "incarnation": b.settings.incarnation}
    good = forge(
        encode_pong, counter=100, to="id001", ping_id=1, totals=Totals(9, 9, 9, 9, 9, 9), **identity
    )
    link.inject(good.replace(b"[9,9,9,9,9,9]", totals))
    assert a.view.stats()["rejected_bad_fields"] == 1
    link.inject(good.replace(b"[9,9,9,9,9,9]", b"[9,9,9,9,9,9,10]"))  # of a later version
    assert known(a, "b", link.now) == Totals(9, 9, 9, 9, 9, 9)


def test_suspicions_leave_no_room_for_totals() -> None:
    link = Link()
    a, b = link.add("a"), link.add("b")
    link.run(5)
    link.remove(b)
    link.run(20)
    suspicious = [frame for frame in link.frames("a", PresenceFrame) if frame.suspects]
    assert suspicious and all(frame.totals is None for frame in suspicious)
    assert all(f.totals is not None for f in link.frames("a", PresenceFrame) if not f.suspects)
    assert a in link.nodes
