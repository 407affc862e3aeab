"""Reliable messages come to the same, however many of them share a datagram.

Many at once are delivered by a loop that only looks at their sequences; alone in its datagram, each
is looked at by itself. Positions, order, gaps and counts must not differ.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jsonbus.core.node import Node
from jsonbus.core.wire import codec
from jsonbus.core.wire.encode_messages import encode_batch
from tests.core.generated import unhurried
from tests.core.link import START, forge
from tests.core.receiver.test_equivalence import make_node

ADDRESS = ("10.0.0.1", 2416)
TOPICS = ("both", "one", "passive", "unwanted")
ODD: Any = (True, 1.0, 2.0, "1", None, [], 0, -1, 2**60)


class Reader:
    """A node that hears a stranger."""

    def __init__(self) -> None:
        self.node: Node = make_node("me", 1)
        self.node.subscribe(("both", "one"), "sink", START)
        self.node.subscribe("both", "other", START)
        self.node.subscribe("passive", "onlooker", START, is_passive=True)
        self.datagrams = 0
        self.messages = 0
        self.got: list[tuple[Any, ...]] = []

    def hear(self, *items: list[Any]) -> None:
        self.datagrams += 1
        text = b",".join(map(codec.dumps, items))
        numbers = {"counter": self.datagrams, "first_message": self.messages + 1}
        self.messages += len(items)
        self.node.receive_datagram(forge(encode_batch, text, **numbers), ADDRESS, START)
        self.got += [
            (sink, each.topic, each.value, each.sequence, each.position)
            for sink, messages in self.node.take_deliveries()
            for each in messages
        ]

    def figures(self) -> dict[str, int]:
        stats = self.node.view.stats()
        return {
            name: count
            for name, count in stats.items()
            if name.startswith("messages_") or name == "naks_sent"
        }

    def of(self, sink: str) -> list[tuple[Any, ...]]:
        return [each[1:] for each in self.got if each[0] == sink]


def assert_alike(items: list[list[Any]], sizes: list[int]) -> Reader:
    """The items come in datagrams of these sizes, and one by one."""
    together, apart = Reader(), Reader()
    rest = list(items)
    for size in sizes:
        now, rest = rest[:size], rest[size:]
        if now:
            together.hear(*now)
    for item in items[: len(items) - len(rest)]:
        apart.hear(item)
    for sink in ("sink", "other", "onlooker"):
        assert together.of(sink) == apart.of(sink)
    assert together.figures() == apart.figures()
    for reader in (together, apart):
        reader.node.handle_timer(START + 0.2)  # what is missing is asked for
    assert together.figures() == apart.figures()
    return together


@settings(unhurried, max_examples=200)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(TOPICS),
            st.sampled_from(["next", "next", "next", "next", "skip", "repeat", "plain", "retained"])
            | st.sampled_from(ODD).map(lambda odd: ("odd", odd)),
        ),
        max_size=60,
    ),
    st.lists(st.integers(1, 20), max_size=12),
)
def test_however_messages_share_datagrams_they_come_to_the_same(
    steps: list[tuple[str, Any]], sizes: list[int]
) -> None:
    items: list[list[Any]] = []
    last = dict.fromkeys(TOPICS, 0)
    for number, (topic, step) in enumerate(steps):
        if step == "plain":
            items.append([topic, number])
        elif isinstance(step, tuple):
            items.append([topic, number, step[1]])
        else:
            last[topic] += {"skip": 2, "repeat": 0}.get(step, 1)
            mark = [1] if step == "retained" else []
            items.append([topic, number, max(1, last[topic]), *mark])
    assert_alike(items, [*sizes, len(items)])


def test_many_in_order_are_delivered_with_number_and_position() -> None:
    reader = assert_alike([["both", n, n + 1] for n in range(50)], [1, 20, 29])
    expected = [("both", n, n + 1, n + 1) for n in range(50)]
    assert reader.of("sink") == reader.of("other") == expected


def test_gap_in_the_middle_of_a_datagram_holds_back_what_follows() -> None:
    reader = assert_alike([["one", n, n] for n in (1, 2, 3, 5, 6)], [1, 4])
    assert [each[1] for each in reader.of("sink")] == [1, 2, 3]
    reader.hear(["one", 4, 4], ["one", 7, 7])
    assert [each[1] for each in reader.of("sink")] == [1, 2, 3, 4, 5, 6, 7]


@pytest.mark.parametrize("odd", ODD)
def test_sequence_that_only_equals_the_next_one_is_not_the_next(odd: Any) -> None:
    assert_alike([["one", "a", 1], ["one", "b", odd], ["one", "c", 2]], [1, 2])


@pytest.mark.parametrize("item", [None, 7, "one", [], ["one"], {"one": 1, "b": 2, "c": 3}, [[], 1]])
def test_what_is_no_message_ends_its_datagram(item: Any) -> None:
    reader = Reader()
    reader.hear(["one", 1, 1])
    reader.hear(["one", 2, 2], item, ["one", 3, 3])
    assert [each[1] for each in reader.of("sink")] == [1, 2]
    assert reader.figures()["messages_malformed"] == 2
