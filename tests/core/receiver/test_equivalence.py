"""The short ways through the receiver count and deliver what the long one does.

One node is given datagrams, an equal one the frames that they decode to: by that way nothing is
skipped and nothing is taken for the next one without looking. Both must be alike after each.
"""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jsonbus.core.node import Node
from jsonbus.core.settings import NodeSettings
from jsonbus.core.wire import codec
from jsonbus.core.wire.decode import decode
from jsonbus.core.wire.encode_messages import encode_batch, encode_message
from jsonbus.core.wire.names import INTEGER_MAX
from jsonbus.errors import DatagramError
from tests.core.generated import unhurried
from tests.core.link import START, forge

WALL_OFFSET_S = 1_700_000_000.0
ADDRESS = ("10.0.0.1", 2416)

LARGE = "x" * 500
TOPICS = ("t", "both", "unwanted", 'un"wan\\ted', "100%d", "late")
VALUES: Any = (
    1,
    None,
    LARGE,
    {"topic": "t", "text": LARGE},
    {"a": LARGE, "jb": {"n": "x", "i": 1, "q": 2, "m": 1, "t": 1_700_000_000_000_000}},
    ["\\u0022 ü", LARGE],
    [[]] * 300,  # brackets side by side
)
ODD: Any = (None, True, False, -1, 0, 1, 1.0, 2**53, 2**53 + 1, 2**63, 1e300, "1", [], {})
ODD_IDS: Any = (None, 7, "", "x" * 65, "me", "stranger", "plain:x", "a%d", ["x"], {})
ODD_ITEMS: Any = (None, 7, "tt", [], ["t"], ["t", 1, 2], [["t"], 1], ["a//b", 1], {"t": 1, "u": 2})


class Pair:
    """Two nodes that are alike until something differs."""

    def __init__(self) -> None:
        self.now = START
        self.nodes = [make_node("me", 1, mode="delayed") for _ in range(2)]
        for node in self.nodes:
            node.subscribe("t", "one", self.now)
            node.subscribe("both", "one", self.now)
            node.subscribe("*", "two", self.now)
            node.unsubscribe("*", "two", self.now)
            node.subscribe("both", "two", self.now)

    def receive(self, data: bytes, sender: tuple[str, int] = ADDRESS) -> list[Any]:
        """Give it to both; what was delivered."""
        short, long = self.nodes
        short.receive_datagram(data, sender, self.now)
        receive_the_long_way(long, data, sender, self.now)
        return self.compare()

    def wait(self, seconds: float) -> None:
        self.now += seconds
        for node in self.nodes:
            node.handle_timer(self.now)
        self.compare()

    def toggle(self, topic: str, *, wanted: bool) -> None:
        for node in self.nodes:
            if wanted:
                node.subscribe(topic, "one", self.now)
            else:
                node.unsubscribe(topic, "one", self.now)

    def compare(self) -> list[Any]:
        short, long = map(self._look, self.nodes)
        assert short == long
        deliveries: list[Any] = short["deliveries"]
        return deliveries

    def _look(self, node: Node) -> dict[str, Any]:
        deliveries = [
            (sink, m.topic, m.value, m.sequence, m.node, m.name, m.incarnation, m.sent_at)
            for sink, messages in node.take_deliveries()
            for m in messages
        ]
        return {
            "deliveries": deliveries,
            "stats": node.view.stats(),
            "events": node.take_events(),
            "stir": node.take_attention(),
            "nodes": node.view.nodes(self.now),
            "timer": node.timer_at(),
            "output": node.outbox.take(self.now),
        }


def make_node(name: str, incarnation: int, **fields: Any) -> Node:
    node = Node(NodeSettings(name, incarnation, name, **fields), random.Random(1), WALL_OFFSET_S)
    node.open(START)
    return node


def receive_the_long_way(node: Node, data: bytes, sender: tuple[str, int], now: float) -> None:
    try:
        frame = decode(data)
    except DatagramError as error:
        node.counters.datagrams_received += 1
        node.counters.bytes_received += len(data)
        node._roster.reject(error.cause, sender, error.detail)
    else:
        node.receive_frame(frame, sender, now, len(data))


class Senders:
    """Two nodes that send everything: `a%d` is basic, and `y` knows of it."""

    def __init__(self, addresses: int) -> None:
        self.nodes = {"a%d": make_node("a%d", 1, mode="basic"), "y": make_node("y", 1)}
        self.addresses = {"a%d": ADDRESS, "y": ("10.0.0.1", 2416 + addresses - 1)}
        self._introduce()

    def _introduce(self) -> None:
        teller = make_node("teller", 1, mode="basic")
        for data in teller.outbox.take(START):
            self.nodes["y"].receive_datagram(data, ADDRESS, START)

    def restart(self, name: str) -> None:
        old = self.nodes[name].settings
        self.nodes[name] = make_node(name, old.incarnation + 1, mode=old.mode)
        self._introduce()


