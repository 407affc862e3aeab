"""Each checker watches a world that is broken on purpose, and must say so."""

from __future__ import annotations

from typing import Any

import pytest

from jsonbus.core.events import ReplyReceived
from jsonbus.core.limits import HOLD_MESSAGES_MAX
from jsonbus.core.message import Message, Origin, make_message
from jsonbus.core.outbox import Outbox
from jsonbus.sim import BrokenInvariantError, Checker, World
from jsonbus.sim.checkers import (
    DatagramsAreSound,
    DeliveriesAreTrue,
    HoldIsBounded,
    NothingIsForgotten,
    PublishersKeepOrder,
    RepliesAreTrue,
)
from jsonbus.sim.participants import SimNode


def make_pair(checker: Checker) -> tuple[World, SimNode, SimNode]:
    """A reader of everything below "a", and a writer."""
    world = World(1, checkers=(checker,))
    reader = world.add_node("reader", patterns=["a/**"])
    writer = world.add_node("writer")
    world.run_for(2.0)
    return world, reader, writer


def break_output(node: SimNode, change: Any) -> None:
    """From now on the node sends what `change` makes of its datagrams."""

    class DishonestOutbox(Outbox):
        __slots__ = ()

        def take(self, now: float, *, keeps_rest: bool = False) -> list[bytes]:
            datagrams: list[bytes] = change(super().take(now, keeps_rest=keeps_rest))
            return datagrams

    node.core.outbox.__class__ = DishonestOutbox


def break_deliveries(node: SimNode, change: Any) -> None:
    """From now on the node's application gets what `change` makes of its messages."""
    honest = node.core.take_deliveries

    def take_deliveries() -> list[Any]:
        return [(sink, change(messages)) for sink, messages in honest()]

    node.core.take_deliveries = take_deliveries  # type: ignore[method-assign]


def publish_batch(world: World, writer: SimNode, count: int) -> None:
    """Messages to a/0, a/1, …, that leave in one datagram, and time for them to arrive."""
    world.publish_batch(writer, [f"a/{number}" for number in range(count)])
    world.run_for(0.1)


def test_an_error_names_the_invariant_the_seed_and_the_instant() -> None:
    error = BrokenInvariantError("all is well", 17, 1.5, "n3 is not")
    assert str(error) == "all is well: n3 is not (at 1.500000 s, seed 17)"


def test_honest_nodes_break_nothing() -> None:
    checkers: list[Checker] = [
        DatagramsAreSound(),
        DeliveriesAreTrue(),
        PublishersKeepOrder(),
        HoldIsBounded(),
        NothingIsForgotten(),
        RepliesAreTrue(),
    ]
    world = World(1, checkers=checkers)
    reader = world.add_node("reader", patterns=["a/**"])
    writer = world.add_node("writer")
    for number in range(HOLD_MESSAGES_MAX + 100):
        world.publish(writer, f"a/{number % 3}")
    world.serve(reader, "a/echo")
    world.run_for(2.0)
    publish_batch(world, writer, 5)
    world.request(writer, "a/echo")
    world.run_for(1.0)


def test_a_datagram_whose_topic_does_not_come_first_is_noticed() -> None:
    world, _, writer = make_pair(DatagramsAreSound())
    break_output(writer, lambda datagrams: [b'{"payload":1,"topic":"a/x"}' for _ in datagrams])
    with pytest.raises(BrokenInvariantError, match="topic first"):
        world.publish(writer, "a/x")


def test_a_datagram_that_is_too_large_is_noticed() -> None:
    world, _, writer = make_pair(DatagramsAreSound())
    huge = b'{"topic":"a/x","payload":"%s"}' % (b"x" * 1400)
    break_output(writer, lambda datagrams: [huge for _ in datagrams])
    with pytest.raises(BrokenInvariantError, match="bytes, allowed are 1400"):
        world.publish(writer, "a/x")


def test_a_list_from_a_basic_node_is_noticed() -> None:
    world, _, writer = make_pair(DatagramsAreSound())
    writer.settings["mode"] = "basic"  # while its core goes on in mode delayed
    with pytest.raises(BrokenInvariantError, match="is basic and sent a list"):
        world.subscribe(writer, "b")
        world.run_for(1.0)


def test_a_message_that_nobody_published_is_noticed() -> None:
    world, reader, writer = make_pair(DeliveriesAreTrue())
    invented = make_message("a/x", {"number": 99}, 1, Origin("x", "x", 1, 0.0, 0.0))
    break_deliveries(reader, lambda messages: [*messages, invented])
    with pytest.raises(BrokenInvariantError, match="which nobody published"):
        publish_batch(world, writer, 1)


