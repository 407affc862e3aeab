"""Large messages that nobody wants: refused by topic, unparsed, and counted all the same."""

from __future__ import annotations

from typing import Any

import pytest

from jsonbus.core import fast_receive, roster
from jsonbus.core.events import MessagesLost, NodeLeft
from jsonbus.core.node import Node
from jsonbus.core.wire import codec
from jsonbus.core.wire.encode import encode_ping
from jsonbus.core.wire.encode_messages import Stamp, encode_message
from jsonbus.core.wire.frames import MessagesFrame
from tests.core.link import Link

SENT_US = 1_731_715_200_123_456
LARGE = "x" * 2_000
HERE = ("10.9.9.9", 40000)
THERE = ("10.9.9.8", 40000)


class Stranger:
    """Sends messages, each alone in a datagram."""

    def __init__(self, node: str = "stranger", incarnation: int = 1) -> None:
        self.stamp = Stamp(node, incarnation)
        self.messages = 0

    def say(self, value: object = LARGE, topic: str = "u") -> bytes:
        self.messages += 1
        payload = codec.dumps(value)
        return encode_message(self.stamp, codec.dumps(topic), payload, self.messages, SENT_US)

    def ping(self) -> bytes:
        return encode_ping(1).encode(self.stamp, self.messages + 1, SENT_US)


class Ear:
    """A node that wants only `t`, and what its counters gained."""

    def __init__(self) -> None:
        self.link = Link()
        self.node = self.link.add("a")
        self.link.subscribe(self.node, "t")
        self.link.run(3)
        self.node.take_attention()
        self._before = self.node.view.stats()

    def hear(self, *datagrams: bytes, sender: tuple[str, int] = HERE) -> None:
        for data in datagrams:
            self.node.receive_datagram(data, sender, self.link.now)

    def values(self) -> list[Any]:
        return [each.value for _, messages in self.node.take_deliveries() for each in messages]

    def gained(self, *names: str) -> list[int]:
        stats = self.node.view.stats()
        return [stats[name] - self._before.get(name, 0) for name in names]


def test_refused_messages_are_counted_like_all_others() -> None:
    ear, stranger = Ear(), Stranger()
    datagrams = [stranger.say() for _ in range(20)]
    ear.hear(*datagrams)
    assert ear.gained("datagrams_received", "messages_received", "messages_unwanted") == [20] * 3
    assert ear.gained("bytes_received") == [sum(map(len, datagrams))]
    assert ear.gained("messages_lost", "datagrams_repeated", "datagrams_rejected") == [0] * 3
    (peer,) = ear.node._roster.peers.values()
    assert (peer.received, peer.lost) == (20, 0)


def test_gaps_between_refused_messages_are_counted_exactly() -> None:
    ear, stranger = Ear(), Stranger()
    datagrams = [stranger.say() for _ in range(20)]
    ear.hear(*datagrams[:5], *datagrams[8:12], *datagrams[13:])
    assert ear.gained("messages_lost", "messages_received") == [4, 16]
    lost = [each.count for each in ear.node.take_events() if isinstance(each, MessagesLost)]
    assert lost == [3, 1]
    ear.hear(datagrams[6], datagrams[12])
    assert ear.gained("messages_lost", "messages_received") == [2, 18]


def test_repeats_of_refused_messages_are_counted_as_repeated() -> None:
    ear, stranger = Ear(), Stranger()
    datagrams = [stranger.say() for _ in range(6)]
    ear.hear(*(each for data in datagrams for each in (data, data)), *datagrams)
    assert ear.gained("datagrams_repeated", "messages_received", "messages_lost") == [12, 6, 0]


def test_refused_and_other_datagrams_of_one_node_go_on_from_each_other() -> None:
    ear, stranger = Ear(), Stranger()
    for number in range(10):
        ear.hear(stranger.say(), stranger.say(number, "t"), stranger.say(), stranger.ping())
    assert ear.values() == list(range(10))
    assert ear.gained("messages_received", "messages_unwanted", "messages_lost") == [30, 20, 0]


def test_loss_before_an_unwanted_message_shows_with_that_message() -> None:
    ear, stranger = Ear(), Stranger()
    ear.hear(stranger.say())
    stranger.say(1, "t")
    ear.hear(stranger.say())
    assert ear.gained("messages_lost") == [1]


