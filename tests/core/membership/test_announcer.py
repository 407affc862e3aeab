"""What a node says of itself: announcements, presence, goodbye."""

from __future__ import annotations

import pytest

from jsonbus.core.limits import COMPANY_NODES
from jsonbus.core.membership.announcer import company_mask
from jsonbus.core.membership.subscription_list import make_plain_entry
from jsonbus.core.wire.encode import encode_list, encode_presence
from jsonbus.core.wire.frames import ByeFrame, Entry, Frame, ListFrame, PresenceFrame
from tests.core.link import START, Link, forge, forge_presence, is_announcement, is_share


def is_presence(frame: Frame) -> bool:
    return isinstance(frame, PresenceFrame)


def ask_for(*suspects: tuple[str, int], counter: int = 1) -> bytes:
    return forge(
        encode_presence,
        counter=counter,
        version=1,
        name="stranger",
        mode="delayed",
        is_master=False,
        settled=True,
        digest=None,
        sums=None,
        suspects=suspects,
    )


def test_announcement_has_the_own_entry_and_the_digest_of_the_list() -> None:
    link = Link()
    a = link.add("a", opened=False)
    link.subscribe(a, "x", "y/*")
    link.open(a)
    (frame,) = link.frames("a", ListFrame)
    assert [entry for entry, _ in frame.entries] == [a.own_entry()]
    assert frame.topics == ["x", "y/*"]
    assert frame.covers is None
    assert not frame.settled
    assert frame.digest is not None and frame.digest.nodes == 1


def test_heartbeats_come_at_most_two_seconds_apart() -> None:
    link = Link()
    a, _ = link.add("a"), link.add("b")
    link.run(120)
    at = [when for name, when, _ in link.sent if name == "a" and when > START + 5]
    gaps = [later - earlier for earlier, later in zip(at, at[1:], strict=False)]
    assert max(gaps) <= 2.0
    # At least 0.8 heartbeats between two, but for the few digests of Trickle.
    assert len(at) < 120 / 1.6 + 10
    assert a.state == "sure"


def bursts(at: list[float]) -> list[list[float]]:
    """The instants, in groups with less than 0.1 s between two."""
    groups: list[list[float]] = []
    for instant in sorted(at):
        if not groups or instant - groups[-1][-1] > 0.1:
            groups.append([])
        groups[-1].append(instant)
    return groups


@pytest.mark.parametrize(("nodes", "together"), [(5, 4), (32, 25), (40, 15)])
def test_heartbeats_of_a_company_leave_together(nodes: int, together: int) -> None:
    link = Link()
    for number in range(nodes):
        link.add(f"n{number}")
        link.run(0.05 + link.rng.random() / 10)  # out of step
    link.run(60)
    link.forget_sent()
    link.run(30)
    heartbeats = [when for _, when, frame in link.sent if is_presence(frame)]
    assert len(heartbeats) <= nodes * (30 / 1.8 + 1)
    assert len(heartbeats) / len(bursts(heartbeats)) >= together
    for node in link.nodes:
        at = link.times(node.settings.name, is_presence)
        assert max(later - earlier for earlier, later in zip(at, at[1:], strict=False)) <= 2.0


def test_companies_hold_at_most_as_many_nodes_as_may_speak_together() -> None:
    for nodes in (1, 2, 32, 33, 64, 65, 100, 1_000):
        companies = company_mask(nodes) + 1
        assert nodes / companies <= COMPANY_NODES
        assert companies == 1 or nodes / companies > COMPANY_NODES / 2 - 1


def test_node_that_just_spoke_keeps_no_company() -> None:
    link = Link()
    a, b = link.add("a"), link.add("b")
    link.subscribe(a, "t")
    link.run(60)
    link.forget_sent()
    for number in range(40):
        link.publish(b, "t", number)
        link.run(0.5)
    assert len(link.times("b", is_presence)) <= 3  # Trickle's, and an introduction
    assert len(link.times("a", is_presence)) <= 20 / 1.8 + 1


def test_heartbeats_of_large_groups_are_further_apart() -> None:
    link = Link()
    others = [Entry(f"n{number:05d}", 1, 1, "n") for number in range(1_999)]
    link.add_member("a", others)  # 2,000 nodes: H = 10 s
    link.run(30)
    at = link.times("a", lambda frame: isinstance(frame, PresenceFrame) and not frame.suspects)
    assert 2 <= len(at) <= 6


def test_whatever_is_sent_takes_the_place_of_a_heartbeat() -> None:
    link = Link()
    a, b = link.add("a"), link.add("b")
    link.subscribe(b, "t")
    link.run(100)
    link.forget_sent()
    for number in range(100):
        link.publish(a, "t", number)
        link.run(0.5)
    assert len(link.times("a", is_presence)) <= 3  # Trickle's
    assert a in link.nodes and len(b.view.nodes(link.now)) == 2


def test_digest_is_told_although_nobody_needs_heartbeats() -> None:
    link = Link()
    a, b = link.add("a"), link.add("b")
    link.subscribe(a, "t")
    link.subscribe(b, "t")
    link.run(100)
    link.forget_sent()
    for number in range(100):
        link.publish(a, "t", number)
        link.publish(b, "t", number)
        link.run(1)
    assert 2 <= len(link.senders(is_presence)) <= 12


def test_member_that_answers_for_nobody_announces_itself_soon_where_lists_differ() -> None:
    link = Link()
    a, b = link.add("a", mode="master"), link.add("b", mode="master")
    link.run(60)
    link.subscribe(a, "t")
    link.run(3)
    link.forget_sent()
    link.inject(forge_presence(500, of=b))
    link.run(0.31)  # the grace and the longest share delay; Trickle may take longer
    assert "a" in link.senders(is_announcement)


