"""Node: being driven, subscribing, closing."""

from __future__ import annotations

import enum
import gc
import random
import weakref

import pytest

from jsonbus.core import node_parts
from jsonbus.core.events import DatagramRejected, InterestChanged
from jsonbus.core.node import Node
from jsonbus.core.settings import NodeSettings
from jsonbus.core.wire.decode import decode
from jsonbus.core.wire.encode import encode_ping
from jsonbus.core.wire.frames import ByeFrame, MessagesFrame
from jsonbus.errors import ClosedError, InvalidTopicError, LocalError
from tests.core.link import START, Link, forge

SENDER = ("10.9.9.9", 40000)


class Room(enum.StrEnum):
    HALL = "hall"


def make_node() -> Node:
    return Node(NodeSettings("k3v9", 1, "kitchen"), random.Random(1))


def test_unopened_node_is_silent() -> None:
    node = make_node()
    assert node.timer_at() is None
    assert not node.outbox.has_output
    assert node.state == "joining"


def test_timer_is_asked_for_until_it_was_handled() -> None:
    node = make_node()
    node.open(START)
    for _ in range(50):
        at = node.timer_at()
        assert at is not None
        node.handle_timer(at)
        after = node.timer_at()
        assert after is not None and after > at


def test_timer_handled_early_or_often_does_no_harm() -> None:
    node = make_node()
    node.open(START)
    first = node.outbox.take(START)
    for step in range(100):
        node.handle_timer(START + step * 0.001)
    assert len(first) == 1
    assert node.outbox.take(START + 0.1) == []


def test_output_is_given_out_once() -> None:
    node = make_node()
    node.open(START)
    assert node.outbox.has_output and node.outbox.size_bytes > 0
    assert len(node.outbox.take(START)) == 1
    assert not node.outbox.has_output and node.outbox.size_bytes == 0
    assert node.outbox.take(START) == []


def test_frames_decoded_by_others_are_taken_like_datagrams() -> None:
    link = Link()
    a = link.add("a")
    link.subscribe(a, "t")
    data = b'{"topic":"t","payload":7}'
    a.receive_frame(decode(data), SENDER, link.now, len(data))
    link.move()
    assert link.values("a") == [7]
    assert a.view.stats()["bytes_received"] >= len(data)


def test_node_that_did_not_listen_doubts_until_somebody_agrees() -> None:
    link = Link()
    a, _ = link.add("a"), link.add("b")
    link.run(5)
    a.doubt_network("this node did not listen for 3.2 s", link.now)
    assert a.state == "doubting"
    assert "3.2 s" in a.view.state_reason
    link.run(3)
    assert a.state == "sure"


def test_wall_clock_may_be_set_anew() -> None:
    link = Link()
    a, b = link.add("a"), link.add("b")
    link.subscribe(b, "t")
    link.run(5)
    a.outbox.wall_offset_s = 1_000.0
    b.outbox.wall_offset_s = 2_000.0
    link.publish(a, "t", 1)
    (message,) = link.received["b"]
    assert message.sent_at == pytest.approx(link.now + 1_000.0)
    assert message.received_at == pytest.approx(link.now + 2_000.0)
    assert a.outbox.wall_offset_s == 1_000.0


# --- Subscribing ----------------------------------------------------------------------------------


def test_sink_with_several_patterns_gets_each_message_once() -> None:
    link = Link()
    a, b = link.add("a"), link.add("b")
    link.subscribe(b, "t", "*", "**")
    link.run(3)
    link.publish(a, "t", 1)
    assert link.values("b") == [1]


def test_subscription_ends_when_its_last_pattern_does() -> None:
    link = Link()
    a = link.add("a")
    link.subscribe(a, "x", "y")
    assert a.unsubscribe("x", "sink", link.now)
    assert not a.unsubscribe("x", "sink", link.now)
    assert not a.unsubscribe("y", "stranger", link.now)
    assert a.has_subscribers("y") and not a.has_subscribers("x")
    assert a.unsubscribe("y", "sink", link.now)
    assert not a.unsubscribe("y", "sink", link.now)
    assert a.own_entry().patterns == ()


def test_nothing_is_kept_of_a_sink_that_unsubscribed() -> None:
    class Sink:
        pass

    link = Link()
    a = link.add("a")
    sink = Sink()
    gone = weakref.ref(sink)
    a.subscribe("t", sink, link.now)
    a.receive_datagram(b'{"topic":"t","payload":1}', SENDER, link.now)
    a.unsubscribe("t", sink, link.now)
    assert len(a.take_deliveries()) == 1
    a.has_subscribers("t")
    del sink
    gc.collect()
    assert gone() is None


def test_message_received_before_unsubscribing_is_still_delivered() -> None:
    link = Link()
    a = link.add("a")
    link.subscribe(a, "t")
    a.receive_datagram(b'{"topic":"t","payload":1}', SENDER, link.now)
    a.unsubscribe("t", "sink", link.now)
    ((sink, messages),) = a.take_deliveries()
    assert (sink, [message.value for message in messages]) == ("sink", [1])


