"""What must be equal at the end of the pipeline, and whether it is."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """What each station counted by itself; None if it could not be asked."""

    #: By the sensors.
    published: int
    anomalies: int
    late_in_time: int
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