def test_a_message_that_changed_its_topic_is_noticed() -> None:
    world, reader, writer = make_pair(DeliveriesAreTrue())
    changed = make_message("a/y", {"number": 0}, 1, Origin("x", "x", 1, 0.0, 0.0))
    break_deliveries(reader, lambda messages: [changed])
    with pytest.raises(BrokenInvariantError, match="as a/y, not a/0"):
        publish_batch(world, writer, 1)


def test_a_message_for_somebody_who_does_not_want_it_is_noticed() -> None:
    world, reader, writer = make_pair(DeliveriesAreTrue())
    reader.sinks["a/**"].patterns[:] = ["b"]
    with pytest.raises(BrokenInvariantError, match="wanted are"):
        publish_batch(world, writer, 1)


def test_a_message_that_is_delivered_twice_is_noticed() -> None:
    world, reader, writer = make_pair(DeliveriesAreTrue())
    break_deliveries(reader, lambda messages: [*messages, *messages])
    with pytest.raises(BrokenInvariantError, match="twice"):
        publish_batch(world, writer, 1)


def test_messages_of_one_datagram_in_another_order_are_noticed() -> None:
    world, reader, writer = make_pair(DeliveriesAreTrue())
    break_deliveries(reader, lambda messages: messages[::-1])
    with pytest.raises(BrokenInvariantError, match="out of its order"):
        publish_batch(world, writer, 2)


def test_a_message_from_another_datagram_is_noticed() -> None:
    world, reader, writer = make_pair(DeliveriesAreTrue())
    kept: list[Message] = []

    def keep_the_first(messages: list[Message]) -> list[Message]:
        if not kept:
            kept.extend(messages)
            return []
        return [*kept, *messages]

    break_deliveries(reader, keep_the_first)
    publish_batch(world, writer, 1)
    with pytest.raises(BrokenInvariantError, match="out of its order"):
        publish_batch(world, writer, 1)


def test_a_publisher_that_lets_messages_of_a_topic_overtake_is_noticed() -> None:
    world, _, writer = make_pair(PublishersKeepOrder())
    kept: list[bytes] = []

    def keep_the_first(datagrams: list[bytes]) -> list[bytes]:
        if not kept:
            kept.extend(datagrams)
            return []
        return [*datagrams, *kept]

    break_output(writer, keep_the_first)
    world.publish(writer, "a/x")
    with pytest.raises(BrokenInvariantError, match="number 0 after 1"):
        world.publish(writer, "a/x")


def test_a_publisher_that_sends_a_message_again_is_noticed() -> None:
    world, _, writer = make_pair(PublishersKeepOrder())
    break_output(writer, lambda datagrams: datagrams * 2)
    with pytest.raises(BrokenInvariantError, match="number 0 after 0"):
        world.publish(writer, "a/x")


def test_a_message_of_somebody_else_is_noticed() -> None:
    world, reader, writer = make_pair(PublishersKeepOrder())
    break_output(reader, lambda datagrams: [b'{"topic":"a/x","payload":{"number":0}}'])
    world.publish(writer, "a/x")
    with pytest.raises(BrokenInvariantError, match="which is not its own"):
        world.run_for(5.0)


def test_a_joiner_that_holds_without_bound_is_noticed() -> None:
    world = World(1, checkers=(HoldIsBounded(),))
    writer = world.add_node("writer")
    writer.core.publish = lambda topic, value, now: True  # type: ignore[method-assign]
    for _ in range(HOLD_MESSAGES_MAX):
        world.publish(writer, "a")
    with pytest.raises(BrokenInvariantError, match="holds 1001 messages"):
        world.publish(writer, "a")


def test_output_that_a_node_does_not_speak_of_is_noticed() -> None:
    world, reader, writer = make_pair(NothingIsForgotten())
    writer.core.take_attention = lambda: False  # type: ignore[method-assign]
    world.serve(writer, "echo")
    world.run_for(1.0)
    with pytest.raises(BrokenInvariantError, match="writer has something to send"):
        world.request(reader, "echo")
        world.run_for(1.0)


def test_a_timer_that_a_node_does_not_speak_of_is_noticed() -> None:
    world, _, writer = make_pair(NothingIsForgotten())
    writer.core.take_attention = lambda: False  # type: ignore[method-assign]
    world.add_node("joiner")
    with pytest.raises(BrokenInvariantError, match="writer wants to be called"):
        world.run_for(1.0)


@pytest.mark.parametrize("request_id", [1, 99])
def test_a_reply_that_answers_nothing_is_noticed(request_id: int) -> None:
    world, _, writer = make_pair(RepliesAreTrue())
    world.request(writer, "a/echo")
    false = ReplyReceived(request_id, "something else", "x", "x", None)
    writer.core.take_events = lambda: [false]  # type: ignore[method-assign]
    with pytest.raises(BrokenInvariantError, match="a reply belongs to a request"):
        world.run_for(5.0)