@pytest.mark.parametrize("pattern", ["", "a//b", "a/b*", "jsonbus.topics", 7])
def test_invalid_pattern_is_an_error_and_changes_nothing(pattern: object) -> None:
    link = Link()
    a = link.add("a")
    with pytest.raises(InvalidTopicError):
        a.subscribe(pattern, "sink", link.now)  # type: ignore[arg-type]
    assert a.own_entry().patterns == ()


def test_members_of_a_str_enum_are_topics_like_any_other() -> None:
    link = Link()
    a, b = link.add("a"), link.add("b")
    b.subscribe(Room.HALL, "sink", link.now)
    b.requests.serve(Room.HALL, "server", link.now)
    link.run(3)
    assert all(type(pattern) is str for pattern in b.own_entry().patterns)
    assert list(map(type, b.view.subscriptions())) == [str]
    link.publish(a, Room.HALL, 1)
    assert [(message.topic, message.value) for message in link.received["b"]] == [("hall", 1)]
    a.requests.request(Room.HALL, 1, 1.0, link.now)


def test_served_topics_that_do_not_fit_one_datagram_are_refused() -> None:
    link = Link()
    a, b = link.add("a"), link.add("b")
    link.run(3)
    for number in range(1_000):
        a.subscribe(f"{number:04d}/{'x' * 200}", "sink", link.now)
    with pytest.raises(LocalError, match="serve fewer"):
        for number in range(1_000):
            a.requests.serve(f"{number:04d}/{'y' * 200}", "sink", link.now)
    link.run(1)  # what was accepted can be announced
    [info] = [each for each in b.view.nodes(link.now) if each.name == "a"]
    assert 200 < len(info.serves) < 400
    assert info.wants == ("**",)
    assert max(map(len, link.datagrams)) <= 65_507


def test_has_subscribers_counts_own_and_others() -> None:
    link = Link()
    a, b = link.add("a"), link.add("b")
    link.run(3)
    assert not a.has_subscribers("t")
    link.subscribe(b, "t")
    link.run(0.01)
    assert a.has_subscribers("t") and b.has_subscribers("t")


# --- Closing --------------------------------------------------------------------------------------


def test_goodbye_goes_out_after_the_last_message() -> None:
    link = Link()
    a, b = link.add("a"), link.add("b")
    link.subscribe(b, "t")
    link.run(5)
    link.forget_sent()
    for number in range(3):
        a.publish("t", number, link.now)
    link.close(a)
    assert [type(frame) for _, _, frame in link.sent] == [MessagesFrame, ByeFrame]
    assert link.values("b") == [0, 1, 2]
    assert [info.name for info in b.view.nodes(link.now)] == ["b"]


def test_closed_node_refuses_and_closing_again_changes_nothing() -> None:
    link = Link()
    a = link.add("a")
    link.subscribe(a, "t")
    a.close(link.now)
    goodbye = a.outbox.take(link.now)
    a.close(link.now)
    assert len(goodbye) == 1 and not a.outbox.has_output
    for refused in (
        lambda: a.publish("t", 1, link.now),
        lambda: a.subscribe("t", "sink", link.now),
        lambda: a.requests.serve("s", "sink", link.now),
        lambda: a.requests.request("s", 1, 1.0, link.now),
        lambda: a.ping(link.now),
        lambda: a.view.explain("t"),
    ):
        with pytest.raises(ClosedError):
            refused()


def test_closed_node_says_nothing_after_its_goodbye() -> None:
    link = Link()
    a = link.add("a", mode="master", is_master=True)
    a.requests.serve("s", "sink", link.now)
    link.run(3)
    a.requests.request("s", 1, 9.0, link.now)
    a.close(link.now)
    link.move()
    link.forget_sent()
    b = link.add("b", mode="master")
    link.inject(forge(encode_ping, ping_id=1))
    a.doubt_network("the network interfaces changed", link.now)
    a.send_failed(link.now)
    a.send_works(link.now)
    a.doubt_network("this node did not listen for 9.0 s", link.now)
    a.unsubscribe("t", "sink", link.now)
    a.requests.unserve("s", link.now)
    a.handle_timer(link.now + 100)
    link.run(9)
    assert {name for name, _, _ in link.sent} == {"b"}
    assert a.timer_at() is None
    assert b.state == "sure"


def test_messages_received_before_closing_can_still_be_taken() -> None:
    link = Link()
    a = link.add("a")
    link.subscribe(a, "t")
    a.receive_datagram(b'{"topic":"t","payload":1}', SENDER, link.now)
    a.close(link.now)
    assert len(a.take_deliveries()) == 1


# --- Events ---------------------------------------------------------------------------------------


def test_events_are_taken_once() -> None:
    node = make_node()
    node.open(START)
    node.receive_datagram(b"nonsense", SENDER, START)
    assert [type(event) for event in node.take_events()] == [DatagramRejected]
    assert node.take_events() == []


def test_events_that_nobody_takes_are_bounded_and_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(node_parts, "EVENTS_MAX", 10)
    node = make_node()
    node.open(START)
    for number in range(30):
        data = b'{"topic":"jsonbus.topics","payload":["t%d"]}' % number
        node.receive_datagram(data, SENDER, START)
    events = node.take_events()
    assert len(events) == 10
    assert events[-1] == InterestChanged()
    assert node.view.stats()["events_dropped"] > 0
