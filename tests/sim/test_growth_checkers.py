"""Each checker watches nodes that keep too much, or claim too much, and must say so."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from jsonbus.core import limits
from jsonbus.core.roster import Peer
from jsonbus.core.wire.frames import Header
from jsonbus.sim import BrokenInvariantError, World
from jsonbus.sim.growth_checkers import (
    LIMITS,
    GrowthChecker,
    TablesStayBounded,
    VersionsAreEarned,
    sizes_of,
)
from jsonbus.sim.participants import SimNode

MANY = 200


def make_trio(checker: GrowthChecker) -> tuple[World, SimNode]:
    world = World(1, checkers=(checker,))
    first = world.add_node("first", patterns=["a/*", "b"])
    for name in ("second", "third"):
        world.add_node(name, patterns=["a/**"])
    world.run_for(3.0)
    world.publish(first, "a/x", is_reliable=True, is_retained=True)
    world.run_for(1.0)
    return world, first


@pytest.mark.parametrize("checker", [TablesStayBounded(), VersionsAreEarned()])
def test_honest_nodes_that_come_and_go_break_nothing(checker: GrowthChecker) -> None:
    world, first = make_trio(checker)
    for _ in range(20):
        visitor = world.add_node(patterns=["b"])
        world.run_for(0.5)
        world.unsubscribe(visitor, "b")
        world.run_for(0.5)
        (world.leave if visitor.index % 2 else world.crash)(visitor)
        checker.finished()
    assert first.core.own_entry().version == 1


def test_every_container_of_a_node_is_found() -> None:
    world, first = make_trio(TablesStayBounded())
    sizes = sizes_of(first.core)
    assert sizes["SubscriptionList._own"] == sizes["Roster.peers"] + 1 == 3
    assert sizes["Streams.by_key"] == 0 and sizes["History._order"] == 1
    assert sizes["Deadlines._heap"] >= 1  # in a part of a part
    assert sizes["Peer._marks"] >= 1  # in what a table holds


def test_every_limit_belongs_to_a_container_that_exists() -> None:
    """Those of messages that come in slices or wait exist only while there are any."""
    world, first = make_trio(TablesStayBounded())
    reader = world.nodes[1]
    while_some_wait = {"Assembly.slices", "_Sender.done"}
    found = {*sizes_of(first.core), *sizes_of(reader.core)} | while_some_wait
    assert set(LIMITS) <= found
    assert all(hasattr(limits, name) for name in LIMITS.values())


def keep_tombstones(node: SimNode) -> None:
    entry = replace(node.core.own_entry(), left=True)
    tombstones = node.subscription_list.tombstones
    tombstones |= {f"gone{number}": (entry, 0.0) for number in range(MANY)}


def keep_peers(node: SimNode) -> None:
    for number in range(MANY + limits.PEERS_UNLISTED_MAX):
        peer = Peer(Header(f"gone{number}", 1, 1, 1, 0), node.address)
        node.core._roster.peers[peer.node] = peer


def keep_what_nobody_has_thought_of(node: SimNode) -> None:
    node.core.requests.leaked = [set(range(MANY))]  # type: ignore[attr-defined]
    node.core.requests.leak = set(range(MANY))  # type: ignore[attr-defined]


@pytest.mark.parametrize("keep", [keep_tombstones, keep_peers, keep_what_nobody_has_thought_of])
def test_a_table_that_grows_with_who_is_gone_is_noticed(keep: Callable[[SimNode], None]) -> None:
    checker = TablesStayBounded()
    world, first = make_trio(checker)
    checker.finished()
    keep(first)
    with pytest.raises(BrokenInvariantError, match="first keeps .* items in "):
        checker.finished()


def test_streams_that_nobody_looks_after_are_noticed() -> None:
    checker = TablesStayBounded()
    world, first = make_trio(checker)
    reader = world.nodes[1]
    assert len(reader.core.reliable._streams.by_key) == 1
    world.run_for(200.0)
    checker.finished()
    reader.core.reliable._streams.expire = lambda now: None  # type: ignore[method-assign]
    world.run_for(200.0)
    with pytest.raises(BrokenInvariantError, match="second keeps .* not checked for "):
        checker.finished()


def test_a_version_without_a_reason_is_noticed() -> None:
    checker = VersionsAreEarned()
    world, first = make_trio(checker)
    world.subscribe(first, "c")
    world.run_for(1.0)
    checker.finished()
    membership = first.core._membership
    entry = replace(membership.entry, version=membership.entry.version + 1)
    membership._announcer.renew(entry, first.local(world.clock.now))
    with pytest.raises(BrokenInvariantError, match="first has version 3, for no more than 2"):
        checker.finished()


@pytest.mark.parametrize("change", [{"incarnation": 7}, {"version": 2}])
def test_an_entry_that_its_node_never_had_is_noticed(change: dict[str, int]) -> None:
    checker = VersionsAreEarned()
    world, first = make_trio(checker)
    second = world.nodes[1]
    forged = replace(second.core.own_entry(), **change)
    first.subscription_list.put(forged, first.local(world.clock.now))
    with pytest.raises(BrokenInvariantError, match="first knows .*(newer than|never lived)"):
        checker.finished()


def test_a_checker_that_is_asked_again_at_once_does_not_look_again() -> None:
    looks: list[SimNode] = []

    class Looks(GrowthChecker):
        def judge(self, node: SimNode) -> None:
            looks.append(node)

    checker = Looks()
    world, first = make_trio(checker)
    for _ in range(3):
        checker.inspect()
    assert looks == world.nodes
