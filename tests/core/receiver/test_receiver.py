"""What comes in, sorted: delivered, counted, dropped when heard before."""

from __future__ import annotations

import pytest

from jsonbus.core.events import MessagesLost
from jsonbus.core.limits import DUPLICATE_WINDOW
from jsonbus.core.node import Node
from jsonbus.core.wire import codec
from jsonbus.core.wire.encode import encode_ping, encode_presence
from jsonbus.core.wire.encode_messages import encode_batch, encode_message
from tests.core.link import Link, forge

SENDER = ("10.9.9.9", 40000)


def make_receiver(link: Link, *patterns: str) -> Node:
    node = link.add("a")
    link.subscribe(node, *patterns)
    link.run(3)
    return node


def message(number: int, value: object = None, *, topic: str = "t", counter: int = 0) -> bytes:
    """Message `number` of a stranger, alone in datagram `counter`."""
    return forge(
        encode_message,
        codec.dumps(topic),
        codec.dumps(number if value is None else value),
        counter=counter or number,
        first_message=number,
    )


def batch(*items: object, counter: int = 1, first_message: int = 1) -> bytes:
    pairs = [codec.dumps(item) for item in items]
    return forge(encode_batch, b",".join(pairs), counter=counter, first_message=first_message)


# --- Messages -------------------------------------------------------------------------------------


def test_messages_have_topic_value_sequence_and_origin() -> None:
    link = Link()
    a, b = link.add("a", opened=False), link.add("b")
    a.outbox.wall_offset_s = 50_000.0
    link.subscribe(b, "t")
    link.run(3)
    link.open(a)
    link.run(1)
    link.publish(a, "t", 1, 2)
    first, second = link.received["b"]
    assert (first.topic, first.value, first.sequence) == ("t", 1, 1)
    assert (second.value, second.sequence) == (2, 2)
    assert (first.node, first.name) == (a.settings.node, "a")
    assert first.incarnation == a.settings.incarnation
    assert first.sent_at == pytest.approx(link.now + 50_000.0)
    assert first.received_at == pytest.approx(link.now)


def test_message_of_a_node_not_yet_introduced_has_its_id_for_a_name() -> None:
    link = Link()
    make_receiver(link, "t")
    link.inject(message(1))
    assert [each.name for each in link.received["a"]] == ["stranger"]


def test_message_of_a_node_known_from_a_list_has_its_name() -> None:
    link = Link()
    a, b = link.add("a"), link.add("b", share_delay_s=0.0)
    link.run(3)
    link.drop = lambda sender, receiver, frame: sender is a and receiver.settings.name == "c"
    c = link.add("c", opened=False)
    link.subscribe(c, "t")
    link.open(c)
    link.run(0.3)
    link.heal()
    link.publish(a, "t", 1)
    assert [each.name for each in link.received["c"]] == ["a"]
    assert b.state == "sure"


def test_forged_restarts_between_its_words_do_not_mute_a_node() -> None:
    link = Link()
    make_receiver(link, "t")
    for number in range(1, 6):
        link.inject(message(number))
        link.inject(forge(encode_ping, incarnation=99, counter=number, ping_id=1))
    assert link.values("a") == [1, 2, 3, 4, 5]


def test_what_comes_in_is_counted() -> None:
    link = Link()
    a = make_receiver(link, "t")
    before = a.view.stats()
    datagrams = [message(1), batch(["t", 2], ["u", 3], counter=2, first_message=2), b"nonsense"]
    for data in datagrams:
        a.receive_datagram(data, SENDER, link.now)
    after = a.view.stats()
    grown = {key: after[key] - before.get(key, 0) for key in after if after[key] != before.get(key)}
    assert grown == {
        "datagrams_received": 3,
        "bytes_received": sum(map(len, datagrams)),
        "messages_received": 3,
        "messages_delivered": 2,
        "messages_unwanted": 1,
        "datagrams_rejected": 1,
        "rejected_not_json": 1,
    }


def test_one_message_reaches_every_sink_that_wants_it_once() -> None:
    link = Link()
    a = link.add("a")
    a.subscribe("t", "first", link.now)
    a.subscribe("*", "first", link.now)
    a.subscribe("**", "second", link.now)
    a.receive_datagram(message(1), SENDER, link.now)
    a.receive_datagram(message(2), SENDER, link.now)
    deliveries = {sink: [each.value for each in got] for sink, got in a.take_deliveries()}
    assert deliveries == {"first": [1, 2], "second": [1, 2]}
    assert a.take_deliveries() == []
    assert a.view.stats()["messages_delivered"] == 2


def test_subscription_made_later_gets_only_later_messages() -> None:
    link = Link()
    a = link.add("a")
    link.inject(message(1))
    link.subscribe(a, "t")
    link.inject(message(2))
    a.unsubscribe("t", "sink", link.now)
    link.inject(message(3))
    assert link.values("a") == [2]
    assert a.view.stats()["messages_unwanted"] == 2


