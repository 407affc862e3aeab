"""Plain peers: nodes and sensors that only know `topic` and `payload`."""

from __future__ import annotations

import pytest

from jsonbus.core.events import NodeJoined
from jsonbus.core.limits import PLAIN_LEASE_S, PLAIN_PEERS_MAX
from jsonbus.core.wire import codec
from jsonbus.core.wire.frames import MessagesFrame
from tests.core.link import Link, is_share

ADDRESS = "10.9.9.9"


def plain_list(*topics: str) -> bytes:
    return codec.dumps({"topic": "jsonbus.topics", "payload": ["jsonbus.topics", *topics]})


def plain_message(topic: str, value: object) -> bytes:
    return codec.dumps({"topic": topic, "payload": value})


def test_plain_lists_topics_are_wanted() -> None:
    link = Link()
    a = link.add("a")
    link.run(3)
    assert link.publish(a, "hello", 1) == [False]
    link.inject(plain_list("hello", "time"))
    assert link.publish(a, "hello", 1) == [True]
    assert link.publish(a, "other", 1) == [False]
    assert a.view.subscriptions()["hello"] == [f"plain:{ADDRESS}"]


def test_plain_peers_get_every_message_in_a_datagram_of_its_own() -> None:
    link = Link()
    a = link.add("a")
    link.run(3)
    link.inject(plain_list("hello"))
    link.forget_sent()
    link.publish(a, "hello", 1, 2, 3)
    frames = link.frames("a", MessagesFrame)
    assert [frame.items for frame in frames] == [[["hello", 1]], [["hello", 2]], [["hello", 3]]]
    bodies = [codec.loads(d) for d in link.datagrams if b'"hello"' in d and b"subs" not in d]
    assert [(body["topic"], body["payload"]) for body in bodies] == [
        ("hello", 1),
        ("hello", 2),
        ("hello", 3),
    ]


def test_every_datagram_can_be_read_by_a_plain_peer() -> None:
    link = Link()
    a, b = link.add("a"), link.add("b", mode="basic")
    link.inject(plain_list("hello"))
    link.subscribe(b, "x")
    link.run(30)
    link.publish(a, "hello", 1)
    a.ping(link.now)
    link.close(a)
    for datagram in link.datagrams:
        body = codec.loads(datagram)
        assert list(body)[:2] == ["topic", "payload"]
        if body["topic"] == "jsonbus.topics":
            assert body["payload"][0] == "jsonbus.topics"
            assert all(isinstance(topic, str) for topic in body["payload"])


def test_plain_list_is_answered_with_what_it_lacks() -> None:
    link = Link()
    a = link.add("a", share_delay_s=0.0)
    link.subscribe(a, "wanted")
    link.run(3)
    link.forget_sent()
    link.inject(plain_list("hello"))
    (share,) = [frame for _, _, frame in link.sent if is_share(frame)]
    assert share.topics == ["hello", "wanted"]


def test_plain_list_that_lacks_nothing_is_not_answered() -> None:
    link = Link()
    a = link.add("a", share_delay_s=0.0)
    link.subscribe(a, "wanted")
    link.run(3)
    link.forget_sent()
    link.inject(plain_list("hello", "wanted"))
    link.run(0.5)
    assert link.senders(is_share) == []


def test_plain_peer_that_repeats_itself_is_not_answered_every_time() -> None:
    link = Link()
    a = link.add("a", share_delay_s=0.0)
    link.subscribe(a, "wanted")
    link.run(3)
    link.forget_sent()
    for _ in range(50):
        link.inject(plain_list("hello"))
        link.run(0.1)
    assert len(link.senders(is_share)) <= 6


def test_plain_peer_is_not_answered_because_of_served_topics() -> None:
    # Its list can never hold the name under which they are listed.
    link = Link()
    a = link.add("a", share_delay_s=0.0)
    a.requests.serve("add", "sink", link.now)
    link.run(3)
    link.forget_sent()
    link.inject(plain_list("hello"))
    link.run(2)
    assert link.senders(is_share) == []


def test_one_of_many_nodes_answers_a_plain_peer() -> None:
    link = Link()
    nodes = link.add_many(8)
    link.subscribe(nodes[0], "wanted")
    link.run(3)
    link.forget_sent()
    link.inject(plain_list("hello"))
    link.run(1)
    assert len(link.senders(is_share)) == 1


@pytest.mark.parametrize("is_master", [True, False])
def test_in_mode_master_the_master_answers_a_plain_peer(is_master: bool) -> None:
    link = Link()
    a = link.add("a", mode="master", is_master=is_master)
    link.subscribe(a, "wanted")
    link.run(3)
    link.forget_sent()
    link.inject(plain_list("hello"))
    assert link.senders(is_share) == (["a"] if is_master else [])


def test_plain_peers_are_part_of_the_list_that_joiners_get() -> None:
    link = Link()
    a = link.add("a", share_delay_s=0.0)
    link.run(3)
    link.inject(plain_list("hello"))
    late = link.add("late")
    assert late.state == "sure"
    assert link.publish(late, "hello", 1) == [True]
    assert link.agrees()
    assert a.view.subscriptions() == late.view.subscriptions()


def test_joiner_that_learned_of_a_plain_peer_by_list_sends_unbatched_too() -> None:
    link = Link()
    link.add("a", share_delay_s=0.0)
    link.run(3)
    link.inject(plain_list("hello"))
    late = link.add("late")
    link.publish(late, "hello", 1, 2)
    assert [len(frame.items) for frame in link.frames("late", MessagesFrame)] == [1, 1]


