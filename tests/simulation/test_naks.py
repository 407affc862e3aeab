"""Many whole nodes miss the same message: how many of them ask for it."""

from __future__ import annotations

from typing import Any

from jsonbus.core.wire.frames import NakFrame
from jsonbus.sim import Checker, NetworkOptions, World
from jsonbus.sim.reliable_checkers import ReliableIsExact


class Naks(Checker):
    """Counts them."""

    def __init__(self) -> None:
        self.count = 0

    def sent(self, sender: Any, frame: Any, data: bytes) -> None:
        self.count += isinstance(frame, NakFrame)


def test_of_a_thousand_whole_nodes_that_miss_the_same_message_few_ask() -> None:
    naks, seeds = 0, 3
    for seed in range(seeds):
        checker, exact = Naks(), ReliableIsExact()
        world = World(seed, checkers=(checker, exact))
        publisher, *_ = world.add_agreed_group(1_000, lambda number: ["a"] if number else [])
        world.publish(publisher, "a", is_reliable=True)
        world.run_for(0.02)
        world.network.options = NetworkOptions(loss=1.0)
        world.publish(publisher, "a", is_reliable=True)
        world.network.options = NetworkOptions()
        world.publish(publisher, "a", is_reliable=True)
        world.run_for(1.0)
        exact.finished()
        naks += checker.count
    assert 0 < naks / seeds <= 3
