"""Nodes that join: sure by agreement, sure by silence, or doubting."""

from __future__ import annotations

import pytest

from jsonbus.core.events import InterestChanged, NodeJoined, StateChanged
from jsonbus.core.membership.subscription_list import FrozenList
from jsonbus.core.wire.encode import encode_list, encode_ping
from jsonbus.core.wire.frames import Digest, Entry, Frame, ListFrame, PresenceFrame
from tests.core.link import Link, forge, forge_presence, is_announcement, is_share


def is_presence(frame: Frame) -> bool:
    return isinstance(frame, PresenceFrame)


def states(link: Link, name: str) -> list[str]:
    return [event.state for event in link.events_of(name, StateChanged)]


def test_first_node_is_sure_by_silence() -> None:
    link = Link()
    a = link.add("a")
    link.run(0.74)
    assert a.state == "joining"
    link.run(0.02)
    assert a.state == "sure"
    assert link.times("a", is_announcement) == [0.0, 0.25, 0.5]


def test_joiner_is_sure_by_agreement_as_soon_as_it_is_answered() -> None:
    link = Link()
    link.add("a", share_delay_s=0.01)
    link.run(5)
    b = link.add("b")
    assert b.state == "joining"
    link.run(0.011)
    assert b.state == "sure"
    assert b.view.state_reason == "another node has the same list"


def test_joiner_that_agreed_does_not_repeat_itself() -> None:
    link = Link()
    link.add("a", share_delay_s=0.01)
    link.run(5)
    link.add("b")
    link.run(1.5)
    assert len(link.times("b", is_announcement)) == 1


def test_unanswered_joiner_repeats_at_250_500_and_1000_ms_and_doubts_after_1500() -> None:
    link = Link()
    link.add("a", mode="master")  # nobody who answers
    link.run(5.0)
    link.drop = lambda sender, receiver, frame: (
        receiver.settings.name == "b" and isinstance(frame, ListFrame)
    )
    link.run_until(lambda: is_presence(link.sent[-1][2]), 3)  # one more comes within 2 s
    begun = link.now
    b = link.add("b")
    link.inject(forge_presence())
    link.run(1.49)
    at = [when - begun for name, when, frame in link.sent if name == "b"]
    assert at == pytest.approx([0.0, 0.25, 0.5, 1.0])
    assert b.state == "joining"
    link.run(0.02)
    assert b.state == "doubting"


def test_joiner_that_is_sure_after_doubt_says_so_at_once() -> None:
    link = Link()
    link.add("a", mode="master")  # nobody who answers
    link.run(5.0)
    link.drop = lambda sender, receiver, frame: receiver.settings.name == "b"
    b = link.add("b")
    link.inject(forge_presence())
    link.run(1.6)
    assert b.state == "doubting"
    link.heal()
    link.run_until(lambda: b.state == "sure", 20)
    sure_at = link.now
    link.run(0.21)
    said = [frame for name, at, frame in link.sent if name == "b" and at >= sure_at]
    assert any(isinstance(frame, PresenceFrame) and frame.settled for frame in said)


def test_two_joiners_that_know_nothing_do_not_make_each_other_sure() -> None:
    link = Link()
    a, b = link.add("a"), link.add("b")
    link.run(0.2)
    assert (a.state, b.state) == ("joining", "joining")
    assert link.senders(is_share) == []
    link.run(2)
    assert link.agrees()
    assert states(link, "a") == states(link, "b") == ["sure"]


def test_subscribing_while_joining_does_not_put_off_the_silence() -> None:
    link = Link()
    a = link.add("a")
    for number in range(15):
        link.subscribe(a, f"t{number}")
        link.run(0.1)
    assert states(link, "a") == ["sure"]


def test_joiners_do_not_stop_each_others_repeats() -> None:
    # A third joiner may have missed the first announcements.
    link = Link()
    link.add("a")
    link.add("b")
    link.run(0.6)
    assert link.times("a", is_announcement) == [0.0, 0.25, 0.5]
    assert link.times("b", is_announcement) == [0.0, 0.25, 0.5]