def mutated(data: bytes, kind: str, odd: int) -> bytes:
    """The datagram as somebody might forge it."""
    body = codec.loads(data)
    if kind == "n":
        body["jb"]["n"] = ODD_IDS[odd % len(ODD_IDS)]
    elif kind in body["jb"]:
        body["jb"][kind] = ODD[odd % len(ODD)]
    elif kind == "float":
        key = "iqmt"[odd % 4]
        body["jb"][key] = float(body["jb"][key])
    elif kind == "absent":
        del body["jb"]["niqmt"[odd % 5]]
    elif kind == "jb":
        body["jb"] = ODD[odd % len(ODD)]
    elif kind == "topic":
        body["topic"] = (*ODD, "a//b", "jsonbus.x", "jsonbus.batch")[odd % (len(ODD) + 3)]
    elif kind == "item" and type(body["payload"]) is list:
        body["payload"].insert(odd % 3, ODD_ITEMS[odd % len(ODD_ITEMS)])
    return codec.dumps(body)


class Wire:
    """Brings what the senders say to the pair, but for what goes wrong."""

    def __init__(self, addresses: int) -> None:
        self.pair, self.senders = Pair(), Senders(addresses)
        self.brought: list[tuple[bytes, tuple[str, int]]] = []
        self.held_back: list[tuple[bytes, tuple[str, int]]] = []
        self.fault: tuple[Any, ...] = ()  # of the next datagram

    def move(self) -> None:
        for name, node in self.senders.nodes.items():
            for data in node.outbox.take(self.pair.now):
                self.bring(data, self.senders.addresses[name])

    def bring(self, data: bytes, sender: tuple[str, int]) -> None:
        fault, self.fault = self.fault, ()
        match fault:
            case ("lose",):
                return
            case ("hold back",):
                self.held_back.append((data, sender))
                return
            case ("forge", kind, odd):
                self.pair.receive(mutated(data, kind, odd), sender)
            case ("repeat", back) if self.brought:
                self.pair.receive(*self.brought[-1 - back % len(self.brought)])
        self.pair.receive(data, sender)
        self.brought.append((data, sender))

    def play(self, step: str, *arguments: Any) -> None:
        now, nodes = self.pair.now, self.senders.nodes
        match step, arguments:
            case "flood", (name, topic, value, count):
                for _ in range(count):
                    nodes[name].publish(topic, value, now)
                    self.move()
            case "batch", (name, messages):
                for topic, value in messages:
                    nodes[name].publish(topic, value, now)
            case "ping", (name,):
                nodes[name].ping(now)
            case "announce", (name,):
                nodes[name].handle_timer(now + 2)
            case "restart", (name,):
                self.senders.restart(name)
            case "let go", ():
                self.brought += self.held_back
                for data, sender in self.held_back:
                    self.pair.receive(data, sender)
                self.held_back.clear()
            case "plain", (topic, value):
                self.pair.receive(codec.dumps({"topic": topic, "payload": value}))
            case "toggle", (wanted,):
                self.pair.toggle("late", wanted=wanted)
            case "wait", (seconds,):
                self.pair.wait(seconds)
            case _:
                self.fault = (step, *arguments)
        self.move()


names = st.sampled_from(["a%d", "y"])
topics = st.sampled_from(TOPICS)
values = st.sampled_from(VALUES)
kinds = st.sampled_from(["n", "i", "q", "m", "t", "float", "absent", "jb", "topic", "item"])
floods = st.tuples(st.just("flood"), names, topics, values, st.integers(1, 6))
faults = (
    st.just(("lose",))
    | st.just(("hold back",))
    | st.tuples(st.just("forge"), kinds, st.integers(0, 99))
    | st.tuples(st.just("repeat"), st.integers(0, 9))
)
events = (
    st.tuples(st.just("batch"), names, st.lists(st.tuples(topics, values), max_size=5))
    | st.just(("let go",))
    | st.tuples(st.sampled_from(["ping", "announce", "restart"]), names)
    | st.tuples(st.just("plain"), topics, values)
    | st.tuples(st.just("toggle"), st.booleans())
    | st.tuples(st.just("wait"), st.sampled_from([0.001, 0.3, 3.0]))
)