def test_plain_list_that_is_repeated_keeps_the_peer_alive() -> None:
    link = Link()
    a = link.add("a")
    for _ in range(4):
        link.inject(plain_list("hello"))
        link.run(PLAIN_LEASE_S / 2)
    assert a.has_subscribers("hello")
    assert len(link.events_of("a", NodeJoined)) == 1


def test_plain_peer_that_comes_back_after_it_expired_is_known_again() -> None:
    link = Link()
    a = link.add("a")
    link.inject(plain_list("hello"))
    link.run(PLAIN_LEASE_S + 5)
    assert not a.has_subscribers("hello")
    link.inject(plain_list("hello"))
    assert a.has_subscribers("hello")


def test_plain_list_that_one_node_missed_reaches_it_through_the_others() -> None:
    link = Link()
    a, b = link.add("a"), link.add("b")
    link.run(5)
    a.receive_datagram(plain_list("hello"), (ADDRESS, 40000), link.now)
    link.run(5)
    assert b.has_subscribers("hello")
    assert link.agrees()


def test_plain_peers_topics_only_grow() -> None:
    link = Link()
    a = link.add("a")
    link.inject(plain_list("x"))
    link.inject(plain_list("y"))
    assert a.has_subscribers("x") and a.has_subscribers("y")
    assert len(a.view.nodes(link.now)) == 2


def test_two_plain_peers_are_kept_apart_by_address() -> None:
    link = Link()
    a = link.add("a")
    link.inject(plain_list("x"), "10.9.9.1")
    link.inject(plain_list("y"), "10.9.9.2")
    assert [info.name for info in a.view.nodes(link.now) if info.is_plain] == [
        "plain:10.9.9.1",
        "plain:10.9.9.2",
    ]


def test_plain_peer_is_kept_for_ten_minutes_and_not_longer() -> None:
    link = Link()
    a, b = link.add("a"), link.add("b")
    link.run(3)
    link.inject(plain_list("hello"))
    link.run(PLAIN_LEASE_S - 1)
    assert a.has_subscribers("hello") and b.has_subscribers("hello")
    link.run(3)
    assert not a.has_subscribers("hello") and not b.has_subscribers("hello")
    link.run(3)
    assert link.agrees()


def test_plain_message_of_the_peer_keeps_its_list_alive() -> None:
    link = Link()
    a = link.add("a")
    link.inject(plain_list("hello"))
    link.run(PLAIN_LEASE_S - 1)
    link.inject(plain_message("anything", 1))
    link.run(PLAIN_LEASE_S - 1)
    assert a.has_subscribers("hello")


def test_messages_go_unbatched_as_long_as_the_plain_peers_entry_lives() -> None:
    link = Link()
    a = link.add("a")
    link.run(3)
    link.inject(plain_list("hello"))
    link.run(500)
    link.inject(plain_message("anything", 1))
    link.run(200)
    link.publish(a, "hello", 1, 2)
    assert [len(frame.items) for frame in link.frames("a", MessagesFrame)] == [1, 1]


def test_sensor_without_a_list_makes_messages_go_unbatched_for_a_minute() -> None:
    link = Link()
    a, b = link.add("a"), link.add("b")
    link.subscribe(b, "t")
    link.run(3)
    link.inject(plain_message("anything", 1))
    link.publish(a, "t", 1, 2)
    link.run(61)
    link.publish(a, "t", 3, 4)
    assert [len(frame.items) for frame in link.frames("a", MessagesFrame)] == [1, 1, 2]


def test_lone_node_with_a_plain_peer_is_sure() -> None:
    link = Link()
    a = link.add("a")
    link.inject(plain_list("hello"))
    link.run(3)
    assert a.state == "sure"


def test_plain_peers_are_bounded_and_those_refused_are_counted() -> None:
    link = Link()
    a = link.add("a")
    for number in range(PLAIN_PEERS_MAX + 3):
        link.inject(plain_list("hello"), f"10.9.{number // 256}.{number % 256}")
    assert a.view.stats()["plain_peers_refused"] == 3
    assert len(a.view.nodes(link.now)) == 1 + PLAIN_PEERS_MAX


def test_plain_list_with_names_that_no_node_publishes_keeps_the_rest() -> None:
    link = Link()
    a = link.add("a")
    link.inject(plain_list("good", "bad//name", "jsonbus.bye", ""))
    assert [pattern for pattern in a.view.subscriptions()] == ["good"]


def test_plain_sensors_message_is_delivered() -> None:
    link = Link()
    a = link.add("a")
    link.subscribe(a, "sensor/*")
    link.inject(plain_message("sensor/1", {"celsius": 21.5}))
    (message,) = link.received["a"]
    assert (message.topic, message.value) == ("sensor/1", {"celsius": 21.5})
    assert (message.node, message.incarnation) == (f"plain:{ADDRESS}:40000", 0)
    assert message.sequence is None
    stats = link.nodes[0].view.stats()
    assert (stats["messages_received"], stats["messages_delivered"]) == (1, 1)
    assert stats["datagrams_plain"] == 1
    assert message.sent_at == message.received_at


def test_plain_sensor_is_no_node_and_makes_nobody_doubt() -> None:
    link = Link()
    a = link.add("a")
    link.run(3)
    link.inject(plain_message("sensor/1", 1))
    link.run(1)
    assert a.state == "sure"
    assert len(a.view.nodes(link.now)) == 1


def test_basic_node_takes_plain_lists_without_answering() -> None:
    link = Link()
    a = link.add("a", mode="basic")
    link.inject(plain_list("hello"))
    link.run(2)
    assert len(a.view.nodes(link.now)) == 2
    assert link.senders(is_share) == []
