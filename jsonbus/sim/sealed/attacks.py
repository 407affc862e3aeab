"""Which attacks happen when, in a random history: all along, in peace, too."""

from __future__ import annotations

import random

from jsonbus.sim.plan import Plan
from jsonbus.sim.script import Stage

#: What the attacker does, by weight.
ATTACKS = {
    "repeat": 4.0,
    "replay": 4.0,
    "greet": 4.0,
    "reflect": 2.0,
    "flip": 2.0,
    "cut": 1.0,
    "pretend": 2.0,
    "invent": 1.0,
    "seal": 1.0,
    "speak": 1.0,
    "flood": 0.15,
}


class Attacks:
    """Lets the attacker of a history attack now and then, until it is over."""

    def __init__(self, plan: Plan, stage: Stage) -> None:
        self._clock = stage.world.clock
        self._do = stage.do
        self._dice = random.Random(f"{plan.world_seed}/attacks")
        self._pause_s = self._dice.choice((0.3, 1.0, 3.0))
        self._made = 0
        if plan.is_patient:
            self._do("world.sealed.be_patient")

    def begin(self) -> None:
        self._clock.call_at(self._pause(), self._act)

    def _pause(self) -> float:
        return self._clock.now + self._dice.expovariate(1 / self._pause_s)

    def _act(self, _: None) -> None:
        (kind,) = self._dice.choices([*ATTACKS], [*ATTACKS.values()])
        self._made += 1
        self._do("world.sealed.attacker.attack", kind, self._made)
        self._clock.call_at(self._pause(), self._act)