@pytest.mark.slow
@settings(unhurried, max_examples=100)
@given(
    st.lists(st.tuples(floods, faults, floods, events), min_size=3, max_size=12), st.integers(1, 2)
)
def test_whatever_comes_is_counted_and_delivered_alike(
    script: list[tuple[Any, ...]], addresses: int
) -> None:
    wire = Wire(addresses)
    for steps in script:
        for step in steps:
            wire.play(*step)
    wire.play("let go")


# --- The very next datagram, but for one thing ----------------------------------------------------


def forged(counter: int, first: int, incarnation: int = 1, **fields: Any) -> bytes:
    """A message of a stranger; the fields replace those of the header."""
    data = forge(
        encode_message,
        b'"t"',
        b"1",
        counter=counter,
        first_message=first,
        incarnation=incarnation,
    )
    body = codec.loads(data)
    body["jb"] |= fields
    return codec.dumps(body)


def test_very_next_datagram_is_delivered() -> None:
    pair = Pair()
    for number in (0, 1, 2):
        assert len(pair.receive(forged(number, number))) == 1
    assert pair.nodes[0].view.stats()["datagrams_rejected"] == 0


@pytest.mark.parametrize(
    "fields",
    [
        *({key: odd} for key in "qm" for odd in (True, 1.0, "1", None, [1], -1, 2**63)),
        *({"i": odd} for odd in (True, 1.0, "1", None, [1])),
        *({"t": odd} for odd in (True, 1.0, "1", None, [1], -1, INTEGER_MAX + 1)),
        *({"n": odd} for odd in (None, 7, True, ["stranger"], {})),
        {"q": True, "m": True, "i": True, "t": False},
    ],
)
def test_header_that_only_equals_the_next_one_is_refused(fields: dict[str, Any]) -> None:
    pair = Pair()
    pair.receive(forged(0, 0))
    assert pair.receive(forged(1, 1, **fields)) == []
    assert pair.nodes[0].view.stats()["rejected_bad_header"] == 1
    assert len(pair.receive(forged(1, 1))) == 1


@pytest.mark.parametrize("key", ["q", "m"])
def test_no_number_goes_on_beyond_the_largest_of_the_format(key: str) -> None:
    pair = Pair()
    last = {"q": 1, "m": 1} | {key: INTEGER_MAX}
    pair.receive(forged(0, 0, **last))
    following = {name: number + 1 for name, number in last.items()}
    assert pair.receive(forged(0, 0, **following)) == []
    assert pair.nodes[0].view.stats()["rejected_bad_header"] == 1


def test_empty_batch_is_the_next_datagram_and_moves_no_number() -> None:
    pair = Pair()
    pair.receive(forged(1, 1))
    pair.receive(forge(encode_batch, b"", counter=2, first_message=2))
    assert len(pair.receive(forged(3, 2))) == 1
    assert pair.nodes[0].view.stats()["messages_lost"] == 0


@pytest.mark.parametrize("incarnation", [0, 1, 2])
def test_next_numbers_under_another_incarnation_are_no_next_datagram(incarnation: int) -> None:
    pair = Pair()
    pair.receive(forged(1, 1))
    pair.receive(forged(2, 2, incarnation))
    pair.receive(forged(3, 3))
    assert pair.nodes[0].view.stats()["datagrams_outdated"] == (incarnation < 1)
    assert pair.nodes[0].view.stats()["messages_lost"] == (incarnation != 1)


def test_next_datagram_shows_that_what_was_heard_under_its_id_is_no_restart() -> None:
    pair = Pair()
    for number in range(1, 6):
        assert len(pair.receive(forged(number, number))) == 1
        assert len(pair.receive(forged(number, number, 2))) == 1
    assert pair.nodes[0].view.stats()["datagrams_outdated"] == 0


@pytest.mark.parametrize("payload", [None, 7, "tt", {"t": 1}, {}])
def test_next_batch_that_is_no_array_is_refused(payload: object) -> None:
    pair = Pair()
    pair.receive(forged(1, 1))
    body = codec.loads(forge(encode_batch, b"", counter=2, first_message=2))
    assert pair.receive(codec.dumps(body | {"payload": payload})) == []
    assert pair.nodes[0].view.stats()["rejected_bad_fields"] == 1


@pytest.mark.parametrize("levels", [253, 254, 255])
def test_value_nested_too_deeply_is_refused_in_the_next_datagram_too(levels: int) -> None:
    pair = Pair()
    pair.receive(forged(1, 1))
    value = b"[" * levels + b"]" * levels
    delivered = pair.receive(forge(encode_message, b'"t"', value, counter=2, first_message=2))
    assert len(delivered) == (levels <= 254)
