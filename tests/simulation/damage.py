"""What the tables of deliberate defects share: what a defect is, and how a method is damaged."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pytest import MonkeyPatch

from jsonbus.sim.checkers import Checker
from jsonbus.sim.plan import Plan, draw_plan

Damage = Callable[[MonkeyPatch], None]


@dataclass(frozen=True, slots=True)
class Defect:
    """A damage, the promise that it breaks, and the plan of a history in which it does."""

    name: str
    damage: Damage
    promise: type[Checker]
    plan: Plan


class Defects(list[Defect]):
    """A table of defects, for histories with channels or without, or of a sealed bus."""

    def __init__(self, *, has_channels: bool = False, is_sealed: bool = False) -> None:
        super().__init__()
        self._has_channels = has_channels
        self._is_sealed = is_sealed

    def breaks(
        self, promise: type[Checker], seed: int, mode: str, family: str = "small"
    ) -> Callable[[Damage], Damage]:
        """Enter the decorated damage: it breaks that promise in that history."""

        def enter(damage: Damage) -> Damage:
            plan = draw_plan(
                seed,
                mode,
                has_channels=self._has_channels,
                family=family,
                is_sealed=self._is_sealed,
            )
            self.append(Defect(damage.__name__, damage, promise, plan))
            return damage

        return enter


def around(patch: MonkeyPatch, owner: type, name: str, new: Callable[..., Any]) -> None:
    """Replace a method by `new(real, self, …)`."""
    real = getattr(owner, name)
    patch.setattr(owner, name, lambda *args, **options: new(real, *args, **options))


def omit(patch: MonkeyPatch, owner: type, name: str) -> None:
    """Replace a method by one that does nothing."""
    patch.setattr(owner, name, lambda *args, **options: None)
