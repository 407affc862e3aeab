"""jsonbus.sim: the production core in a simulated world, without real time and repeatable by seed.

    from jsonbus.sim import World

    world = World(seed=7)
    kitchen = world.add_node("kitchen", patterns=["sensors/**"])
    garage = world.add_node("garage")
    world.run_for(1.0)
    world.publish(garage, "sensors/door")

The same seed gives the same run, to the last event. The world records the truth, checkers compare
it with what nodes do, and raise as soon as a promise is broken.

world.py              participants, clock and network: what a scenario is told with
participants.py       production nodes, and plain peers
clock.py              virtual time, and the events that wait for it
network.py            multicast with loss, delay, repeats, reordering and cut links
loop.py               hands datagrams and timers to the nodes, as the front ends do
records.py            the truth: subscriptions, publications, lives
checkers.py           what must hold of single messages; base class of all checkers
list_checkers.py      what must hold of subscription lists
reliable_checkers.py  what must hold of reliable and retained messages
group_checkers.py     what must hold of the group as a whole
plan.py               what a seed decides before a history begins
scenario.py           a random history: chaos, then peace, then everything must be well
experiments.py        measurements: late joins, mass starts
report.py             traces, tallies and tables for people
channels/             channels between simulated nodes

It imports only the core. `tools/simulate.py` runs histories and measurements from the command line.
"""

from __future__ import annotations

from jsonbus.sim.checkers import BrokenInvariantError, Checker
from jsonbus.sim.network import NetworkOptions
from jsonbus.sim.world import World

__all__ = ["BrokenInvariantError", "Checker", "NetworkOptions", "World"]
