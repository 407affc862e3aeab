"""Each checker watches a world that is broken on purpose, and must say so."""

from __future__ import annotations

from dataclasses import replace

import pytest

from jsonbus.core.events import RequestUnserved
from jsonbus.sim import BrokenInvariantError, Checker, NetworkOptions, World
from jsonbus.sim.list_checkers import (
    NothingIsWasted,
    NothingIsWithheld,
    VersionsNeverGoBack,
    reunion_s,
    settling_s,
)
from jsonbus.sim.participants import SimNode


def make_group(*checkers: Checker) -> tuple[World, SimNode, SimNode, SimNode]:
    """A reader of "a", a reader of "b" and a writer, all of them sure."""
    world = World(1, checkers=checkers)
    first = world.add_node("first", patterns=["a"])
    second = world.add_node("second", patterns=["b"])
    writer = world.add_node("writer")
    world.run_for(2.0)
    return world, first, second, writer


def test_honest_nodes_break_nothing() -> None:
    world, first, second, writer = make_group(
        VersionsNeverGoBack(), NothingIsWithheld(), NothingIsWasted()
    )
    for topic in "abc":
        world.publish(writer, topic)
    world.unsubscribe(first, "a")
    world.subscribe(second, "a")
    world.run_for(0.5)
    assert world.publish(writer, "a").accepted
    world.crash(second)
    world.run_for(settling_s(3) + 1)
    assert not world.publish(writer, "a").accepted


def test_an_entry_that_goes_back_is_noticed() -> None:
    world, first, _, writer = make_group(VersionsNeverGoBack())
    world.subscribe(first, "c")
    world.run_for(0.5)
    entry = writer.subscription_list.get(first.node_id)
    assert entry is not None
    writer.subscription_list.put(replace(entry, version=entry.version - 1), 0.0)
    with pytest.raises(BrokenInvariantError, match="writer had .* of first and has"):
        world.subscribe(writer, "d")


def test_a_restarted_node_may_begin_with_less_than_it_knew() -> None:
    world, first, _, writer = make_group(VersionsNeverGoBack())
    for _ in range(5):
        world.crash(writer)
        world.start(writer, node_id=writer.node_id)
        world.subscribe(first, f"{world.clock.now}")
        world.run_for(1.0)


def test_a_publication_that_a_sure_node_withholds_is_noticed() -> None:
    world, _, _, writer = make_group(NothingIsWithheld())
    writer.core.publish = lambda topic, value, now: False  # type: ignore[method-assign]
    world.publish(writer, "c")  # nobody wants it
    with pytest.raises(BrokenInvariantError, match=r"to a was withheld by writer \(sure\)"):
        world.publish(writer, "a")


def test_a_publication_that_is_accepted_and_never_sent_is_noticed() -> None:
    world, _, _, writer = make_group(NothingIsWithheld())
    writer.core.publish = lambda topic, value, now: True  # type: ignore[method-assign]
    with pytest.raises(BrokenInvariantError, match="accepted at .* was withheld"):
        world.publish(writer, "a")


def test_a_held_message_that_is_dropped_is_noticed() -> None:
    world, _, _, _ = make_group(NothingIsWithheld())
    joiner = world.add_node("joiner")
    honest = joiner.core.publish
    joiner.core.publish = lambda topic, value, now: True  # type: ignore[method-assign]
    world.publish(joiner, "b")
    joiner.core.publish = honest  # type: ignore[method-assign]
    with pytest.raises(BrokenInvariantError, match="to b was withheld by joiner"):
        world.run_for(2.0)


