"""Reliable topics among nodes: everything, once, in order, or a gap that is told."""

from __future__ import annotations

import random
from typing import Any

import pytest

from jsonbus.core.events import GapFound, MessagesLost
from jsonbus.core.limits import HISTORY_AGE_S
from jsonbus.core.node import Node
from jsonbus.core.wire.frames import (
    BeatFrame,
    FragmentFrame,
    Frame,
    MessagesFrame,
    NakFrame,
    PresenceFrame,
    RepairFrame,
)
from tests.core.link import Link


def make_group(link: Link, subscribers: int, *patterns: str, **settings: Any) -> list[Node]:
    """A publisher, and so many subscribers s0, s1, …; all of them agree."""
    nodes = [link.add("p", **settings)]
    for number in range(subscribers):
        nodes.append(link.add(f"s{number}"))
        link.subscribe(nodes[-1], *patterns)
    link.run(5)
    link.forget_sent()
    return nodes


def publish(link: Link, node: Node, topic: str, *values: Any) -> None:
    for value in values:
        assert node.publish(topic, value, link.now, is_reliable=True)
    link.move()


def lose(link: Link, share: float, seed: int, *kinds: type[Frame]) -> None:
    """Lose a share of the datagrams, each for each receiver; only of those kinds, if given."""
    dice = random.Random(seed)

    def drop(sender: Node, receiver: Node, frame: Frame) -> bool:
        return (not kinds or isinstance(frame, kinds)) and dice.random() < share

    link.drop = drop


@pytest.mark.parametrize("loss", [0.0, 0.05, 0.2])
@pytest.mark.parametrize("seed", range(4))
def test_everything_arrives_once_and_in_order_whatever_is_lost(loss: float, seed: int) -> None:
    link = Link(seed)
    p, *subscribers = make_group(link, 3, "t/**")
    lose(link, loss, seed, MessagesFrame, NakFrame, BeatFrame, RepairFrame)
    for number in range(300):
        publish(link, p, f"t/{number % 3}", number)
        link.run(0.002)
    link.run(5)
    for number, node in enumerate(subscribers):
        for topic in range(3):
            got = [m.value for m in link.received[f"s{number}"] if m.topic == f"t/{topic}"]
            assert got == list(range(topic, 300, 3))
        assert len({m.sequence for m in link.received[f"s{number}"]}) == 300
        assert node.view.stats()["messages_lost"] == 0
        assert node.view.stats()["messages_delivered"] == 300
        assert node.view.stats()["messages_given_up"] == 0
        assert link.events_of(f"s{number}", GapFound) == []
    assert (p.view.stats()["messages_repaired"] > 0) == (loss > 0)


@pytest.mark.parametrize("seed", range(3))
def test_large_values_are_repaired_too(seed: int) -> None:
    link = Link(seed)
    p, s = make_group(link, 1, "t")
    lose(link, 0.05, seed, FragmentFrame, MessagesFrame, NakFrame)
    values = [f"{number}" * 40_000 if number % 2 else number for number in range(1, 11)]
    for value in values:
        publish(link, p, "t", value)
        link.run(0.05)
    link.run(5)
    assert link.values("s0") == values
    assert s.view.stats()["messages_lost"] == 0


@pytest.mark.parametrize("loss", [0.01, 0.05, 0.2])
def test_of_a_large_value_only_the_slices_that_somebody_misses_are_sent_again(loss: float) -> None:
    link = Link()
    p, *subscribers = make_group(link, 2, "t")
    lose(link, loss, 7, FragmentFrame, NakFrame)
    value = "x" * 3_000_000
    publish(link, p, "t", value)
    count = len(link.frames("p", FragmentFrame))
    link.run(9)
    assert link.values("s0") == link.values("s1") == [value]
    again = len(link.frames("p", FragmentFrame)) - count
    # Each of two subscribers misses its share, and of what is sent again a share of that.
    assert again <= 2 * count * loss / (1 - loss) * 1.5 + 20
    for node in subscribers:
        assert node.view.stats()["messages_lost"] == 0
        assert node._fragments.size_bytes == 0
    assert max(map(len, link.datagrams)) <= 1400


