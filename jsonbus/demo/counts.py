"""The demo's own verdict: what has to be equal in the end, and whether it is."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """What every station counted by itself; None where one could not be asked."""

    #: By the sensors.
    published: int
    anomalies: int
    late_in_time: int
    too_late: int
    #: By the bridge.
    recorded: int | None
    #: By Spark: rows in Parquet and different messages among them, rows that were too late for
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
    """Two figures from different stations that have to be equal."""

    what: str
    figure: int | None
    other: str
    other_figure: int | None

    @property
    def holds(self) -> bool:
        return self.figure is not None and self.figure == self.other_figure


def verify(counts: Counts) -> list[Check]:
    """Everything that has to hold when all stations have done with all readings."""
    in_windows = None if counts.dropped is None else counts.in_windows + counts.dropped
    return [
        Check(
            "published by the sensors", counts.published, "recorded by the bridge", counts.recorded
        ),
        Check("recorded by the bridge", counts.recorded, "rows in Parquet", counts.parquet_rows),
        Check(
            "rows in Parquet", counts.parquet_rows, "different messages", counts.parquet_messages
        ),
        Check("published by the sensors", counts.published, "in windows, or too late", in_windows),
        Check("sent too late", counts.too_late, "dropped by the watermark", counts.dropped),
        Check(
            "anomalies of the sensors", counts.anomalies, "alerts by Spark", counts.alerts_published
        ),
        Check(
            "alerts by Spark", counts.alerts_published, "alerts seen on the bus", counts.alerts_seen
        ),
    ]
