"""What goes wrong in the demo, and when: spikes, broken sensors, and readings that come late."""

from __future__ import annotations

from collections.abc import Callable
from itertools import cycle
from typing import Any

from .pipeline_scene import SENSORS, PipelineScene

#: The steps of a demo, and how far apart they are at most.
STEPS = 12
STEP_S_MAX = 5.0

#: A reading so late is in time for its window; windows stay open for longer.
LATE_S = 4.0

#: One that is too late is so by far, and each belongs to a window of its own: Spark counts what it
#: drops by topic and window.
TOO_LATE_S = 60.0
APART_S = 10.0

#: A sensor does at once what it is asked for, unless the machine was so slow that there is nothing
#: to compare a spike with yet.
FULFILLED_S_MAX = 60.0

SPIKE, BREAK, LATE, TOO_LATE = "spike", "break", "late", "too late"
_STEPS = (SPIKE, LATE, BREAK, TOO_LATE)


class Script:
    """Goes through the steps as time goes by. `wish` tells a sensor, `tell` tells people."""

    def __init__(
        self,
        scene: PipelineScene,
        wish: Callable[[str, dict[str, Any]], None],
        tell: Callable[[str], None],
    ) -> None:
        self._scene = scene
        self._wish = wish
        self._tell = tell
        self._step_s = STEP_S_MAX if scene.is_forever else min(STEP_S_MAX, scene.seconds / STEPS)
        self._next_s = 0.0
        self._steps = cycle(_STEPS)
        self._sensors = cycle(SENSORS)
        self._wishes = 0
        self._early = scene.watermark - TOO_LATE_S

    def go_on(self) -> bool:
        """Do what is due; True when it is over, and every sensor did what it was to do."""
        scene = self._scene
        if scene.is_forever or scene.shown_s < scene.seconds:
            if scene.shown_s >= self._next_s:
                self._next_s += self._step_s
                self._do(next(self._steps), next(self._sensors))
            return False
        done = sum(each.anomalies + each.late for each in scene.sensors.values())
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
            self._wish(sensor, {"wish": "late", "at": self._early})
            self._early -= APART_S
            self._tell(f"{sensor} sends a reading a minute late: its window is closed")
