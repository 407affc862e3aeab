"""How a network misbehaves, in netem's terms, and the dice that decide frame by frame."""

from __future__ import annotations

import dataclasses
import random


@dataclasses.dataclass(frozen=True, slots=True)
class Shape:
    """The misfortunes of a frame on its way to a host, drawn for each frame and host.

    `loss`, `repeat` and `reorder` are probabilities. A delay is `delay_ms` ± `jitter_ms`, so that
    jitter alone changes the order too; `reorder` sends that part of the frames ahead, undelayed.
    """

    loss: float = 0.0
    delay_ms: float = 0.0
    jitter_ms: float = 0.0
    repeat: float = 0.0
    reorder: float = 0.0

    def __post_init__(self) -> None:
        for name in ("loss", "repeat", "reorder"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name} is a probability: use 0 to 1")
        if not 0 <= self.jitter_ms <= self.delay_ms:
            raise ValueError("jitter_ms must lie between 0 and delay_ms: no frame arrives early")
        if self.reorder and not self.delay_ms:
            raise ValueError("reorder needs delay_ms: there is nothing to overtake without it")

    @property
    def is_clean(self) -> bool:
        return self == Shape()

    def netem_arguments(self) -> list[str]:
        """Return the arguments of `tc qdisc … netem`."""
        arguments = ["delay", f"{self.delay_ms}ms", f"{self.jitter_ms}ms"]
        if self.loss:
            arguments += ["loss", f"{self.loss * 100}%"]
        if self.repeat:
            arguments += ["duplicate", f"{self.repeat * 100}%"]
        if self.reorder:
            arguments += ["reorder", f"{self.reorder * 100}%"]
        return arguments

    def __str__(self) -> str:
        if self.is_clean:
            return "no loss, no delay"
        words = [f"{self.loss:.3g} loss" if self.loss else "no loss"]
        if self.delay_ms:
            words.append(f"{self.delay_ms:g} ± {self.jitter_ms:g} ms delay")
        if self.repeat:
            words.append(f"{self.repeat:.3g} repeated")
        if self.reorder:
            words.append(f"{self.reorder:.3g} reordered")
        return ", ".join(words)


class Dice:
    """The random decisions about frames to one host; equal seeds give equal decisions."""

    def __init__(self, seed: int, host: str) -> None:
        self._random = random.Random(f"{seed}/{host}")

    def fate(self, shape: Shape) -> list[float]:
        """Return the delays of all copies of the frame, in seconds; empty if it is lost."""
        draw = self._random.random
        # Every frame draws equally often, so that a change of one probability leaves the fates
        # that the others decide as they were.
        is_lost, is_repeated, is_ahead = (
            draw() < shape.loss,
            draw() < shape.repeat,
            draw() < shape.reorder,
        )
        spread = 2 * draw() - 1
        if is_lost:
            return []
        delay_ms = 0.0 if is_ahead else shape.delay_ms + spread * shape.jitter_ms
        return [delay_ms / 1_000] * (2 if is_repeated else 1)
