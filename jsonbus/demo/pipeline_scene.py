"""The state of the pipeline while it runs, how it is drawn, and what must be equal at its end."""

from __future__ import annotations

import time
from collections import defaultdict, deque
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, ClassVar

from rich.console import Group
from rich.table import Table
from rich.text import Text

from .sensor import Report, TopicReport
from .view import Scene, draw_events, draw_progress, figure, make_table

SENSORS = {"kitchen": 21.0, "bath": 23.5, "garage": 12.0, "attic": 17.5, "cellar": 9.0}
TOPIC_PREFIX = "sensors/"
#: Spark's queries, and where each writes to.
QUERIES = {"raw": "Parquet", "windows": "bus", "alerts": "bus"}

#: A rate is taken over these seconds.
RATE_S = 3.0

ALERTS_KEPT = 20
#: Of each sensor; older windows do not change any more.
WINDOWS_KEPT = 200
DELAYS_KEPT = 1_000

#: Lines of the screen besides alerts and events, with the introduction above. Alerts and events
#: get half each of the remaining lines.
FIXED_LINES = 18
ALERTS_SHOWN_MAX = 6
EVENTS_SHOWN_MAX = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """What each station counted by itself; None if it could not be asked."""

    #: By the sensors.
    published: int
    anomalies: int
    too_late: int
    #: By the bridge.
    recorded: int | None
    #: By Spark: rows in Parquet and distinct messages among them, rows that were too late for
    #: their window, alerts.
    parquet_rows: int | None
    parquet_messages: int | None
    dropped: int | None
    alerts_published: int | None
    #: By a subscriber on the bus: alerts, and the readings in all windows together.
    alerts_seen: int
    in_windows: int


@dataclass(frozen=True, slots=True)
class Check:
    """Two counts from different stations that must be equal."""

    what: str
    count: int | None
    other: str
    other_count: int | None

    @property
    def holds(self) -> bool:
        return self.count is not None and self.count == self.other_count


def verify(counts: Counts) -> list[Check]:
    """Return everything that must hold when all stations have handled all readings."""
    in_windows = None if counts.dropped is None else counts.in_windows + counts.dropped
    published = ("published by the sensors", counts.published)
    recorded = ("recorded by the bridge", counts.recorded)
    parquet_rows = ("rows in Parquet", counts.parquet_rows)
    alerts = ("alerts by Spark", counts.alerts_published)
    return [
        Check(*published, *recorded),
        Check(*recorded, *parquet_rows),
        Check(*parquet_rows, "distinct messages", counts.parquet_messages),
        Check(*published, "in windows, or too late", in_windows),
        Check("sent too late", counts.too_late, "dropped by the watermark", counts.dropped),
        Check("anomalies of the sensors", counts.anomalies, *alerts),
        Check(*alerts, "alerts seen on the bus", counts.alerts_seen),
    ]


class Rate:
    """How fast a count has grown lately."""

    def __init__(self) -> None:
        self._counts: deque[tuple[float, int]] = deque()

    def note(self, count: int, now: float | None = None) -> None:
        now = time.monotonic() if now is None else now
        self._counts.append((now, count))
        while len(self._counts) > 2 and now - self._counts[1][0] >= RATE_S:
            self._counts.popleft()

    @property
    def per_s(self) -> float:
        if len(self._counts) < 2:
            return 0.0
        (first_at, first), (last_at, last) = self._counts[0], self._counts[-1]
        return (last - first) / max(0.001, last_at - first_at)


@dataclass(slots=True)
class Alert:
    """An alert as it came over the bus."""

    received_at: float
    topic: str
    value: float
    #: The recent mean that the value is far from; None if the value is out of limits.
    mean: float | None
    #: Seconds from the reading to the arrival of its alert.
    delay_s: float

    def __str__(self) -> str:
        reason = "out of limits" if self.mean is None else f"its mean is {self.mean:.1f}"
        at = time.strftime("%H:%M:%S", time.localtime(self.received_at))
        delay = f"({self.delay_s:.1f} s after the reading)"
        return f"{at} {self.topic}: {self.value:.1f}, {reason} {delay}"


