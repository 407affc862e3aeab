"""jsonbus.sim: the production core in a world of dice, without real time and repeatable by seed.

    from jsonbus.sim import World

    world = World(seed=7)
    kitchen = world.add_node("kitchen", patterns=["sensors/**"])
    garage = world.add_node("garage")
    world.run_for(1.0)
    world.publish(garage, "sensors/door")

`tools/simulate.py` runs histories and measurements from the command line.
"""

from __future__ import annotations

from jsonbus.sim.checkers import BrokenInvariantError, Checker
from jsonbus.sim.network import NetworkOptions
from jsonbus.sim.world import World

__all__ = ["BrokenInvariantError", "Checker", "NetworkOptions", "World"]