def test_who_got_no_slice_at_all_gets_them_all() -> None:
    link = Link()
    p, _, s1 = make_group(link, 2, "t")
    publish(link, p, "t", "first")
    link.drop = lambda sender, receiver, frame: (
        isinstance(frame, FragmentFrame) and (receiver is s1 or frame.index == 3)
    )
    publish(link, p, "t", "x" * 50_000)
    link.heal()
    link.run(3)
    assert link.values("s0") == link.values("s1") == ["first", "x" * 50_000]


def test_without_loss_nothing_is_asked_for_and_beats_thin_out_after_the_history() -> None:
    link = Link()
    p, s = make_group(link, 1, "t")
    publish(link, p, "t", 1, 2, 3)
    assert link.values("s0") == [1, 2, 3]
    link.run(HISTORY_AGE_S + 3)
    beats = link.frames("p", BeatFrame)
    assert 5 <= len(beats) <= 12
    assert beats[0].beats == [("t", 3, 1)]
    assert link.frames("s0", NakFrame) == []
    assert p.view.stats()["messages_kept_for_repair"] == 0
    link.forget_sent()
    link.run(3600)
    assert len(link.frames("p", BeatFrame)) <= 10
    assert s.view.stats()["naks_sent"] == 0


def test_the_last_message_is_repaired_though_nothing_follows_it() -> None:
    link = Link()
    p, _ = make_group(link, 1, "t")
    publish(link, p, "t", 1)
    lose(link, 1.0, 1, MessagesFrame)
    publish(link, p, "t", 2)
    link.heal()
    assert link.values("s0") == [1]
    link.run(1)
    assert link.values("s0") == [1, 2]


def test_the_very_first_messages_are_repaired_too() -> None:
    link = Link()
    p, s = make_group(link, 1, "t")
    lose(link, 1.0, 1, MessagesFrame)
    publish(link, p, "t", 1, 2, 3)
    link.heal()
    publish(link, p, "t", 4)
    link.run(1)
    assert link.values("s0") == [1, 2, 3, 4]
    assert s.view.stats()["messages_lost"] == 0


def test_a_late_subscriber_gets_nothing_from_before_and_hears_of_no_gap() -> None:
    link = Link()
    p, _ = make_group(link, 1, "t")
    publish(link, p, "t", *range(10))
    late = link.add("late")
    link.run(3)
    link.subscribe(late, "t")
    link.run(1)
    publish(link, p, "t", 10, 11)
    link.run(3)
    assert link.values("late") == [10, 11]
    assert link.events_of("late", GapFound) == []
    assert link.frames("late", NakFrame) == []


def test_a_loss_of_other_topics_brings_nothing_from_before_the_subscription() -> None:
    link = Link()
    p, _ = make_group(link, 1, "**")
    late = link.add("late")
    link.run(3)
    publish(link, p, "t", *range(10))
    link.subscribe(late, "t")
    link.run(1)
    lose(link, 1.0, 1, MessagesFrame)
    publish(link, p, "other", 1)
    link.heal()
    publish(link, p, "t", 10)
    link.run(3)
    assert link.values("late") == [10]


def test_what_is_gone_is_told_as_a_gap_and_the_rest_goes_on() -> None:
    link = Link()
    p, s = make_group(link, 1, "t")
    publish(link, p, "t", 1)
    lose(link, 1.0, 1, MessagesFrame, BeatFrame, RepairFrame)
    publish(link, p, "t", 2, 3)
    link.run(HISTORY_AGE_S + 5)
    link.heal()
    publish(link, p, "t", 4)
    link.run(5)
    assert link.values("s0") == [1, 4]
    (gap,) = link.events_of("s0", GapFound)
    assert (gap.name, gap.topic, gap.first, gap.last) == ("p", "t", 2, 3)
    assert gap.incarnation == p.settings.incarnation
    assert s.view.stats()["messages_given_up"] == 2
    assert s.view.stats()["messages_lost"] == 2
    assert link.events_of("s0", MessagesLost)


