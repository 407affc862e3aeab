from __future__ import annotations

import random

from jsonbus.core.wire import codec
from jsonbus.core.wire.decode import decode
from jsonbus.sim.participants import LIST_TOPIC, PLAIN_ANSWER_DELAY_MAX_S, PlainPeer, SimNode
from jsonbus.sim.records import Flight


def flight(topic: str, payload: object) -> Flight:
    data = codec.dumps({"topic": topic, "payload": payload})
    return Flight(data, decode(data), ("10.0.0.9", 2416), False, [])


def make_peer(answers: bool = True) -> PlainPeer:
    peer = PlainPeer(0, "peer", ["a", "b"], random.Random(1), answers)
    peer.boot()
    return peer


def lists_of(peer: PlainPeer) -> list[list[str]]:
    sent = [codec.loads(data) for data in peer.output(0.0)]
    return [datagram["payload"] for datagram in sent if datagram["topic"] == LIST_TOPIC]


def test_a_plain_peer_announces_its_topics_and_the_list_itself() -> None:
    assert lists_of(make_peer()) == [[LIST_TOPIC, "a", "b"]]


def test_a_plain_peer_answers_a_list_that_lacks_something_with_the_union() -> None:
    peer = make_peer()
    peer.output(0.0)
    peer.receive(flight(LIST_TOPIC, [LIST_TOPIC, "c"]), 1.0)
    at = peer.timer_at()
    assert at is not None and 1.0 <= at <= 1.0 + PLAIN_ANSWER_DELAY_MAX_S
    peer.handle_timer(at)
    assert lists_of(peer) == [[LIST_TOPIC, "a", "b", "c"]]
    assert peer.timer_at() is None


def test_a_plain_peer_cancels_its_answer_when_a_complete_list_arrives() -> None:
    peer = make_peer()
    peer.receive(flight(LIST_TOPIC, [LIST_TOPIC]), 1.0)
    peer.receive(flight(LIST_TOPIC, [LIST_TOPIC, "a", "b"]), 1.01)
    assert peer.timer_at() is None


def test_a_plain_peer_that_does_not_answer_stays_silent() -> None:
    peer = make_peer(answers=False)
    peer.receive(flight(LIST_TOPIC, [LIST_TOPIC]), 1.0)
    assert peer.timer_at() is None


def test_a_plain_peer_understands_one_message_per_datagram_and_no_batch() -> None:
    peer = make_peer()
    peer.receive(flight("a", 1), 1.0)
    peer.receive(flight("not/wanted", 2), 1.0)
    batch = codec.dumps({"topic": "jsonbus.batch", "payload": [["a", 3]]})
    peer.receive(Flight(batch, decode(flight("a", 3).data), ("", 1), False, []), 1.0)
    assert peer.heard == [("a", 1)]


def test_a_nodes_clock_shows_its_offset_and_never_goes_back() -> None:
    node = SimNode(0, "node", {}, 1e6, 0.0)
    assert node.local(1.0) == 1e6 + 1.0
    assert node.local(1.0 - 1e-11) == node.local(1.0)


def test_each_life_of_a_node_is_a_later_incarnation_by_its_own_wall_clock() -> None:
    node = SimNode(0, "node", {"mode": "master", "is_master": True}, 500.0, -3600.0)
    node.boot("id1", random.Random(1), 0.0)
    first = node.incarnation
    assert first == (1_000_000_000 - 3600) * 1000
    node.boot("id1", random.Random(1), 0.0)
    assert node.incarnation > first
    assert node.kind == "master"


def test_a_timer_is_never_called_before_its_time() -> None:
    node = SimNode(0, "node", {}, 123_456.789, 0.0)
    node.boot("id1", random.Random(1), 0.0)
    node.core.open(node.local(0.0))
    for _ in range(200):
        at = node.timer_at()
        assert at is not None
        node.handle_timer(at)
        node.output(at)
        later = node.timer_at()
        assert later is not None and later > at