def test_joiner_is_not_sure_by_silence_when_another_joiner_knows_more() -> None:
    link = Link()
    a = link.add("a")
    other = Entry("joiner", 5, 1, "joiner")
    for counter in (1, 2):
        link.inject(
            forge(
                encode_list,
                node="joiner",
                incarnation=5,
                counter=counter,
                entries=[(other, 0.0)],
                digest=Digest(4, 44),
                sums=None,
                covers=None,
                settled=False,
            )
        )
        link.run(0.5)
    assert a.state == "doubting"
    assert link.publish(a, "t", 1) == [True]


def test_joiner_that_learned_what_it_lacked_is_sure_by_silence() -> None:
    link = Link()
    a = link.add("a")
    x, y = Entry("x", 5, 1, "x"), Entry("y", 5, 1, "y")
    for entry, digest in ((x, FrozenList([x, y]).digest), (y, FrozenList([y]).digest)):
        link.inject(
            forge(
                encode_list,
                node=entry.node,
                incarnation=5,
                entries=[(entry, 0.0)],
                digest=digest,
                sums=None,
                covers=None,
                settled=False,
            )
        )
    link.run(0.76)
    assert a.state == "sure"


def test_nodes_that_start_together_do_not_answer_each_other() -> None:
    link = Link()
    nodes = [link.add(f"n{number}", opened=False) for number in range(30)]
    for node in nodes:
        link.subscribe(node, "t")
        link.open(node)
        link.run(0.01)
    link.run(5)
    assert link.agrees()
    assert all(len(node.view.nodes(link.now)) == 30 for node in nodes)
    assert len(link.senders(is_share)) <= 2


def test_node_that_is_sure_by_silence_lets_waiting_joiners_know() -> None:
    link = Link()
    link.add("a")
    link.run(0.3)
    b = link.add("b")
    link.run(0.5)  # a's silence ended
    assert is_presence(link.sent[-1][2]) or b.state == "sure"
    link.run(0.25)
    assert b.state == "sure"


def test_node_that_hears_strangers_does_not_become_sure_by_silence() -> None:
    link = Link()
    a = link.add("a")
    link.run(3)
    for counter in range(1, 20):
        link.inject(forge_presence(counter))
        link.run(0.3)
        if counter > 1:
            assert a.state == "doubting"
    link.run(9)  # they fell silent
    assert a.state == "sure"


def test_heartbeats_of_strangers_keep_a_node_in_doubt() -> None:
    link = Link()
    a = link.add("a")
    link.run(3)
    link.inject(forge_presence())
    link.run(0.11)
    for counter in range(2, 10):
        assert states(link, "a") == ["sure", "doubting"]
        link.run(2)
        link.inject(forge_presence(counter))
    link.run(9)
    assert a.state == "sure"


def test_messages_of_an_unknown_node_are_no_silence_either() -> None:
    link = Link()
    a = link.add("a")
    link.run(3)
    for counter in range(1, 20):
        link.inject(forge(encode_ping, counter=counter, ping_id=1))
        link.run(0.3)
        if counter > 1:
            assert a.state == "doubting"
    link.run(9)
    assert a.state == "sure"


def test_joiner_that_gave_up_and_is_alone_becomes_sure_in_the_end() -> None:
    link = Link()
    a = link.add("a")
    link.inject(forge_presence())
    link.run(1.6)
    assert a.state == "doubting"
    link.run(9)
    assert a.state == "sure"


def test_events_tell_who_joined_and_what_changed() -> None:
    link = Link()
    a = link.add("a")
    link.run(3)
    b = link.add("b", opened=False)
    link.subscribe(b, "t")
    link.open(b)
    assert link.events_of("a", NodeJoined) == [NodeJoined(b.settings.node, "b")]
    assert link.events_of("a", InterestChanged) == [InterestChanged()]
    link.run(3)
    assert link.events_of("b", NodeJoined) == [NodeJoined(a.settings.node, "a")]
    assert states(link, "a") == ["sure"]
    assert states(link, "b") == ["sure"]