def test_reliable_and_other_messages_share_datagrams_and_topics() -> None:
    link = Link()
    p, _ = make_group(link, 1, "**")
    for number in range(10):
        p.publish("t", number, link.now, is_reliable=number % 2 == 0)
        p.publish("u", number, link.now)
    link.move()
    assert len(link.frames("p", MessagesFrame)) == 1
    assert [m.value for m in link.received["s0"] if m.topic == "t"] == list(range(10))
    assert [m.value for m in link.received["s0"] if m.topic == "u"] == list(range(10))
    assert [m.sequence for m in link.received["s0"]] == list(range(1, 21))


def test_a_plain_peer_gets_reliable_messages_one_by_one_and_nodes_their_order() -> None:
    link = Link()
    p, _ = make_group(link, 1, "t")
    link.inject(b'{"topic":"jsonbus.topics","payload":["jsonbus.topics","t"]}')
    link.forget_sent()
    lose(link, 0.5, 3, MessagesFrame)
    publish(link, p, "t", *range(20))
    link.heal()
    assert [frame.items[0][:2] for frame in link.frames("p", MessagesFrame)] == [
        ["t", number] for number in range(20)
    ]
    assert all(datagram.startswith(b'{"topic":"t"') for datagram in link.datagrams[:20])
    link.run(3)
    assert link.values("s0") == list(range(20))


def test_what_is_held_while_joining_is_reliable_afterwards() -> None:
    link = Link()
    s = link.add("s0")
    link.subscribe(s, "t")
    link.run(5)
    p = link.add("p", opened=False)
    link.nodes.append(p)
    p.open(link.now)
    for number in range(5):
        assert p.publish("t", number, link.now, is_reliable=True)
    lose(link, 1.0, 1, MessagesFrame)
    link.run(0.3)
    link.heal()
    link.run(3)
    assert link.values("s0") == list(range(5))


def test_nobody_wants_it_and_nothing_is_kept() -> None:
    link = Link()
    p, _ = make_group(link, 1, "t")
    assert not p.publish("unwanted", 1, link.now, is_reliable=True)
    assert p.view.stats()["messages_kept_for_repair"] == 0
    link.run(1)
    assert link.frames("p", BeatFrame) == []


def test_only_who_wants_the_topic_takes_part() -> None:
    link = Link()
    p, _, other = make_group(link, 2, "t")
    other.unsubscribe("t", "sink", link.now)
    other.subscribe("else", "sink", link.now)
    link.run(3)
    lose(link, 0.3, 5, MessagesFrame)
    for number in range(50):
        publish(link, p, "t", number)
    link.heal()
    link.run(3)
    assert link.values("s0") == list(range(50))
    assert link.frames("s1", NakFrame) == []
    assert link.values("s1") == []


def test_a_publisher_that_starts_anew_is_another_stream() -> None:
    link = Link()
    p, _ = make_group(link, 1, "t")
    publish(link, p, "t", 1, 2)
    link.remove(p)
    again = link.add("p", node=p.settings.node, incarnation=p.settings.incarnation + 1)
    link.run(5)
    publish(link, again, "t", 3, 4)
    link.run(1)
    assert link.values("s0") == [1, 2, 3, 4]


def test_what_waits_for_a_node_that_is_gone_is_delivered() -> None:
    link = Link()
    p, _ = make_group(link, 1, "t")
    publish(link, p, "t", 1)
    lose(link, 1.0, 1, MessagesFrame)
    publish(link, p, "t", 2)
    link.heal()
    publish(link, p, "t", 3)
    assert link.values("s0") == [1]
    link.remove(p)
    link.run(20)
    assert link.values("s0") == [1, 3]
    (gap,) = link.events_of("s0", GapFound)
    assert (gap.first, gap.last) == (2, 2)


