"""What stirs a node: a flood of messages must not make a front end look at timers each time."""

from __future__ import annotations

import pytest

from jsonbus.core.wire.encode import encode_ping
from jsonbus.core.wire.encode_messages import encode_message
from tests.core.link import Link, forge, forge_presence

SENDER = ("10.9.9.9", 40000)


def test_only_what_may_move_timers_stirs() -> None:
    link = Link()
    a, b = link.add("a"), link.add("b")
    link.subscribe(a, "t")
    link.run(60)
    assert a.take_attention()
    assert not a.take_attention()
    timer_at = a.timer_at()
    for number in range(20):
        b.publish("t", number, link.now)
        for data in b.outbox.take(link.now):
            a.receive_datagram(data, ("10.0.0.2", 2416), link.now)
    assert not a.take_attention()
    assert a.timer_at() == timer_at
    assert not a.outbox.has_output and a.take_events() == []


@pytest.mark.parametrize(
    "data",
    [
        b"nonsense",
        b'{"topic":"t","payload":1}',
        forge(encode_ping, ping_id=1),
        forge(encode_message, b'"t"', b"1"),
        forge_presence(),
    ],
)
def test_whatever_may_cause_output_timers_or_events_stirs(data: bytes) -> None:
    link = Link()
    a = link.add("a")
    link.run(60)
    a.take_attention()
    a.receive_datagram(data, SENDER, link.now)
    assert a.take_attention()


def test_question_of_a_known_node_stirs() -> None:
    link = Link()
    a, b = link.add("a"), link.add("b")
    link.run(60)
    a.take_attention()
    b.ping(link.now)
    for data in b.outbox.take(link.now):
        a.receive_datagram(data, ("10.0.0.2", 2416), link.now)
    assert a.take_attention()
    assert a.outbox.has_output


def test_large_message_refused_by_its_first_bytes_stirs_only_if_its_sender_is_unknown() -> None:
    link = Link()
    a, b = link.add("a"), link.add("b", mode="basic")
    link.run(60)
    a.take_attention()
    b.publish("unwanted", "x" * 1_000, link.now)
    for data in b.outbox.take(link.now):
        a.receive_datagram(data, ("10.0.0.2", 2416), link.now)
    assert not a.take_attention()
    a.receive_datagram(
        forge(encode_message, b'"unwanted"', b'"%b"' % (b"x" * 1_000)), SENDER, link.now
    )
    assert a.take_attention()


def test_heartbeats_of_a_calm_group_stir_nobody_and_are_signs_of_life() -> None:
    link = Link()
    a, b = link.add("a"), link.add("b")
    link.run(60)
    link.drop = lambda sender, receiver, frame: receiver is a
    link.forget_sent()
    link.run_until(lambda: {"a", "b"} <= {name for name, _, _ in link.sent}, 4)
    a.take_attention()
    (heartbeat,) = [
        data for (name, _, _), data in zip(link.sent, link.datagrams, strict=True) if name == "b"
    ]
    a.receive_datagram(heartbeat, ("10.0.0.2", 2416), link.now)
    assert not a.take_attention()
    assert [info.heard_s_ago for info in a.view.nodes(link.now)] == [0.0, 0.0]
    assert b.state == "sure"


def test_loss_stirs_since_it_is_an_event() -> None:
    link = Link()
    a, b = link.add("a"), link.add("b")
    link.subscribe(a, "t")
    link.run(60)
    b.publish("t", 1, link.now)
    b.outbox.take(link.now)  # lost
    a.take_attention()
    b.publish("t", 2, link.now)
    for data in b.outbox.take(link.now):
        a.receive_datagram(data, ("10.0.0.2", 2416), link.now)
    assert a.take_attention()
    assert a.take_events()
