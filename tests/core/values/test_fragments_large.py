"""Values that no datagram holds: sent in slices, put together, counted, bounded."""

from __future__ import annotations

import random
from typing import Any

import pytest

from jsonbus.core.events import MessagesLost
from jsonbus.core.limits import FRAGMENT_AGE_S
from jsonbus.core.node import Node
from jsonbus.core.wire.codec import dumps
from jsonbus.core.wire.decode import decode
from jsonbus.core.wire.frames import FragmentFrame, Frame, MessagesFrame
from tests.core.link import Link

ADDRESS = ("10.0.0.1", 2416)


def make_pair(link: Link, *patterns: str, **settings: Any) -> tuple[Node, Node]:
    a, b = link.add("a", **settings), link.add("b")
    link.subscribe(b, *patterns)
    link.run(5)
    link.forget_sent()
    return a, b


def slices_of(node: Node, now: float) -> list[bytes]:
    """What the node has to send; all of it slices."""
    datagrams = node.outbox.take(now)
    assert all(isinstance(decode(each), FragmentFrame) for each in datagrams)
    return datagrams


@pytest.mark.parametrize("size", [1_300, 5_000, 65_507, 100_000, 1_000_000])
def test_a_large_value_arrives_in_datagrams_that_no_network_has_to_cut(size: int) -> None:
    link = Link()
    a, b = make_pair(link, "t")
    value = {"text": "x" * size, "quotes": ['"\\', "€"] * (size // 50)}
    assert link.publish(a, "t", 1, value, 2) == [True] * 3
    assert link.values("b") == [1, value, 2]
    assert [message.sequence for message in link.received["b"]] == [1, 2, 3]
    assert max(map(len, link.datagrams)) <= 1400
    assert b.view.stats()["messages_lost"] == 0
    assert b.view.stats()["messages_received"] == b.view.stats()["messages_delivered"] == 3
    assert b.view.stats()["fragments_received"] == len(link.frames("a", FragmentFrame))


def test_where_the_network_carries_it_one_datagram_takes_a_large_value() -> None:
    link = Link()
    a, _ = make_pair(link, "t")
    a.outbox.allow_bytes(7_800, 65_507)
    link.publish(a, "t", "x" * 60_000)
    assert link.values("b") == ["x" * 60_000]
    assert len(link.datagrams) == 1
    link.publish(a, "t", "x" * 66_000)
    assert link.values("b")[1] == "x" * 66_000
    assert max(len(each) for each in link.datagrams[1:]) <= 7_800


def test_a_plain_peer_gets_a_large_value_in_one_datagram() -> None:
    link = Link()
    a, _ = make_pair(link, "t")
    link.inject(b'{"topic":"jsonbus.topics","payload":["jsonbus.topics","t"]}')
    link.forget_sent()
    link.publish(a, "t", "x" * 60_000)
    (frame,) = link.frames("a", MessagesFrame)
    assert frame.items == [["t", "x" * 60_000]]
    link.publish(a, "t", "x" * 70_000)  # no datagram holds this one
    assert link.frames("a", FragmentFrame)


@pytest.mark.parametrize("seed", range(5))
def test_slices_in_any_order_and_repeated_make_one_message(seed: int) -> None:
    link = Link()
    a, b = make_pair(link, "t")
    values = [f"{number}" * 8_000 for number in range(1, 4)]
    for value in values:
        a.publish("t", value, link.now)
    slices = slices_of(a, link.now) * 2
    random.Random(seed).shuffle(slices)
    got = []
    for datagram in slices:
        got += [m for _, ms in b.receive([datagram], ADDRESS, link.now) for m in ms]
    assert sorted(message.value for message in got) == values
    assert {message.sequence for message in got} == {1, 2, 3}
    assert b.view.stats()["messages_lost"] == 0


def test_one_lost_slice_loses_one_value_and_that_is_told() -> None:
    link = Link()
    a, b = make_pair(link, "t")
    lost: list[Frame] = []

    def lose_one(sender: Node, receiver: Node, frame: Frame) -> bool:
        is_it = receiver is b and isinstance(frame, FragmentFrame) and frame.index == 3
        if is_it and not lost:
            lost.append(frame)
            return True
        return False

    link.drop = lose_one
    link.publish(a, "t", "first" * 2_000, "second" * 2_000, "third")
    assert link.values("b") == ["second" * 2_000, "third"]
    assert b.view.stats()["messages_lost"] == 1
    (event,) = link.events_of("b", MessagesLost)
    assert (event.name, event.count) == ("a", 1)
    link.run(FRAGMENT_AGE_S + 1)
    assert b.view.stats()["messages_incomplete"] == 1
    assert link.values("b") == ["second" * 2_000, "third"]


def test_a_value_that_comes_late_is_no_longer_lost() -> None:
    link = Link()
    a, b = make_pair(link, "t")
    a.publish("t", "x" * 3_000, link.now)
    slices = slices_of(a, link.now)
    a.publish("t", "after", link.now)
    (after,) = a.outbox.take(link.now)
    for datagram in (*slices[:-1], after):
        b.receive_datagram(datagram, ADDRESS, link.now)
    assert b.view.stats()["messages_lost"] == 1
    b.receive_datagram(slices[-1], ADDRESS, link.now)
    assert b.view.stats()["messages_lost"] == 0
    values = [message.value for _, messages in b.take_deliveries() for message in messages]
    assert values == ["after", "x" * 3_000]


def test_of_a_value_that_nobody_here_wants_no_slice_is_kept() -> None:
    link = Link()
    a, b = make_pair(link, "t")
    c = link.add("c")
    link.subscribe(c, "other/**")
    link.run(5)
    link.publish(a, "t", "x" * 100_000)
    assert link.values("b") == ["x" * 100_000]
    assert link.values("c") == []
    assert c.view.stats()["messages_unwanted"] == 1
    assert c.view.stats()["messages_lost"] == c.view.stats()["messages_incomplete"] == 0
    assert c._fragments.size_bytes == 0
    link.publish(a, "t", 1)
    assert c.view.stats()["messages_lost"] == 0


def test_slices_of_a_node_that_leaves_are_forgotten() -> None:
    link = Link()
    a, b = make_pair(link, "t")
    a.publish("t", "x" * 10_000, link.now)
    for datagram in slices_of(a, link.now)[:-1]:
        b.receive_datagram(datagram, ADDRESS, link.now)
    assert b._fragments.size_bytes > 10_000 - 1_400
    link.close(a)
    assert b._fragments.size_bytes == 0


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ('["t",1', "bad_fields"),
        ("[]", None),
        ('"t"', None),
        ("7", None),
        ('["*",1]', "bad_topic"),
        ('["t",' + "[" * 300 + "]" * 300 + "]", "too_deep"),
        ('["t",' + "[" * 2000 + "]" * 2000 + "]", "bad_fields"),
    ],
)
def test_slices_that_make_no_message_are_counted_and_dropped(text: str, cause: str | None) -> None:
    link = Link()
    a, b = make_pair(link, "t")
    a.publish("t", "x" * 3_000, link.now)
    (template, *_) = slices_of(a, link.now)
    frame = decode(template)
    assert isinstance(frame, FragmentFrame)
    start = template.index(b'"payload":') + len(b'"payload":')
    end = template.index(b',"jb":')
    head, tail = template[:start], template[end:]
    half = len(text) // 2
    for index, piece in enumerate((text[:half], text[half:])):
        counter = b'"q":%d' % (frame.header.counter + index)
        place = b'"f":[%d,%d,2]' % (frame.number, index)
        forged = head + dumps(piece) + tail
        forged = forged.replace(b'"q":%d' % frame.header.counter, counter)
        forged = forged.replace(b'"f":[%d,0,%d]' % (frame.number, frame.count), place)
        assert b.receive([forged], ADDRESS, link.now) == []
    assert b.view.stats()["messages_delivered"] == 0
    assert b._fragments.size_bytes == 0
    if cause is not None:
        assert b.counters.rejected == {cause: 1}


@pytest.mark.parametrize(
    "place",
    "[1,2,2] [1,-1,2] [1,0,0] [1,0] 7 null [1,0,999999999] ['1',0,2] [1.0,0,2]".split(),
)
def test_a_slice_without_a_sound_place_is_refused(place: str) -> None:
    link = Link()
    a, b = make_pair(link, "t")
    a.publish("t", "x" * 3_000, link.now)
    datagram = slices_of(a, link.now)[0]
    start = datagram.index(b'"f":') + 4
    forged = datagram[:start] + place.replace("'", '"').encode() + b"}}"
    b.receive_datagram(forged, ADDRESS, link.now)
    assert b.counters.rejected == {"bad_fields": 1}
    assert b._fragments.size_bytes == 0