def test_topic_is_wanted_at_once_after_subscribe_and_refused_again_after_unsubscribe() -> None:
    ear, stranger = Ear(), Stranger()
    now = ear.link.now
    ear.hear(stranger.say(), stranger.say())
    for _ in range(3):
        ear.node.subscribe("u", "sink", now)
        ear.hear(stranger.say(), stranger.say())
        assert ear.values() == [LARGE, LARGE]
        ear.node.unsubscribe("u", "sink", now)
        ear.hear(stranger.say(), stranger.say())
        assert ear.values() == []
    assert ear.gained("messages_unwanted", "messages_delivered", "messages_lost") == [8, 6, 0]


@pytest.mark.parametrize(
    "value",
    [
        {"topic": "t", "text": LARGE},
        {"text": LARGE, "topic": "t"},
        [LARGE, '{"topic":"t","payload":1}'],
        {"x": LARGE, "jb": {"n": "stranger", "i": 1, "q": 9, "m": 9, "t": SENT_US}},
        LARGE + ',"jb":{"n":"stranger","i":1,"q":3,"m":3,"t":1731715200123456}}',
        LARGE + '\\u0074 \\ " %d %',
    ],
)
def test_payload_that_looks_like_something_else_deceives_nobody(value: object) -> None:
    ear, stranger = Ear(), Stranger()
    for _ in range(3):
        ear.hear(stranger.say(), stranger.say(value), stranger.say(value, "t"))
    assert ear.values() == [value] * 3
    assert ear.gained("messages_received", "messages_unwanted") == [9, 6]
    assert ear.gained("messages_lost", "datagrams_repeated", "datagrams_rejected") == [0] * 3


@pytest.mark.parametrize("topic", ['u"', 'u"t', "u\\", 'u\\"', "u%d", "%", "ü", "u/t", "u,", "{u"])
def test_unwanted_topics_of_any_spelling_are_counted_as_unwanted(topic: str) -> None:
    ear, stranger = Ear(), Stranger()
    for number in range(3):
        ear.hear(*(stranger.say(topic=topic) for _ in range(2)), stranger.say(number, "t"))
    assert ear.values() == [0, 1, 2]
    assert ear.gained("messages_unwanted", "messages_lost") == [6, 0]


@pytest.mark.parametrize("wanted", ['u"t', "u\\", 'u\\"', "u%d", "u", "ut"])
def test_wanted_topic_is_not_taken_for_one_that_begins_alike(wanted: str) -> None:
    ear, stranger = Ear(), Stranger()
    ear.link.subscribe(ear.node, wanted)
    unwanted = [each for each in ("u", "u%", "ut", "utt", 'u"', "u\\\\") if each != wanted]
    for topic in unwanted * 2:
        ear.hear(*(stranger.say(topic=topic) for _ in range(2)), stranger.say(LARGE, wanted))
    assert ear.values() == [LARGE] * len(unwanted) * 2
    assert ear.gained("messages_unwanted", "messages_lost") == [4 * len(unwanted), 0]


@pytest.mark.parametrize("node", ["%", "a%d", "%%", "%b%s%(x)d", "{0}"])
def test_node_may_have_percent_signs_in_its_id(node: str) -> None:
    ear, stranger = Ear(), Stranger(node)
    datagrams = [stranger.say() for _ in range(5)]
    ear.hear(*datagrams, datagrams[-1])
    assert ear.gained("messages_unwanted", "datagrams_repeated", "messages_lost") == [5, 1, 0]


# --- Who is at an address -------------------------------------------------------------------------


def test_two_nodes_at_one_address_are_counted_apart() -> None:
    ear, first, second = Ear(), Stranger("first"), Stranger("second")
    second.stamp.counter = second.messages = 3  # numbers that meet those of the other
    for _ in range(5):
        ear.hear(first.say(), second.say(), second.say(), first.say())
    assert ear.gained("messages_unwanted", "messages_lost", "datagrams_repeated") == [20, 0, 0]
    assert {peer.node: peer.received for peer in ear.node._roster.peers.values()} == {
        "first": 10,
        "second": 10,
    }


def test_node_heard_from_two_addresses_is_one_node() -> None:
    ear, stranger = Ear(), Stranger()
    for _ in range(5):
        data = stranger.say()
        ear.hear(data, sender=HERE)
        ear.hear(data, sender=THERE)
    assert ear.gained("messages_unwanted", "datagrams_repeated", "messages_lost") == [5, 5, 0]