@dataclass(slots=True)
class PipelineScene(Scene):
    """The last report of every station."""

    STATUS_S: ClassVar[float] = 5.0

    #: What is being done.
    phase: str = "starting"
    late_in_time: int = 0
    too_late: int = 0

    bridge_address: str = ""
    #: The bridge's statistics.
    bridge: dict[str, Any] | None = None

    job_state: str = "starting"
    queries: dict[str, dict[str, Any]] = field(default_factory=dict)
    raw_rows: int | None = None
    raw_messages: int | None = None

    #: By station: the name of a sensor or of a query, or "bridge".
    rates: defaultdict[str, Rate] = field(default_factory=lambda: defaultdict(Rate))

    #: Seen on the bus: the alerts, and how many by sensor; the last state of each window, by sensor
    #: and start, and the readings in windows that are not kept.
    alerts: deque[Alert] = field(default_factory=lambda: deque(maxlen=ALERTS_KEPT))
    alert_counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(SENSORS, 0))
    alert_delays_s: deque[float] = field(default_factory=lambda: deque(maxlen=DELAYS_KEPT))
    windows: dict[str, dict[str, dict[str, Any]]] = field(
        default_factory=lambda: {name: {} for name in SENSORS}
    )
    in_past_windows: int = 0

    def note_alert(self, sensor: str, alert: Alert) -> None:
        self.alerts.append(alert)
        self.alert_counts[sensor] += 1
        self.alert_delays_s.append(alert.delay_s)

    def note_window(self, sensor: str, window: dict[str, Any]) -> None:
        """Take in a window that is new or has changed."""
        windows = self.windows[sensor]
        windows[window["start"]] = window
        if len(windows) > WINDOWS_KEPT:
            self.in_past_windows += windows.pop(min(windows))["count"]

    @property
    def published(self) -> int:
        return sum(each.sent for each in self.reports.values())

    @property
    def recorded(self) -> int | None:
        return None if self.bridge is None else int(self.bridge["recorder"]["rows_recorded"])

    @property
    def alerts_seen(self) -> int:
        return sum(self.alert_counts.values())

    @property
    def watermark(self) -> float:
        """Seconds since 1970; 0 until Spark has seen enough."""
        return (self.queries.get("windows") or {}).get("watermark") or 0.0

    @property
    def counts(self) -> Counts:
        windows, alerts = self.queries.get("windows"), self.queries.get("alerts")
        kept = (each for windows in self.windows.values() for each in windows.values())
        return Counts(
            published=self.published,
            anomalies=sum(each.anomalies for each in self.reports.values()),
            too_late=self.too_late,
            recorded=self.recorded,
            parquet_rows=self.raw_rows,
            parquet_messages=self.raw_messages,
            dropped=None if windows is None else windows["dropped_rows"],
            alerts_published=None if alerts is None else alerts["output_rows"],
            alerts_seen=self.alerts_seen,
            in_windows=self.in_past_windows + sum(int(window["count"]) for window in kept),
        )

    def status(self) -> str:
        parts = [f"published {self.published:,}", f"recorded {self.recorded or 0:,}"]
        parts.extend(
            f"{name} {query['rows']:,} rows in {query['batches']:,} batches"
            for name, query in self.queries.items()
        )
        parts.append(f"alerts seen {self.alerts_seen:,}")
        return "  ".join(parts)

    def draw(self, height: int) -> Group:
        """Return the screen; it fits a terminal of 80 columns and 24 lines."""
        left = max(2, height - FIXED_LINES)
        shown = list(self.alerts)[-min(left // 2, ALERTS_SHOWN_MAX) :]
        alerts = [Text.assemble(("! ", "bold red"), str(each), no_wrap=True) for each in shown]
        return Group(
            Text.assemble(
                ("sensors → bus → bridge → Spark → bus and Parquet", "bold"),
                ("  on this machine", "dim"),
            ),
            draw_progress(self, self.phase),
            self._draw_sensors(),
            Text(),
            self._draw_bridge(),
            self._draw_queries(),
            Text("alerts, as seen on the bus", "bold dim"),
            *(alerts or [Text("none yet", "dim")]),
            *draw_events(self, min(left - left // 2, EVENTS_SHOWN_MAX), is_cut=True),
        )

    def _draw_sensors(self) -> Table:
        headings = (
            "value", "per s", "published", "window", "readings", "mean", "min", "max", "alerts",
        )  # fmt: skip
        table = make_table("sensor", headings)
        for name, value in SENSORS.items():
            report = self.reports.get(name, Report())
            topic = report.topics.get(TOPIC_PREFIX + name, TopicReport(value))
            table.add_row(
                name,
                f"{topic.value:.1f}" if topic.sent else "·",
                f"{self.rates[name].per_s:,.0f}",
                f"{topic.sent:,}",
                *self._draw_window(name),
                figure(self.alert_counts[name], "bold red"),
            )
        return table

    def _draw_window(self, sensor: str) -> list[Text]:
        """Draw the newest window that has most of its readings: the last but one, if any."""
        starts = sorted(self.windows[sensor])[-2:]
        if not starts:
            return [Text("·", "dim")] * 5
        window = self.windows[sensor][starts[0]]
        start = datetime.fromisoformat(window["start"]).astimezone()
        figures = [Text(f"{window[key]:.2f}", "green") for key in ("mean", "min", "max")]
        return [Text(f"{start:%H:%M:%S}", "dim"), Text(f"{window['count']:,}"), *figures]

    def _draw_bridge(self) -> Text:
        if self.bridge is None:
            return Text.assemble(("bridge   ", "cyan"), ("starting", "dim"))
        return Text.assemble(
            ("bridge   ", "cyan"),
            (f"{self.recorded:,} rows recorded", "bold"),
            f", {self.rates['bridge'].per_s:,.0f}/s",
            (f", {self.bridge['log']['bytes'] / 1e6:,.1f} MB on disk", "dim"),
            (f", {self.bridge_address}", "dim"),
        )

    def _draw_queries(self) -> Table:
        headings = ("to", "batches", "rows", "rows/s", "behind", "a batch takes")
        table = make_table("Spark", headings, min_width=7)
        table.add_column("", no_wrap=True)
        for name, goal in QUERIES.items():
            query = self.queries.get(name)
            if query is None or not query["batches"]:
                table.add_row(name, goal, *["·"] * 5, Text(self.job_state, "dim"))
                continue
            remark = {
                "windows": f"{query['dropped_rows']} too late",
                "alerts": f"{query['output_rows']} alerts",
            }
            table.add_row(
                name,
                goal,
                f"{query['batches']:,}",
                Text(f"{query['rows']:,}", "bold"),
                f"{self.rates[name].per_s:,.0f}",
                f"{max(0, (self.recorded or 0) - int(query['rows'])):,}",
                f"{query['batch_ms']:,} ms",
                Text(remark.get(name, ""), "dim"),
            )
        return table
