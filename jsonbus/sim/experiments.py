"""Measurements: what a late join costs, and what a start of many nodes at once costs.

A late join: one node joins a group that has long agreed, and leaves again before the next one
comes. Counted are the shares that the group sends because of it. It is complete when its list is
the group's, itself included; the time counts from its first announcement. Who is not complete
after ten seconds is unserved.

A mass start: nodes that know nothing start within a second. Counted are all shares until everybody
has the same list of everybody.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import reduce
from operator import xor
from statistics import mean, median
from typing import Any

from jsonbus.core.wire.frames import Digest
from jsonbus.sim.checkers import Checker
from jsonbus.sim.network import NetworkOptions
from jsonbus.sim.participants import Participant, SimNode
from jsonbus.sim.report import Tally
from jsonbus.sim.world import World

UNSERVED_S = 10.0
# How long a join and a leave may have effects before the next: more than the longest share delay.
ECHO_S = 0.5
SLICE_S = 0.05
START_S = 1.0  # a mass start begins within this time


@dataclass(frozen=True, slots=True)
class Join:
    """The cost of one late join."""

    at: float
    shares: int
    repairs: int
    datagrams: int  # list datagrams of any kind
    complete_s: float | None  # None: not served


@dataclass(frozen=True, slots=True)
class LateJoins:
    """A row of the table."""

    nodes: int
    loss: float
    joins: list[Join]
    tally: Tally = field(repr=False)

    @property
    def shares_per_join(self) -> float:
        return mean(join.shares for join in self.joins)

    @property
    def unserved(self) -> int:
        return sum(join.complete_s is None for join in self.joins)

    @property
    def complete_s(self) -> list[float]:
        """Times to complete, of joins that were served; the shortest first."""
        return sorted(join.complete_s for join in self.joins if join.complete_s is not None)

    def row(self) -> tuple[str, ...]:
        """Return the cells for the columns of TABLE_HEADER."""
        times = self.complete_s
        return (
            f"{self.nodes:,}",
            f"{self.loss:.0%}".replace("%", " %"),
            f"{len(self.joins)}",
            f"{self.shares_per_join:.2f}",
            f"{mean(join.repairs for join in self.joins):.2f}",
            f"{1000 * median(times):.0f} ms" if times else "-",
            f"{1000 * times[-1]:,.0f} ms" if times else "-",
            f"{self.unserved}",
        )


TABLE_HEADER = (
    *("nodes", "loss", "joins", "shares per join", "repairs per join"),
    *("complete, median", "slowest", "unserved"),
)


class Completion(Checker):
    """Notes the instant at which one node's list became the expected one."""

    def __init__(self) -> None:
        self._node: SimNode | None = None
        self._others = Digest(0, 0)
        self.complete_at: float | None = None

    def await_node(self, node: SimNode, others: Digest) -> None:
        """Expect the list of the others plus the node's own newest entry."""
        self._node, self._others, self.complete_at = node, others, None

    def touched(self, participant: Participant) -> None:
        if participant is not self._node or self.complete_at is not None:
            return
        count, total = self._others
        own = self._node.core.own_entry()
        if self._node.subscription_list.digest == Digest(count + 1, total ^ own.hash64()):
            self.complete_at = self.world.clock.now


@contextmanager
def _uncollected() -> Iterator[None]:
    """Run without the cyclic garbage collector, which takes a third of the time of a large run.

    It would repeatedly walk through millions of objects, nearly all of which live as long as their
    nodes.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


@_uncollected()
def measure_late_joins(
    nodes: int,
    loss: float,
    joins: int,
    seed: int,
    mode: str = "delayed",
    on_join: Callable[[Join], None] = lambda join: None,
) -> LateJoins:
    """Let `joins` nodes join and leave a group of `nodes`, one after the other."""
    tally, total, completion = Tally(), Tally(), Completion()
    world = World(seed, NetworkOptions(loss=loss), (tally, total, completion))
    group = world.add_agreed_group(nodes, _patterns_of, lambda number: _settings(mode, number))
    agreed = group[0].subscription_list.digest
    results = []
    world.run_for(ECHO_S)
    for number in range(joins):
        tally.reset()
        joined_at = world.clock.now
        joiner = world.add_node(patterns=_patterns_of(number), mode=mode)
        completion.await_node(joiner, agreed)
        while completion.complete_at is None and world.clock.now - joined_at < UNSERVED_S:
            world.run_for(SLICE_S)
        world.run_for(ECHO_S)
        complete_at = completion.complete_at
        world.leave(joiner)
        world.run_for(ECHO_S)
        lists = sum(tally.datagrams[kind] for kind in ("share", "repair", "announcement"))
        complete_s = None if complete_at is None else complete_at - joined_at
        results.append(Join(joined_at, tally.shares, tally.repairs, lists, complete_s))
        on_join(results[-1])
    return LateJoins(nodes, loss, results, total)


@dataclass(frozen=True, slots=True)
class MassStart:
    """The cost of a start of many nodes within a second."""

    agreed_s: float | None  # from the first start until all lists are equal and complete
    sure_s: float | None  # until all nodes are sure
    tally: Tally = field(repr=False)


@_uncollected()
def measure_mass_start(nodes: int, loss: float, seed: int, mode: str = "delayed") -> MassStart:
    """Start `nodes` nodes at random instants within a second."""
    tally = Tally()
    world = World(seed, NetworkOptions(loss=loss), (tally,))
    dice = world.dice("starts")

    def start(number: int) -> None:
        world.add_node(patterns=_patterns_of(number), **_settings(mode, number))

    for number in range(nodes):
        world.clock.call_at(dice.uniform(0, START_S), start, number)
    world.run_for(START_S)
    agreed_s = sure_s = None
    while (agreed_s is None or sure_s is None) and world.clock.now < 60.0:
        world.run_for(SLICE_S)
        if agreed_s is None and _all_have_everything(world.nodes):
            agreed_s = world.clock.now
        if sure_s is None and all(node.core.state == "sure" for node in world.nodes):
            sure_s = world.clock.now
    world.run_for(ECHO_S)
    return MassStart(agreed_s, sure_s, tally)


def _all_have_everything(nodes: list[SimNode]) -> bool:
    total = reduce(xor, (node.core.own_entry().hash64() for node in nodes))
    return all(node.subscription_list.digest == Digest(len(nodes), total) for node in nodes)


def _patterns_of(number: int) -> tuple[str, ...]:
    """Return a plausible number of patterns, some in common with other nodes."""
    return (f"sensors/room{number % 100}/*",)


def _settings(mode: str, number: int) -> dict[str, Any]:
    return {"mode": mode, "is_master": mode == "master" and number == 0}
