"""What goes wrong in the pipeline, and when: spikes, broken sensors, and late readings."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import cycle

from .pipeline_scene import SENSORS, PipelineScene
from .sensor import Wish

#: The steps of a show, and the seconds between them at most.
STEPS = 12
STEP_S_MAX = 5.0

#: A reading this late is in time for its window; windows stay open for longer.
LATE_S = 4.0

#: A reading that is too late is so by far, and each has a window to itself: Spark counts dropped
#: rows by topic and window.
TOO_LATE_S = 60.0
APART_S = 10.0

#: A sensor does at once what it is told, unless the machine was so slow that there is nothing to
#: compare a spike with yet.
FULFILLED_S_MAX = 60.0

SPIKE, BREAK, LATE, TOO_LATE = "spike", "break", "late", "too late"


@dataclass
class Script:
    """Takes the steps as time passes. `wish` tells a sensor, `tell` the audience."""

    _scene: PipelineScene
    _wish: Callable[[str, Wish], None]
    _tell: Callable[[str], None]
    _next_s: float = 0.0
    _wishes: int = 0

    def __post_init__(self) -> None:
        scene = self._scene
        self._step_s = STEP_S_MAX if scene.is_forever else min(STEP_S_MAX, scene.seconds / STEPS)
        self._steps = cycle((SPIKE, LATE, BREAK, TOO_LATE))
        self._sensors = cycle(SENSORS)
        self._too_late_at = scene.watermark - TOO_LATE_S

    def advance(self) -> bool:
        """Do what is due. Return True when time is up and every sensor did what it was told."""
        scene = self._scene
        if scene.is_forever or scene.shown_s < scene.seconds:
            if scene.shown_s >= self._next_s:
                self._next_s += self._step_s
                self._do(next(self._steps), next(self._sensors))
            return False
        done = sum(each.anomalies + each.late for each in scene.reports.values())
        return done >= self._wishes or scene.shown_s >= scene.seconds + FULFILLED_S_MAX

    def _do(self, step: str, sensor: str) -> None:
        self._wishes += 1
        if step in (SPIKE, BREAK):
            self._wish(sensor, {"wish": step})
            what = "has a spike" if step == SPIKE else "is broken for a moment"
            self._tell(f"{sensor} {what}: an alert is due")
        elif step == LATE:
            self._scene.late_in_time += 1
            self._wish(sensor, {"wish": "late", "by_s": LATE_S})
            self._tell(f"{sensor} sends a reading {LATE_S:g} s late: its window is corrected")
        else:
            self._scene.too_late += 1
            self._wish(sensor, {"wish": "late", "at": self._too_late_at})
            self._too_late_at -= APART_S
            self._tell(f"{sensor} sends a reading a minute late: its window is closed")