@pytest.mark.parametrize("sequence", ["0", '"x"', "null", "-1", "1.5"])
def test_a_sequence_that_is_none_makes_it_a_plain_message(sequence: str) -> None:
    link = Link()
    p, s = make_group(link, 1, "t")
    publish(link, p, "t", "x")
    (frame,) = link.frames("p", MessagesFrame)
    assert frame.header is not None
    counter = frame.header.counter
    forged = link.datagrams[-1].replace(b'"s":1}', b'"s":%b}' % sequence.encode())
    forged = forged.replace(b'"q":%d' % counter, b'"q":%d' % (counter + 1))
    forged = forged.replace(b'"m":1', b'"m":2')
    s.receive_datagram(forged, ("10.0.0.1", 2416), link.now)
    ((_, messages),) = s.take_deliveries()
    assert [(message.value, message.sequence) for message in messages] == [("x", 2)]


@pytest.mark.parametrize("is_retained", [False, True])
def test_a_message_that_is_alone_is_one_that_plain_programs_understand(is_retained: bool) -> None:
    link = Link()
    p, _ = make_group(link, 1, "t")
    p.publish("t", {"a": 1}, link.now, is_reliable=True, is_retained=is_retained)
    link.move()
    (datagram,) = link.datagrams
    assert datagram.startswith(b'{"topic":"t","payload":{"a":1},"jb":')


def test_a_subscription_to_another_topic_takes_nothing_from_what_waits_for_a_repair() -> None:
    link = Link()
    p, s = make_group(link, 1, "t")
    publish(link, p, "t", 1)
    lose(link, 1.0, 1, MessagesFrame)
    publish(link, p, "t", 2)
    link.heal()
    publish(link, p, "t", 3)
    link.subscribe(s, "other")
    link.run(2)
    assert link.values("s0") == [1, 2, 3]


def test_a_subscription_to_another_topic_leaves_the_claim_to_a_stream_not_heard_yet() -> None:
    link = Link()
    p, s = make_group(link, 1, "t")
    lose(link, 1.0, 1, MessagesFrame, BeatFrame)
    publish(link, p, "t", 1)
    link.run(2.5)  # a heartbeat tells that a message was lost
    link.subscribe(s, "other")
    link.heal()
    publish(link, p, "t", 2)
    link.run(2)
    assert link.values("s0") == [1, 2]


def test_who_subscribes_anew_gets_nothing_from_between() -> None:
    link = Link()
    p, s, _ = make_group(link, 2, "t")
    publish(link, p, "t", 1)
    link.unsubscribe(s, "t")
    link.run(1)
    publish(link, p, "t", 2, 3)
    link.subscribe(s, "t")
    link.run(1)
    publish(link, p, "t", 4)
    link.run(2)
    assert link.values("s0") == [1, 4]
    assert link.values("s1") == [1, 2, 3, 4]


def test_nothing_is_asked_for_that_nobody_here_wants_any_more() -> None:
    link = Link()
    p, s, _ = make_group(link, 2, "t")
    publish(link, p, "t", 1)
    lose(link, 1.0, 1, MessagesFrame)
    publish(link, p, "t", 2)
    link.drop = lambda sender, receiver, frame: receiver is not s
    publish(link, p, "t", 3)
    link.unsubscribe(s, "t")
    link.forget_sent()
    link.heal()
    link.run(1)
    assert not link.frames("s0", NakFrame)
    assert not link.events_of("s0", GapFound)


def test_beats_do_not_stand_in_for_heartbeats() -> None:
    link = Link()
    p, _ = make_group(link, 1, "t")
    publish(link, p, "t", 1)
    link.run(HISTORY_AGE_S)
    assert len(link.frames("p", BeatFrame)) >= 8
    assert len(link.frames("p", PresenceFrame)) >= 4  # one every two seconds
