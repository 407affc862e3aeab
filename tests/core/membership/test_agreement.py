"""Nodes that agree, differ and doubt, on one wire."""

from __future__ import annotations

from jsonbus.core.events import StateChanged
from jsonbus.core.wire.encode import encode_bye, encode_ping
from jsonbus.core.wire.frames import Frame, PresenceFrame
from tests.core.link import Link, digest_of, forge, forge_presence, is_announcement, is_share


def is_presence(frame: Frame) -> bool:
    return isinstance(frame, PresenceFrame)


def states(link: Link, name: str) -> list[str]:
    return [event.state for event in link.events_of(name, StateChanged)]


def test_sure_node_doubts_when_a_settled_node_differs_and_sends_everything() -> None:
    link = Link()
    a, _ = link.add("a"), link.add("b")
    link.run(5)
    link.inject(forge_presence())
    link.run(0.11)
    assert a.state == "doubting"
    assert link.publish(a, "nobody/wants", 1) == [True]


def test_agreement_ends_the_doubt() -> None:
    link = Link()
    a, _ = link.add("a"), link.add("b")
    link.run(5)
    link.inject(forge_presence())
    link.run(5)
    assert a.state == "sure"
    assert states(link, "a")[-2:] == ["doubting", "sure"]


def test_datagram_that_crossed_a_change_makes_nobody_doubt() -> None:
    link = Link()
    a, b = link.add("a"), link.add("b")
    link.run(5)
    link.drop = lambda sender, receiver, frame: sender is b
    link.run_until(lambda: is_presence(link.sent[-1][2]) and link.sent[-1][0] == "b", 2.1)
    under_way = link.datagrams[-1]
    link.subscribe(a, "t")
    link.run(0.01)
    link.heal()
    a.receive_datagram(under_way, ("10.0.0.2", 2416), link.now)
    link.run(3)
    assert states(link, "a") == states(link, "b") == ["sure"]
    assert link.senders(is_share) == []


def test_known_node_with_another_list_means_doubt_after_the_grace() -> None:
    link = Link()
    a, b = link.add("a"), link.add("b")
    link.run(5)
    link.inject(forge_presence(500, of=b))
    link.run(0.09)
    assert a.state == "sure"
    link.run(0.02)
    assert a.state == "doubting"


def test_node_that_agrees_again_within_the_grace_makes_nobody_doubt() -> None:
    link = Link()
    a, b = link.add("a"), link.add("b")
    link.run(5)
    link.inject(forge_presence(500, of=b))
    link.run(0.05)
    link.inject(forge_presence(501, of=b, digest=digest_of(a)))
    link.run(1)
    assert states(link, "a") == ["sure"]


def test_node_that_is_ahead_by_milliseconds_makes_nobody_doubt() -> None:
    link = Link()
    a, b = link.add("a"), link.add("b")
    link.run(5)
    link.cut_off(a)
    link.subscribe(b, "t")
    link.run(0.01)
    announcement = link.datagrams[-1]
    link.heal()
    link.inject(forge_presence(500, of=b, digest=digest_of(b)))
    link.run(0.05)
    a.receive_datagram(announcement, ("10.0.0.2", 2416), link.now)
    link.run(1)
    assert states(link, "a") == ["sure"]
    assert a.has_subscribers("t")


def test_node_heard_before_it_introduced_itself_makes_nobody_doubt() -> None:
    link = Link()
    link.add("a")
    link.run(5)
    b = link.add("b", opened=False)
    b.open(link.now)
    b.ping(link.now)
    announcement, ping = b.outbox.take(link.now)
    link.nodes[0].receive_datagram(ping, ("10.0.0.2", 2416), link.now)
    link.run(0.05)
    link.nodes[0].receive_datagram(announcement, ("10.0.0.2", 2416), link.now)
    link.run(1)
    assert states(link, "a") == ["sure"]


def test_joiner_that_agrees_is_owed_nothing_any_more() -> None:
    link = Link()
    a = link.add("a", share_delay_s=0.2)
    link.run(5)
    b = link.add("b")
    link.run(0.1)
    link.inject(forge_presence(500, of=b, digest=digest_of(a), settled=False))
    link.run(0.14)
    assert link.senders(is_share) == []


def test_changed_interfaces_mean_doubt_until_somebody_agrees() -> None:
    link = Link()
    a, b = link.add("a"), link.add("b")
    link.run(5)
    a.doubt_network("the network interfaces changed", link.now)
    assert a.state == "doubting"
    assert link.publish(a, "nobody/wants", 1) == [True]
    link.move()
    assert link.senders(is_announcement)[-1] == "a"
    link.run(3)
    assert a.state == b.state == "sure"


def test_changed_interfaces_of_a_lone_node_end_in_silence() -> None:
    link = Link()
    a = link.add("a")
    link.run(5)
    a.doubt_network("the network interfaces changed", link.now)
    link.run(0.7)
    assert a.state == "doubting"
    assert link.publish(a, "t", 1) == [True]
    link.run(0.1)
    assert a.state == "sure"
    assert states(link, "a") == ["sure", "doubting", "sure"]
    assert link.publish(a, "t", 1) == [False]


def test_sending_that_failed_and_works_again_means_doubt() -> None:
    link = Link()
    a, _ = link.add("a"), link.add("b")
    link.run(5)
    a.send_works(link.now)
    assert a.state == "sure"
    a.send_failed(link.now)
    assert a.state == "sure"
    a.send_works(link.now)
    assert a.state == "doubting"
    link.run(3)
    a.send_works(link.now)  # nothing has failed since
    assert a.state == "sure"


def test_merged_lists_of_two_groups_agree() -> None:
    link = Link()
    left = [link.add(f"l{number}") for number in range(3)]
    link.run(3)
    link.cut_off(*left)
    right = [link.add(f"r{number}") for number in range(3)]
    link.subscribe(left[0], "from/left")
    link.subscribe(right[0], "from/right")
    link.run(3)
    link.heal()
    link.run(4)
    assert link.agrees()
    assert all(len(node.view.nodes(link.now)) == 6 for node in link.nodes)
    assert left[1].has_subscribers("from/right")
    assert right[1].has_subscribers("from/left")


def test_settled_nodes_that_keep_differing_do_not_storm() -> None:
    link = Link()
    link.add_many(3)
    link.forget_sent()
    for counter in range(1, 300):
        link.inject(forge_presence(counter))
        link.run(0.1)
    assert len(link.sent) < 300


def test_stranger_that_leaves_at_once_does_not_leave_a_lone_node_in_doubt() -> None:
    link = Link()
    a = link.add("a")
    link.run(3)
    a.doubt_network("the network interfaces changed", link.now)
    link.run(0.3)
    link.inject(forge(encode_ping, ping_id=1))
    link.inject(forge(encode_bye, counter=2, version=2))
    link.run(9)
    assert a.state == "sure"