@pytest.mark.parametrize(
    ("first_heard_s", "patience_s"), [(0.1, 0), (0.8, settling_s(2)), (99, 99)]
)
def test_a_joiner_of_a_bad_network_is_not_judged_before_anything_has_reached_it(
    first_heard_s: float, patience_s: float
) -> None:
    checker = NothingIsWithheld(is_calm=False)
    world = World(1, NetworkOptions(loss=1.0), (checker,))
    world.add_node("reader", patterns=["a"])
    world.run_for(2.0)
    world.network.options = NetworkOptions()
    world.run_for(20.0)
    joiner = world.add_node("joiner")
    joiner.core.receive_frame = lambda *frame: None  # type: ignore[method-assign]
    world.run_for(1.0)
    assert joiner.core.state == "sure"
    assert joiner.first_heard_at - joiner.started_at < 0.1
    joiner.first_heard_at = joiner.started_at + first_heard_s
    world.run_for(max(0.0, min(first_heard_s + patience_s, 50.0) - 1.1))
    if patience_s:
        checker.inspect(["a"])
    world.run_for(0.2)
    if patience_s == 99:
        checker.inspect(["a"])
        return
    with pytest.raises(BrokenInvariantError, match="to a was withheld by joiner"):
        checker.inspect(["a"])


def test_a_joiner_that_does_not_listen_for_long_enough_is_judged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("jsonbus.core.membership.joining.SILENCE_S", 0.0)
    world = World(1, NetworkOptions(loss=1.0), (NothingIsWithheld(is_calm=False),))
    world.add_node("reader", patterns=["a"])
    world.run_for(20.0)
    world.publish(world.add_node("joiner"), "a")
    with pytest.raises(BrokenInvariantError, match="to a was withheld by joiner"):
        world.run_for(2.0)


def test_a_request_that_is_given_up_although_it_is_served_is_noticed() -> None:
    world, first, _, writer = make_group(NothingIsWithheld())
    world.serve(first, "echo")
    world.run_for(1.0)
    world.request(writer, "echo")
    writer.core.take_events = lambda: [RequestUnserved(1)]  # type: ignore[method-assign]
    with pytest.raises(BrokenInvariantError, match="a request to jsonbus.request/echo"):
        world.run_for(5.0)


def test_a_sure_node_that_would_withhold_something_is_noticed_on_inspection() -> None:
    withheld = NothingIsWithheld()
    world, _, _, writer = make_group(withheld)
    withheld.inspect(["a", "b", "c"])
    writer.core.has_subscribers = lambda topic: False  # type: ignore[method-assign]
    with pytest.raises(BrokenInvariantError, match="any publication to a was withheld by writer"):
        withheld.inspect(["a", "b", "c"])


def test_who_subscribed_a_moment_ago_or_is_cut_off_may_miss_something() -> None:
    world, first, second, writer = make_group(NothingIsWithheld())
    writer.core.publish = lambda topic, value, now: False  # type: ignore[method-assign]
    world.subscribe(second, "new")
    world.publish(writer, "new")
    cut = world.network.cut([first.index], [writer.index])
    world.publish(writer, "a")
    world.network.mend(cut, world.clock.now)
    world.run_for(reunion_s(3) - 0.1)
    world.publish(writer, "a")
    world.run_for(0.2)
    with pytest.raises(BrokenInvariantError, match="to a was withheld"):
        world.publish(writer, "a")


def test_a_message_that_nobody_wants_is_noticed_on_the_network() -> None:
    world, first, _, writer = make_group(NothingIsWasted())
    world.publish(writer, "a")
    world.wishes.clear()  # the truth, which the nodes do not believe
    with pytest.raises(BrokenInvariantError, match="which nobody has wanted for long"):
        world.publish(writer, "a")


def test_what_somebody_wanted_not_long_ago_may_still_be_sent() -> None:
    world, first, _, writer = make_group(NothingIsWasted())
    world.crash(first)
    assert world.publish(writer, "a").accepted
    first.stopped_at -= 60.0
    for wish in world.wishes:
        wish.until = min(wish.until, first.stopped_at)
    with pytest.raises(BrokenInvariantError, match="which nobody has wanted for long"):
        world.publish(writer, "a")


def test_a_basic_node_is_a_reason_to_send_everything() -> None:
    world, _, _, writer = make_group(NothingIsWasted())
    world.add_node("basic", mode="basic")
    world.run_for(1.0)
    assert world.publish(writer, "nobody/cares").accepted
