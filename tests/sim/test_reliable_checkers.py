"""Each checker watches a world that is broken on purpose, and must say so."""

from __future__ import annotations

import pytest

from jsonbus.core import limits
from jsonbus.core.events import GapFound
from jsonbus.sim import BrokenInvariantError, NetworkOptions, World
from jsonbus.sim.participants import SimNode
from jsonbus.sim.reliable_checkers import (
    BuffersAreBounded,
    ReliableIsExact,
    RetainedIsGivenOnce,
)
from tests.sim.test_checkers import break_deliveries, make_pair


def publish_reliably(world: World, writer: SimNode, count: int) -> None:
    for _ in range(count):
        world.publish(writer, "a/x", is_reliable=True)
        world.run_for(0.02)


def test_honest_nodes_break_nothing_under_bursts_of_loss() -> None:
    exact, bounded = ReliableIsExact(), BuffersAreBounded()
    world = World(1, NetworkOptions(loss=0.1, bursts=0.05), (exact, bounded))
    world.add_node("reader", patterns=["a/**"])
    writer = world.add_node("writer")
    world.run_for(5.0)
    publish_reliably(world, writer, 200)
    world.network.options = NetworkOptions()
    publish_reliably(world, writer, 2)
    world.run_for(10.0)
    exact.finished()


def test_a_reliable_message_that_never_came_and_is_no_gap_is_noticed() -> None:
    checker = ReliableIsExact()
    world, reader, writer = make_pair(checker)
    break_deliveries(reader, lambda messages: [m for m in messages if m.value["number"] != 1])
    publish_reliably(world, writer, 3)
    with pytest.raises(BrokenInvariantError, match=r"sequence 2 \(publication 1\)"):
        checker.finished()


@pytest.mark.parametrize("is_honest", [True, False])
def test_what_is_published_while_a_subscriber_stands_still_is_judged(is_honest: bool) -> None:
    checker = ReliableIsExact()
    world, reader, writer = make_pair(checker)
    world.add_node("else")
    world.run_for(2.0)
    publish_reliably(world, writer, 1)
    world.freeze(reader)
    world.run_for(20.0)
    publish_reliably(world, writer, 3)
    assert not any(each.accepted for each in world.publications[1:])
    if not is_honest:
        break_deliveries(reader, lambda messages: [])
    world.thaw(reader)
    world.run_for(10.0)
    if is_honest:
        checker.finished()
    else:
        with pytest.raises(BrokenInvariantError, match=r"sequence 2 \(publication 1\)"):
            checker.finished()


@pytest.mark.parametrize("is_of_this_life", [True, False])
def test_a_gap_is_held_against_the_life_of_the_publisher_that_it_names(
    is_of_this_life: bool,
) -> None:
    checker = ReliableIsExact()
    world, reader, writer = make_pair(checker)
    publish_reliably(world, writer, 1)
    incarnation = writer.incarnation if is_of_this_life else writer.incarnation - 1
    gap = GapFound(writer.node_id, "writer", "a/x", 1, 1, incarnation)
    if is_of_this_life:
        with pytest.raises(BrokenInvariantError, match="writer could have repaired"):
            checker.told(reader, gap)
    else:
        checker.told(reader, gap)


@pytest.mark.parametrize("order", [[1, 0], [0, 0]])
def test_reliable_messages_out_of_order_or_twice_are_noticed(order: list[int]) -> None:
    world, reader, writer = make_pair(ReliableIsExact())
    break_deliveries(reader, lambda messages: [messages[place] for place in order])
    with pytest.raises(BrokenInvariantError, match="after"):
        world.publish_batch(writer, ["a/x", "a/x"], is_reliable=True)
        world.run_for(1.0)


def test_a_history_without_bound_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "HISTORY_MESSAGES_MAX", 4)  # the checker's, not the node's
    world, _, writer = make_pair(BuffersAreBounded())
    with pytest.raises(BrokenInvariantError, match="keeps 5 messages for repair, allowed are 4"):
        publish_reliably(world, writer, 5)


def test_a_retained_value_that_is_given_twice_or_never_is_noticed() -> None:
    checker = RetainedIsGivenOnce()
    world = World(1, checkers=(checker,))
    writer, late = world.add_node("writer"), world.add_node("late")
    world.run_for(2.0)
    kept = world.publish(writer, "a/x", is_retained=True)
    world.subscribe(late, "a/*")
    checker.expect(late.sinks["a/*"], kept)
    with pytest.raises(BrokenInvariantError, match="was never given publication 0"):
        checker.finished()
    break_deliveries(late, lambda messages: [*messages, *messages])
    with pytest.raises(BrokenInvariantError, match="was given publication 0 again"):
        world.run_for(2.0)
