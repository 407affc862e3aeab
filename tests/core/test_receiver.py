"""What comes in, sorted; bad input counted, never raised."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from jsonbus.core import codec
from jsonbus.core.events import DatagramRejected, MessagesLost
from jsonbus.core.frames import Digest, Entry
from jsonbus.core.limits import REJECTS_REPORTED_MAX
from jsonbus.core.node import Node
from jsonbus.core.wire_encode import (
    encode_batch,
    encode_list,
    encode_message,
    encode_ping,
    encode_presence,
    encode_request,
)
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
    return forge(encode_batch, pairs, counter=counter, first_message=first_message)


# --- Messages -------------------------------------------------------------------------------------


def test_messages_have_topic_value_sequence_and_origin() -> None:
    link = Link()
    a, b = link.add("a", opened=False), link.add("b")
    a.wall_offset_s = 50_000.0
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
    assert a.stats()["messages_delivered"] == 2


def test_subscription_made_later_gets_only_later_messages() -> None:
    link = Link()
    a = link.add("a")
    link.inject(message(1))
    link.subscribe(a, "t")
    link.inject(message(2))
    a.unsubscribe("t", "sink", link.now)
    link.inject(message(3))
    assert link.values("a") == [2]
    assert a.stats()["messages_unwanted"] == 2


def test_own_datagrams_that_come_back_are_ignored() -> None:
    link = Link()
    a = make_receiver(link, "t")
    before = a.stats()["messages_received"]
    a.publish("t", 1, link.now)
    link.publish(a, "t", 2)
    assert link.values("a") == [1, 2]
    assert a.stats()["messages_received"] == before


def test_repeated_datagrams_are_dropped_and_counted() -> None:
    link = Link()
    a = make_receiver(link, "t")
    for number in (1, 2, 1, 2, 2):
        link.inject(message(number))
    assert link.values("a") == [1, 2]
    assert a.stats()["datagrams_repeated"] == 3


def test_datagrams_of_a_former_incarnation_are_dropped_and_counted() -> None:
    link = Link()
    a = make_receiver(link, "t")
    for counter in (1, 2):
        link.inject(forge(encode_ping, incarnation=9, counter=counter, ping_id=1))
    link.inject(message(1))
    assert link.values("a") == []
    assert a.stats()["datagrams_outdated"] == 1


# --- Losses ---------------------------------------------------------------------------------------


def test_lost_messages_are_counted_and_reported_with_who_lost_how_many() -> None:
    link = Link()
    a = make_receiver(link, "t")
    for number in (1, 2, 6):
        link.inject(message(number))
    assert link.events_of("a", MessagesLost) == [MessagesLost("stranger", "stranger", 3)]
    assert a.stats()["messages_lost"] == 3


def test_late_message_is_delivered_and_taken_off_the_count() -> None:
    link = Link()
    a = make_receiver(link, "t")
    for number in (1, 3, 2):
        link.inject(message(number))
    assert link.values("a") == [1, 3, 2]
    assert a.stats()["messages_lost"] == 0


def test_loss_at_the_end_of_a_burst_is_noticed_by_the_next_control_datagram() -> None:
    link = Link()
    a, b = link.add("a"), link.add("b")
    link.subscribe(a, "t")
    link.run(5)
    link.publish(b, "t", 1)
    link.cut_off(a)
    link.publish(b, "t", 2, 3)
    link.heal()
    assert a.stats()["messages_lost"] == 0
    link.run(2.1)
    assert a.stats()["messages_lost"] == 2
    (info,) = [each for each in a.nodes(link.now) if each.name == "b"]
    assert (info.received, info.lost) == (1, 2)


def test_unwanted_messages_count_as_received_not_as_lost() -> None:
    link = Link()
    a = make_receiver(link, "t")
    link.inject(batch(["t", 1], ["u", 2], ["t", 3]))
    link.inject(batch(["t", 4], counter=2, first_message=4))
    stats = a.stats()
    assert (stats["messages_lost"], stats["messages_unwanted"]) == (0, 1)
    assert link.values("a") == [1, 3, 4]


# --- Large messages refused by their first bytes --------------------------------------------------


def test_large_unwanted_message_is_counted_without_being_parsed() -> None:
    link = Link()
    a = make_receiver(link, "t")
    received = a.stats()["datagrams_received"]
    broken = message(1, "x" * 2_000, topic="u").replace(b"xxx", b'"",', 1)  # not even JSON
    link.inject(broken)
    link.inject(message(2, "x" * 2_000, topic="u"))
    stats = a.stats()
    assert stats["datagrams_received"] == received + 2
    assert (stats["messages_received"], stats["messages_unwanted"]) == (2, 2)
    assert stats["datagrams_rejected"] == 0
    assert stats["bytes_received"] > 4_000


def test_large_unwanted_messages_leave_no_gap_and_are_not_counted_twice() -> None:
    link = Link()
    a = make_receiver(link, "t")
    link.inject(message(1))
    link.inject(message(2, "x" * 2_000, topic="u"))
    link.inject(message(2, "x" * 2_000, topic="u"))
    link.inject(message(3))
    stats = a.stats()
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
    stats = a.stats()
    assert (stats["datagrams_plain"], stats["messages_unwanted"]) == (1, 1)


# --- Bad input ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "cause"),
    [
        (b"\xff\x00", "not_json"),
        (b"", "not_json"),
        (b"[1]", "not_object"),
        (b'{"payload":1}', "no_topic"),
        (b'{"topic":"t"}', "no_payload"),
        (b'{"topic":7,"payload":1}', "bad_topic"),
        (b'{"topic":"a//b","payload":1}', "bad_topic"),
        (b'{"topic":"t","payload":1,"jb":7}', "bad_header"),
        (b'{"topic":"jsonbus.batch","payload":[]}', "bad_header"),
        (b'{"topic":"jsonbus.what","payload":1}', "unknown_reserved"),
        (b'{"topic":"jsonbus.topics","payload":[1]}', "bad_list"),
        (b'{"topic":"t","payload":' + b"[" * 300 + b"]" * 300 + b"}", "too_deep"),
        (b'{"topic":"t","payload":"' + b"x" * 66_000 + b'"}', "too_large"),
    ],
)
def test_bad_datagram_is_counted_by_cause_and_reported_once(data: bytes, cause: str) -> None:
    link = Link()
    a = make_receiver(link, "t")
    for _ in range(3):
        link.inject(data)
    stats = a.stats()
    assert (stats["datagrams_rejected"], stats[f"rejected_{cause}"]) == (3, 3)
    (event,) = link.events_of("a", DatagramRejected)
    assert (event.cause, event.sender) == (cause, "10.9.9.9:40000")
    assert link.values("a") == []
    link.inject(message(1))
    assert link.values("a") == [1]


def test_rejects_are_reported_per_cause_and_sender() -> None:
    link = Link()
    make_receiver(link, "t")
    for address in ("10.9.9.1", "10.9.9.2"):
        for data in (b"[1]", b"nonsense", b"[2]"):
            link.inject(data, address)
    causes = [(event.cause, event.sender) for event in link.events_of("a", DatagramRejected)]
    assert sorted(causes) == [
        ("not_json", "10.9.9.1:40000"),
        ("not_json", "10.9.9.2:40000"),
        ("not_object", "10.9.9.1:40000"),
        ("not_object", "10.9.9.2:40000"),
    ]


def test_reports_are_bounded_and_counting_goes_on() -> None:
    link = Link()
    a = link.add("a")
    for number in range(REJECTS_REPORTED_MAX + 100):
        a.receive_datagram(b"[1]", (f"10.{number // 250}.9.{number % 250}", 1), link.now)
    assert a.stats()["rejected_not_object"] == REJECTS_REPORTED_MAX + 100
    link.move()
    assert len(link.events_of("a", DatagramRejected)) == REJECTS_REPORTED_MAX


@pytest.mark.parametrize(
    "item", [7, None, "t", [], ["t"], [["t"], 1], [None, 1], ["a//b", 1], [{}, 1], "tt", {"t": 1}]
)
def test_malformed_item_of_a_batch_is_counted_and_the_rest_delivered(item: object) -> None:
    link = Link()
    a = make_receiver(link, "t")
    link.inject(batch(["t", 1], item, ["t", 3]))
    assert link.values("a") == [1, 3]
    assert [each.sequence for each in link.received["a"]] == [1, 3]
    assert a.stats()["messages_malformed"] == 1
    assert len(link.events_of("a", DatagramRejected)) == 1


@pytest.mark.parametrize("item", ["tu", {"t": 1, "u": 2}])
def test_batch_item_that_is_no_array_is_malformed(item: object) -> None:
    # Both can be unpacked into two, and "t" is a topic that is known.
    link = Link()
    a = make_receiver(link, "t")
    link.inject(batch(["t", 1]))
    link.inject(batch(item, counter=2, first_message=2))
    assert link.values("a") == [1]
    assert a.stats()["messages_malformed"] == 1


def test_item_with_more_than_topic_and_value_is_a_message() -> None:
    # Later versions put a third item there.
    link = Link()
    make_receiver(link, "t")
    link.inject(batch(["t", 1, 99], ["t", 2]))
    assert link.values("a") == [1, 2]


def _wild_datagrams(dice: random.Random) -> list[bytes]:
    """Well-formed datagrams that say strange things."""

    def number() -> int:
        return dice.choice([0, 1, 2, 70_000, 2**40, 2**53, dice.randrange(2**53)])

    def node() -> str:
        return dice.choice(["x", "y", "z"])

    def entry() -> tuple[Entry, float]:
        flags = dice.choice([{}, {}, {"left": True}, {"gone": True}])
        name = dice.choice([node(), "plain:10.0.0.1", "plain:x"])
        patterns = tuple({dice.choice(["u", "*/x", "jsonbus.request/s"]) for _ in range(2)})
        mode = dice.choice(["delayed", "basic", "master"])
        made = Entry(name, number(), number(), "n", patterns, mode, **flags)
        return made, dice.choice([0.0, 5.0, 1e6])

    makers: list[Callable[[], bytes]] = [
        lambda: forge(
            encode_list,
            node=node(),
            incarnation=number(),
            counter=number() or 1,
            first_message=number(),
            entries=list({pair[0].node: pair for pair in (entry(), entry(), entry())}.values()),
            digest=dice.choice([None, Digest(number(), number())]),
            sums=dice.choice([None, number()]),
            covers=dice.choice([None, 0, 1, 2**256 - 1]),
            part=dice.choice([(0, 1), (0, 2), (1, 2)]),
            settled=dice.random() < 0.5,
        ),
        lambda: forge(
            encode_presence,
            node=node(),
            incarnation=number(),
            counter=number() or 1,
            first_message=number(),
            version=number(),
            name="n",
            mode=dice.choice(["delayed", "basic", "master"]),
            is_master=dice.random() < 0.5,
            settled=dice.random() < 0.5,
            digest=dice.choice([None, Digest(number(), number())]),
            sums=dice.choice([None, number()]),
            suspects=[(node(), number()), ("plain:10.0.0.1", 0)],
        ),
        lambda: forge(
            encode_request,
            node=node(),
            incarnation=number(),
            counter=number() or 1,
            topic="s",
            payload=b"1",
            request_id=number(),
            timeout_ms=number(),
        ),
        lambda: message(number() or 1, counter=number() or 1),
        lambda: codec.dumps({"topic": "jsonbus.topics", "payload": ["u", "*/x"]}),
    ]
    return [dice.choice(makers)() for _ in range(150)]


@pytest.mark.parametrize("mode", ["basic", "master", "delayed"])
@pytest.mark.parametrize("seed", range(4))
def test_well_formed_nonsense_breaks_nothing_and_is_outlived(seed: int, mode: str) -> None:
    link = Link(seed)
    a = link.add("a", mode=mode, is_master=mode == "master")
    b = link.add("b", mode=mode)
    link.subscribe(a, "t")
    a.serve("s", "sink", link.now)
    link.run(3)
    link.forget_sent()
    for datagram in _wild_datagrams(random.Random(seed)):
        link.inject(datagram)
        link.run(0.05)
    assert len(link.sent) < 3_000
    link.run(60)
    link.received["a"].clear()
    link.publish(b, "t", "after all that")
    assert link.values("a") == ["after all that"]