def test_own_datagrams_that_come_back_are_ignored() -> None:
    link = Link()
    a = make_receiver(link, "t")
    link.subscribe(link.add("b"), "t")
    link.run(3)
    before = a.view.stats()["messages_received"]
    link.publish(a, "t", 1, 2)
    assert link.values("a") == [1, 2]  # once, from itself
    assert link.values("b") == [1, 2]
    assert a.view.stats()["messages_received"] == before


def test_repeated_datagrams_are_dropped_and_counted() -> None:
    link = Link()
    a = make_receiver(link, "t")
    for number in (1, 2, 1, 2, 2):
        link.inject(message(number))
    assert link.values("a") == [1, 2]
    assert a.view.stats()["datagrams_repeated"] == 3


def test_presence_that_more_datagrams_overtook_than_the_window_holds_is_not_lost() -> None:
    link = Link()
    a = make_receiver(link, "t")
    for number in range(1, DUPLICATE_WINDOW + 10):
        link.inject(message(number, counter=number + 1))
    first = {"version": 1, "name": "basic", "mode": "basic", "is_master": False}
    presence = forge(encode_presence, counter=1, **first, settled=True, digest=None, sums=None)
    for _ in range(2):  # nobody knows whether it is a repeat, and none does harm
        link.inject(presence)
        assert [node.name for node in a.view.nodes(link.now)] == ["a", "basic"]
    link.inject(message(1, counter=2))
    assert a.view.stats()["datagrams_repeated"] == 1


def test_datagrams_of_a_former_incarnation_are_dropped_and_counted() -> None:
    link = Link()
    a = make_receiver(link, "t")
    for counter in (1, 2):
        link.inject(forge(encode_ping, incarnation=9, counter=counter, ping_id=1))
    link.inject(message(1))
    assert link.values("a") == []
    assert a.view.stats()["datagrams_outdated"] == 1


# --- Losses ---------------------------------------------------------------------------------------


def test_lost_messages_are_counted_and_reported_with_who_lost_how_many() -> None:
    link = Link()
    a = make_receiver(link, "t")
    for number in (1, 2, 6):
        link.inject(message(number))
    assert link.events_of("a", MessagesLost) == [MessagesLost("stranger", "stranger", 3)]
    assert a.view.stats()["messages_lost"] == 3


def test_late_message_is_delivered_and_taken_off_the_count() -> None:
    link = Link()
    a = make_receiver(link, "t")
    for number in (1, 3, 2):
        link.inject(message(number))
    assert link.values("a") == [1, 3, 2]
    assert a.view.stats()["messages_lost"] == 0


def test_loss_at_the_end_of_a_burst_is_noticed_by_the_next_control_datagram() -> None:
    link = Link()
    a, b = link.add("a"), link.add("b")
    link.subscribe(a, "t")
    link.run(5)
    link.publish(b, "t", 1)
    link.cut_off(a)
    link.publish(b, "t", 2, 3)
    link.heal()
    assert a.view.stats()["messages_lost"] == 0
    link.run(2.1)
    assert a.view.stats()["messages_lost"] == 2
    (info,) = [each for each in a.view.nodes(link.now) if each.name == "b"]
    assert (info.received, info.lost) == (1, 2)


def test_unwanted_messages_count_as_received_not_as_lost() -> None:
    link = Link()
    a = make_receiver(link, "t")
    link.inject(batch(["t", 1], ["u", 2], ["t", 3]))
    link.inject(batch(["t", 4], counter=2, first_message=4))
    stats = a.view.stats()
    assert (stats["messages_lost"], stats["messages_unwanted"]) == (0, 1)
    assert link.values("a") == [1, 3, 4]


# --- Large messages refused by their first bytes --------------------------------------------------


def test_large_unwanted_messages_leave_no_gap_and_are_not_counted_twice() -> None:
    link = Link()
    a = make_receiver(link, "t")
    link.inject(message(1))
    link.inject(message(2, "x" * 2_000, topic="u"))
    link.inject(message(2, "x" * 2_000, topic="u"))
    link.inject(message(3))
    stats = a.view.stats()
    assert (stats["messages_lost"], stats["datagrams_repeated"]) == (0, 1)
    assert link.values("a") == [1, 3]


def test_large_message_that_is_wanted_is_delivered() -> None:
    link = Link()
    make_receiver(link, "t")
    link.inject(message(1, "x" * 2_000))
    link.inject(message(2, {"topic": "u", "text": "x" * 2_000}))
    assert link.values("a") == ["x" * 2_000, {"topic": "u", "text": "x" * 2_000}]


def test_large_unwanted_plain_message_is_counted_too() -> None:
    link = Link()
    a = make_receiver(link, "t")
    link.inject(codec.dumps({"topic": "u", "payload": "x" * 2_000}))
    stats = a.view.stats()
    assert (stats["datagrams_plain"], stats["messages_unwanted"]) == (1, 1)