def test_quiet_group_says_ever_less() -> None:
    link = Link()
    link.add_many(5)
    link.run(120)
    link.forget_sent()
    link.run(60)
    assert link.senders(lambda frame: isinstance(frame, ListFrame)) == []
    assert link.senders(lambda frame: not is_presence(frame)) == []
    assert len(link.senders(is_presence)) <= 5 * 60 / 1.6 + 10


def test_suspected_node_answers_within_a_tenth_of_the_grace() -> None:
    link = Link()
    a = link.add("a")
    link.run(3)
    link.run_until(lambda: is_presence(link.sent[-1][2]), 3)
    link.forget_sent()
    begun = link.now
    link.inject(ask_for((a.settings.node, a.settings.incarnation)))
    link.run(0.1)
    assert len(link.times("a", is_presence)) == 1
    assert link.sent[0][1] - begun <= 0.1


def test_question_for_a_former_incarnation_is_not_answered() -> None:
    link = Link()
    a = link.add("a")
    link.run_until(lambda: is_presence(link.sent[-1][2]), 5)
    link.forget_sent()
    link.inject(ask_for((a.settings.node, a.settings.incarnation - 1)))
    link.run(0.09)
    assert link.times("a", is_presence) == []


def test_every_basic_node_answers_a_suspicion() -> None:
    link = Link()
    nodes = [link.add(name, mode="basic").settings for name in ("a", "b", "c")]
    link.run(1)
    link.forget_sent()
    link.inject(ask_for(*((each.node, each.incarnation) for each in nodes)))
    link.run(0.1)
    assert sorted(link.senders(is_presence)) == ["a", "b", "c"]


def test_presence_with_many_suspects_fits_a_datagram() -> None:
    link = Link()
    link.add_member("a", [Entry(f"{number:016d}", 2**44, 1, "n") for number in range(60)])
    link.run(8)
    asking = [frame for frame in link.frames("a", PresenceFrame) if frame.suspects]
    assert sum(len(frame.suspects) for frame in asking) == 60
    assert max(map(len, link.datagrams)) <= 1400


def test_mismatch_brings_the_own_entry_and_sums_with_the_next_digest() -> None:
    link = Link()
    others = [Entry(f"n{number:05d}", 1, 1, "n") for number in range(60)]
    a = link.add_member("a", others)
    b = link.add_member("b", others[:-1])
    link.run_until(lambda: "doubting" in (a.state, b.state), 40)
    link.forget_sent()
    link.run(0.5)
    lists = [frame for _, _, frame in link.sent if isinstance(frame, ListFrame)]
    assert any(frame.sums is not None for frame in lists)


@pytest.mark.parametrize("patterns", [1, 10, 18])
def test_announcements_stay_within_a_datagram(patterns: int) -> None:
    link = Link()
    others = [Entry(f"n{number:05d}", 1, 1, "n") for number in range(60)]
    a = link.add_member("a", others)
    link.subscribe(a, *(f"{number:02d}/{'x' * 40}" for number in range(patterns)))
    link.run(0.01)
    assert link.senders(is_announcement)
    assert max(map(len, link.datagrams)) <= 1400
    (last,) = link.frames("a", ListFrame)[-1:]
    assert last.sums is not None


def test_plain_peers_are_spoken_for_only_where_lists_differ() -> None:
    link = Link()
    a, b = link.add("a"), link.add("b")
    link.inject(b'{"topic":"jsonbus.topics","payload":["p"]}')
    link.run(60)
    link.forget_sent()
    link.subscribe(a, "t")
    link.run(0.1)
    (frame,) = link.frames("a", ListFrame)
    assert [entry for entry, _ in frame.entries] == [a.own_entry()]
    assert b.has_subscribers("t")


def test_member_that_does_not_answer_passes_a_plain_peer_on() -> None:
    link = Link()
    a, b = link.add("a", mode="master"), link.add("b", mode="master")
    link.run(5)
    a.receive_datagram(b'{"topic":"jsonbus.topics","payload":["p"]}', ("10.9.9.9", 40000), link.now)
    link.run(10)
    assert b.has_subscribers("p")
    assert b.view.subscriptions()["p"] == [make_plain_entry("plain:10.9.9.9", ["p"]).node]


def test_goodbye_is_the_last_version_and_the_last_word() -> None:
    link = Link()
    a, _ = link.add("a"), link.add("b")
    link.run(5)
    version = a.own_entry().version
    a.close(link.now)
    link.move()
    assert a.timer_at() is None
    (bye,) = link.frames("a", ByeFrame)
    assert bye.version == version + 1
    assert isinstance(link.sent[-1][2], ByeFrame)


def test_joiner_does_not_claim_to_be_settled() -> None:
    link = Link()
    link.add("a")
    link.run(0.7)
    assert {frame.settled for frame in link.frames("a", ListFrame)} == {False}
    link.run(2.5)
    assert {frame.settled for frame in link.frames("a", PresenceFrame)} == {True}


def test_own_entry_that_others_have_wrong_is_overruled() -> None:
    link = Link()
    a, b = link.add("a"), link.add("b")
    link.subscribe(a, "t")
    link.run(5)
    mine = a.own_entry()
    wrong = Entry(mine.node, mine.incarnation, mine.version + 7, "a")
    link.inject(
        forge(
            encode_list,
            entries=[(wrong, 0.0)],
            digest=None,
            sums=None,
            covers=None,
            settled=False,
        )
    )
    link.run(0.01)
    assert a.own_entry().version == mine.version + 8
    assert b.has_subscribers("t")
    assert link.senders(is_share) == [] or b.state == "sure"