def test_from_the_second_message_of_a_node_on_nothing_is_parsed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ear, stranger = Ear(), Stranger()
    ear.hear(stranger.say(), stranger.say(topic="v"), stranger.say(), stranger.say(topic="v"))
    monkeypatch.setattr(fast_receive, "loads", lambda data: pytest.fail("it was parsed"))
    for _ in range(5):
        ear.hear(stranger.say(), stranger.say(topic="v"))
    assert ear.gained("messages_unwanted", "messages_lost") == [14, 0]


def test_what_is_remembered_of_unwanted_messages_is_bounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fast_receive, "UNWANTED_MAX", 4)
    ear, stranger = Ear(), Stranger()
    for number in range(50):
        ear.hear(stranger.say(topic=f"u{number}"))
        assert len(ear.node._router.unwanted) <= 4
    assert ear.gained("messages_unwanted", "messages_lost") == [50, 0]


def test_node_that_was_forgotten_is_met_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(roster, "PEERS_UNLISTED_MAX", 1)
    ear, first, second = Ear(), Stranger("first"), Stranger("second")
    for stranger in (first, second, first):
        ear.hear(stranger.say(), stranger.say(), stranger.say())
        assert list(ear.node._roster.peers) == [stranger.stamp.start.split(b'"')[5].decode()]
    assert ear.gained("messages_unwanted", "messages_lost") == [9, 0]


def test_restarted_node_is_met_anew_and_its_former_datagrams_are_outdated() -> None:
    ear, old, new = Ear(), Stranger(), Stranger(incarnation=2)
    ear.hear(old.say(), old.say())
    late = old.say()
    ear.hear(new.say(), new.say(), new.say())
    ear.hear(late)
    assert ear.gained("messages_unwanted", "datagrams_outdated", "messages_lost") == [5, 1, 0]
    (peer,) = ear.node._roster.peers.values()
    assert (peer.incarnation, peer.received) == (2, 3)


def test_late_datagram_is_outdated_also_if_the_new_incarnation_says_something_else() -> None:
    ear, old, new = Ear(), Stranger(), Stranger(incarnation=2)
    ear.hear(old.say(), old.say())
    late = old.say()
    ear.hear(new.ping(), new.ping(), late)
    assert ear.gained("messages_unwanted", "datagrams_outdated") == [2, 1]


@pytest.mark.parametrize("forged_from", [HERE, THERE])
def test_single_forged_restart_does_not_mute_a_node_whose_messages_are_refused(
    forged_from: tuple[str, int],
) -> None:
    ear, stranger, forger = Ear(), Stranger(), Stranger(incarnation=99)
    for _ in range(5):
        ear.hear(stranger.say(), stranger.say())
        ear.hear(forger.say(), sender=forged_from)
    assert ear.gained("messages_unwanted", "datagrams_outdated", "messages_lost") == [15, 0, 0]
    (peer,) = ear.node._roster.peers.values()
    assert (peer.incarnation, peer.received) == (1, 10)


# --- Liveness -------------------------------------------------------------------------------------


def make_talker(link: Link) -> tuple[Node, Node]:
    """One that hears, and one that sends whatever it has."""
    hearer, talker = link.add("hearer"), link.add("talker", mode="basic")
    talker.outbox.wall_offset_s = SENT_US / 1_000_000
    talker.outbox.allow_bytes(1_400, 65_507)
    link.run(10)
    return hearer, talker


def test_node_that_only_sends_what_is_unwanted_is_not_suspected() -> None:
    link = Link()
    hearer, talker = make_talker(link)
    link.drop = lambda sender, receiver, frame: not isinstance(frame, MessagesFrame)
    for _ in range(60):
        link.publish(talker, "u", LARGE)
        link.run(1)
    assert hearer.view.stats()["suspicions_sent"] == 0
    assert link.events_of("hearer", NodeLeft) == []
    assert hearer.view.stats()["messages_unwanted"] == 60
    link.run(60)  # now it is silent
    assert [event.name for event in link.events_of("hearer", NodeLeft)] == ["talker"]


def test_refused_messages_need_attention_only_if_their_node_is_unknown() -> None:
    link = Link()
    hearer, talker = make_talker(link)
    link.publish(talker, "u", LARGE)
    hearer.take_attention()
    link.publish(talker, "u", LARGE, LARGE)
    assert not hearer.take_attention()
    stranger = Stranger()
    for _ in range(3):
        hearer.receive_datagram(stranger.say(), HERE, link.now)
        assert hearer.take_attention()
