"""Bad input: counted by cause, reported once, never raised."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from jsonbus.core.events import DatagramRejected
from jsonbus.core.limits import REJECTS_REPORTED_MAX
from jsonbus.core.node import Node
from jsonbus.core.wire import codec
from jsonbus.core.wire.encode import encode_list, encode_presence, encode_request
from jsonbus.core.wire.encode_messages import encode_batch, encode_message
from jsonbus.core.wire.frames import Digest, Entry
from tests.core.link import Link, forge


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


# --- Refused ------------------------------------------------------------------------------------


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
    stats = a.view.stats()
    assert (stats["datagrams_rejected"], stats[f"rejected_{cause}"]) == (3, 3)
    (event,) = link.events_of("a", DatagramRejected)
    assert (event.cause, event.sender) == (cause, "10.9.9.9:40000")
    assert link.values("a") == []
    link.inject(message(1))
    assert link.values("a") == [1]


def test_plain_message_under_an_invalid_name_is_counted_as_malformed() -> None:
    link = Link()
    a = make_receiver(link, "t")
    link.inject(b'{"topic":"a//b","payload":1}')
    assert a.view.stats()["messages_malformed"] == 1


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
    assert a.view.stats()["rejected_not_object"] == REJECTS_REPORTED_MAX + 100
    link.move()
    assert len(link.events_of("a", DatagramRejected)) == REJECTS_REPORTED_MAX


@pytest.mark.parametrize(
    "item", [7, None, "t", [], ["t"], [["t"], 1], [None, 1], ["a//b", 1], [{}, 1], "tt", {"t": 1}]
)
def test_malformed_item_of_a_batch_ends_it_and_the_rest_is_counted(item: object) -> None:
    link = Link()
    a = make_receiver(link, "t")
    link.inject(batch(["t", 1], item, ["t", 3]))
    assert link.values("a") == [1]
    assert a.view.stats()["messages_malformed"] == 2
    assert a.view.stats()["datagrams_rejected"] == 1  # once, however many items
    assert len(link.events_of("a", DatagramRejected)) == 1
    link.inject(batch(["t", 4], counter=2, first_message=4))
    assert link.values("a") == [1, 4]
    assert a.view.stats()["messages_lost"] == 0


@pytest.mark.parametrize("item", ["tu", {"t": 1, "u": 2}])
def test_batch_item_that_is_no_array_is_malformed(item: object) -> None:
    # Both can be unpacked into two, and "t" is a topic that is known.
    link = Link()
    a = make_receiver(link, "t")
    link.inject(batch(["t", 1]))
    link.inject(batch(item, counter=2, first_message=2))
    assert link.values("a") == [1]
    assert a.view.stats()["messages_malformed"] == 1


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
    a.requests.serve("s", "sink", link.now)
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
