"""Draws what is done to hosts and network in a run: the same seed gives the same plan."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Iterator, Sequence

from tools.lab.shape import Shape

#: How long publishers publish undisturbed when all have agreed.
CALM_S = 5.0

#: Enough that in a small run some topics are wanted by nobody.
TOPICS = tuple(f"lab/{number}/{leaf}" for number in range(6) for leaf in ("x", "y"))
PATTERNS = (*TOPICS, *(f"lab/{number}/*" for number in range(6)))

#: How long each kind of fault lasts. A publisher keeps what it sent for 10 seconds, and a silent
#: node is believed in for 8: some absences are longer, most are not.
SECONDS = {
    "burst": (0.5, 4.0),
    "deaf": (0.5, 14.0),
    "split": (0.5, 14.0),
    "link": (0.5, 5.0),
    "stop": (0.5, 14.0),
    "terminate": (0.0, 4.0),
    "kill": (0.0, 4.0),
}
#: How often they are drawn.
WEIGHTS = {"burst": 6, "deaf": 2, "split": 1, "link": 1, "stop": 3, "terminate": 3, "kill": 3}


@dataclasses.dataclass(frozen=True, slots=True)
class Fault:
    """Something that begins and ends, in seconds after the round began."""

    kind: str
    begins_s: float
    ends_s: float
    hosts: tuple[str, ...] = ()  # none: the whole network
    shape: Shape = Shape()
    patterns: tuple[str, ...] = ()  # what a subscriber wants that is started again


class Plan:
    """The faults of all rounds, and what the subscribers want."""

    def __init__(self, seed: int, hosts: Sequence[str]) -> None:
        self._random = random.Random(seed)
        self._hosts = list(hosts)

    def patterns(self) -> tuple[str, ...]:
        """Draw what a subscriber wants."""
        return tuple(self._random.sample(PATTERNS, self._random.choice((1, 1, 2))))

    def round(self, seconds: float) -> list[Fault]:
        """Draw the faults of a round, in their order. Nothing befalls one host twice at a time."""
        faults = []
        free_at = dict.fromkeys([*self._hosts, "burst", "split"], 0.0)
        for at in self._instants(seconds):
            fault = self._draw(at, seconds)
            touched = fault.hosts if fault.kind not in free_at else (fault.kind,)
            if all(free_at[each] <= at for each in touched):
                free_at |= dict.fromkeys(touched, fault.ends_s)
                faults.append(fault)
        return faults

    def _instants(self, seconds: float) -> Iterator[float]:
        """Yield when faults begin: the more hosts, the more often."""
        at = 0.0
        while (at := at + self._random.expovariate(1.5 + len(self._hosts) / 30)) < seconds:
            yield at

    def _draw(self, at: float, seconds: float) -> Fault:
        draw = self._random
        (kind,) = draw.choices(list(WEIGHTS), list(WEIGHTS.values()))
        ends_s = min(at + draw.uniform(*SECONDS[kind]), seconds)
        if kind == "burst":
            return Fault(kind, at, ends_s, shape=self._shape())
        if kind == "split":
            count = draw.randint(1, max(1, len(self._hosts) // 2))
            return Fault(kind, at, ends_s, tuple(draw.sample(self._hosts, count)))
        return Fault(kind, at, ends_s, (draw.choice(self._hosts),), patterns=self.patterns())

    def _shape(self) -> Shape:
        draw = self._random
        delay_ms = draw.choice((0.0, draw.uniform(1, 40)))
        return Shape(
            loss=draw.choice((0.02, 0.1, 0.3, 0.6)),
            delay_ms=delay_ms,
            jitter_ms=draw.uniform(0, delay_ms),
            repeat=draw.choice((0.0, 0.05, 0.3)),
            reorder=draw.choice((0.0, 0.2)) if delay_ms else 0.0,
        )
