"""Round trips to every node that hears."""

from __future__ import annotations

import pytest

from jsonbus.core.events import PongReceived
from jsonbus.core.limits import PINGS_OPEN_MAX, PONG_AT_ONCE_NODES, PONG_SPREAD_S, PONGS_WAITING_MAX
from jsonbus.core.wire.encode import encode_ping, encode_pong
from jsonbus.core.wire.frames import Entry, PongFrame
from tests.core.link import Link, forge


def make_members(count: int) -> list[Entry]:
    return [Entry(f"n{number:05d}", 1, 1, "n") for number in range(count)]


def test_every_node_answers_a_ping() -> None:
    link = Link()
    a, b, c = link.add("a"), link.add("b"), link.add("c", mode="basic")
    link.run(5)
    ping_id = a.ping(link.now)
    link.now += 0.003
    link.move()
    pongs = link.events_of("a", PongReceived)
    assert {(pong.node, pong.name) for pong in pongs} == {
        (b.settings.node, "b"),
        (c.settings.node, "c"),
    }
    assert {pong.ping_id for pong in pongs} == {ping_id}
    assert [pong.round_trip_s for pong in pongs] == pytest.approx([0.003, 0.003])
    assert link.events_of("b", PongReceived) == []


def test_pings_are_told_apart() -> None:
    link = Link()
    a, _ = link.add("a"), link.add("b")
    link.run(5)
    first, second = a.ping(link.now), a.ping(link.now)
    link.move()
    assert first != second
    assert [pong.ping_id for pong in link.events_of("a", PongReceived)] == [first, second]


def test_pongs_to_others_and_to_pings_never_sent_are_ignored() -> None:
    link = Link()
    a = link.add("a")
    link.inject(forge(encode_pong, to=a.settings.node, ping_id=77))
    link.inject(forge(encode_pong, counter=2, to="somebody", ping_id=1))
    assert link.events_of("a", PongReceived) == []


def test_in_a_large_group_pongs_are_spread() -> None:
    link = Link()
    a = link.add_member("a", make_members(PONG_AT_ONCE_NODES))
    link.inject(forge(encode_ping, node="n00001", ping_id=3))
    assert link.frames("a", PongFrame) == []
    at = a.timer_at()
    assert at is not None and at <= link.now + PONG_SPREAD_S
    link.run(PONG_SPREAD_S)
    (pong,) = link.frames("a", PongFrame)
    assert (pong.to, pong.ping_id) == ("n00001", 3)


def test_waiting_pongs_are_bounded() -> None:
    link = Link()
    a = link.add_member("a", make_members(PONG_AT_ONCE_NODES))
    for counter in range(1, PONGS_WAITING_MAX + 50):
        a.receive_datagram(
            forge(encode_ping, node="n00001", counter=counter, ping_id=counter),
            ("10.9.9.9", 1),
            link.now,
        )
    link.run(PONG_SPREAD_S)
    assert len(link.frames("a", PongFrame)) == PONGS_WAITING_MAX


def test_open_pings_are_bounded_and_the_oldest_forgotten() -> None:
    link = Link()
    a, _ = link.add("a"), link.add("b")
    link.run(5)
    ids = [a.ping(link.now) for _ in range(PINGS_OPEN_MAX + 3)]
    link.move()
    assert [pong.ping_id for pong in link.events_of("a", PongReceived)] == ids[3:]
