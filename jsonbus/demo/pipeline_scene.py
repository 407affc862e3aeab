"""What is known about the pipeline while it runs; the stage fills it in, views only read it."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass, field
from typing import Any

from .counts import Counts
from .sensor import SensorReport

SENSORS = {"kitchen": 21.0, "bath": 23.5, "garage": 12.0, "attic": 17.5, "cellar": 9.0}
TOPIC_PREFIX = "sensors/"
QUERIES = {"raw": "Parquet", "windows": "bus", "alerts": "bus"}

#: Over which a rate is taken.
RATE_S = 3.0

#: What a view can look back on.
ALERTS_KEPT = 20
EVENTS_KEPT = 20

#: Of each sensor; older ones do not change any more.
WINDOWS_KEPT = 200
DELAYS_KEPT = 1_000


class Rate:
    """How fast a count grows, lately."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int]] = deque()

    def note(self, count: int, now: float | None = None) -> None:
        now = time.monotonic() if now is None else now
        self._seen.append((now, count))
        while len(self._seen) > 2 and now - self._seen[1][0] >= RATE_S:
            self._seen.popleft()

    @property
    def per_s(self) -> float:
        if len(self._seen) < 2:
            return 0.0
        (first_at, first), (last_at, last) = self._seen[0], self._seen[-1]
        return (last - first) / max(0.001, last_at - first_at)


@dataclass(slots=True)
class Seen:
    """An alert as it came over the bus."""

    at: float
    topic: str
    value: float
    #: The recent mean that it is far from; None if it is out of limits.
    mean: float | None
    #: From the moment of the reading to its alert's arrival.
    after_s: float


@dataclass(slots=True)
class PipelineScene:
    """All stations, as they told last."""

    seconds: float
    is_forever: bool = False
    #: Of the bus and of the bridge.
    bus_address: str = ""
    bridge_address: str = ""
    #: What is being done, as people would say it, and since when.
    phase: str = "starting"
    elapsed_s: float = 0.0
    #: Of the show itself, once Spark runs.
    shown_s: float = 0.0
    events: deque[tuple[float, str]] = field(default_factory=lambda: deque(maxlen=EVENTS_KEPT))

    sensors: dict[str, SensorReport] = field(
        default_factory=lambda: {name: SensorReport() for name in SENSORS}
    )
    sensor_rates: dict[str, Rate] = field(
        default_factory=lambda: {name: Rate() for name in SENSORS}
    )
    late_in_time: int = 0
    too_late: int = 0

    bridge: dict[str, Any] | None = None
    bridge_rate: Rate = field(default_factory=Rate)

    job_state: str = "starting"
    queries: dict[str, dict[str, Any]] = field(default_factory=dict)
    query_rates: dict[str, Rate] = field(default_factory=lambda: {name: Rate() for name in QUERIES})
    raw_rows: int | None = None
    raw_messages: int | None = None

    #: As seen on the bus: the alerts, how many by sensor; the last state of windows, by sensor and
    #: start, and the readings in windows that are not kept.
    alerts: deque[Seen] = field(default_factory=lambda: deque(maxlen=ALERTS_KEPT))
    alert_counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(SENSORS, 0))
    alert_delays_s: deque[float] = field(default_factory=lambda: deque(maxlen=DELAYS_KEPT))
    windows: dict[str, dict[str, dict[str, Any]]] = field(
        default_factory=lambda: {name: {} for name in SENSORS}
    )
    in_past_windows: int = 0

    def note_window(self, sensor: str, window: dict[str, Any]) -> None:
        """A window has changed."""
        windows = self.windows[sensor]
        windows[window["start"]] = window
        if len(windows) > WINDOWS_KEPT:
            self.in_past_windows += windows.pop(min(windows))["count"]

    @property
    def published(self) -> int:
        return sum(each.published for each in self.sensors.values())

    @property
    def recorded(self) -> int | None:
        return None if self.bridge is None else int(self.bridge["recorder"]["rows_recorded"])

    @property
    def in_windows(self) -> int:
        kept = (each for windows in self.windows.values() for each in windows.values())
        return self.in_past_windows + sum(int(window["count"]) for window in kept)

    @property
    def alerts_seen(self) -> int:
        return sum(self.alert_counts.values())

    @property
    def watermark(self) -> float:
        """Seconds since 1970; 0 as long as Spark has seen too little."""
        return (self.queries.get("windows") or {}).get("watermark") or 0.0

    def last_window(self, sensor: str) -> dict[str, Any] | None:
        """The youngest window that has most of its readings: the last but one, if there is one."""
        ordered = sorted(self.windows[sensor])
        if not ordered:
            return None
        return self.windows[sensor][ordered[-2] if len(ordered) > 1 else ordered[-1]]

    def behind(self, query: str) -> int:
        """Rows that the bridge has and the query has not done with."""
        done = self.queries.get(query, {}).get("rows", 0)
        return max(0, (self.recorded or 0) - int(done))

    def counts(self) -> Counts:
        windows, alerts = self.queries.get("windows"), self.queries.get("alerts")
        return Counts(
            published=self.published,
            anomalies=sum(each.anomalies for each in self.sensors.values()),
            late_in_time=self.late_in_time,
            too_late=self.too_late,
            recorded=self.recorded,
            parquet_rows=self.raw_rows,
            parquet_messages=self.raw_messages,
            dropped=None if windows is None else windows["dropped_rows"],
            alerts_published=None if alerts is None else alerts["output_rows"],
            alerts_seen=self.alerts_seen,
            in_windows=self.in_windows,
        )
