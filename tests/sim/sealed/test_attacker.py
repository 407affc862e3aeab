"""A sealed world, and what its attacker does."""

from __future__ import annotations

import pytest

from jsonbus.sim import Checker, World
from jsonbus.sim.history import History
from jsonbus.sim.participants import SimNode
from jsonbus.sim.plan import draw_plan
from jsonbus.sim.records import SealedFlight
from jsonbus.sim.report import Trace
from jsonbus.sim.sealed.attacks import ATTACKS


class Arrivals(Checker):
    """Notes what the attacker sent to whom, and whether it was let in."""

    def __init__(self) -> None:
        self.attacks: list[tuple[SimNode, bool]] = []

    def opened(self, receiver: SimNode, flight: SealedFlight, inside: bytes | None) -> None:
        if flight.sender is None:
            self.attacks.append((receiver, inside is not None))


def two_nodes(*checkers: Checker, ahead_s: float = 0.0) -> tuple[World, SimNode, SimNode]:
    world = World(1, checkers=checkers, is_sealed=True)
    reader = world.add_node(patterns=["a"])
    publisher = world.add_node(wall_s=ahead_s)
    world.run_for(3.0)
    return world, reader, publisher


@pytest.mark.parametrize("kind", ATTACKS)
def test_every_attack_reaches_somebody_and_nobody_who_was_there_lets_it_in(kind: str) -> None:
    arrivals = Arrivals()
    world, _, publisher = two_nodes(arrivals)
    world.publish(publisher, "a")
    world.run_for(6.0)  # what the first one said before the second one came is old by then
    for number in range(3):
        world.sealed.attacker.attack(kind, number)
    world.run_for(1.0)
    assert arrivals.attacks
    assert not any(was_let_in for _, was_let_in in arrivals.attacks)


def test_what_is_played_to_a_node_that_has_just_come_may_be_let_in_once() -> None:
    arrivals = Arrivals()
    world, _, _ = two_nodes(arrivals)
    newcomer = world.add_node()
    for number in range(3):
        world.sealed.attacker.attack("greet", number)
    world.run_for(0.2)
    let_in = [receiver for receiver, was_let_in in arrivals.attacks if was_let_in]
    assert set(let_in) == {newcomer}


@pytest.mark.parametrize("ahead_s", [-1e5, 1e5])
def test_a_node_whose_clock_is_wrong_is_heard_after_some_heartbeats(ahead_s: float) -> None:
    world, reader, publisher = two_nodes(ahead_s=ahead_s)
    assert world.network.shut_links
    world.run_for(15.0)
    assert not world.network.shut_links
    for node in (reader, publisher):
        assert len(list(node.subscription_list)) == 2


def test_the_same_seed_gives_the_same_history_to_the_last_line() -> None:
    def lines() -> list[str]:
        written: list[str] = []
        History(draw_plan(2, "mixed", nodes=3, is_sealed=True), (Trace(written.append),)).run()
        return written

    assert lines() == lines()
