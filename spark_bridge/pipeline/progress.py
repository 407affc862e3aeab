"""Measures how far the queries of a pipeline are, from the progress reports that Spark keeps.

Spark keeps the last hundred reports of a query; asking every few seconds misses none. A query that
reads its source several times, for a join, reports every row that often.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any

#: Batches over which a rate is computed.
RATE_BATCHES = 5

#: Name of the metric that counts what a query gave to its sink.
OUTPUT_METRIC = "output"


@dataclass(slots=True)
class QueryProgress:
    """The progress of one query since this process started it."""

    #: How often the query reads its source.
    scans: int = 1
    #: Batches with rows; rows that were read; rows that went to the sink.
    batches: int = 0
    rows: int = 0
    output_rows: int = 0
    #: Rows of closed windows, which came too late. Rows of one batch with the same topic and window
    #: count as one: Spark adds them up first.
    dropped_rows: int = 0
    #: The last batches.
    rows_per_s: float = 0.0
    batch_ms: int = 0
    #: Rows that the log had beyond the last batch, when that began.
    behind: int = 0
    #: Seconds since 1970; older readings are late.
    watermark: float | None = None
    restarts: int = 0
    _last: tuple[str, int] = field(default=("", -1), repr=False)
    _recent: deque[tuple[int, int]] = field(
        default_factory=lambda: deque(maxlen=RATE_BATCHES), repr=False
    )

    def take(self, reports: Sequence[Mapping[str, Any]]) -> None:
        """Add Spark's reports, oldest first; reports that were added before are skipped."""
        for report in reports:
            run, batch = report["runId"], report["batchId"]
            if run == self._last[0] and batch <= self._last[1]:
                continue
            self._last = run, batch
            self._add(report)

    def to_dict(self) -> dict[str, Any]:
        return {key: value for key, value in asdict(self).items() if not key.startswith("_")}

    def _add(self, report: Mapping[str, Any]) -> None:
        source = report["sources"][0]
        rows = report["numInputRows"] // self.scans
        if rows:
            self.batches += 1
            self.rows += rows
            self.batch_ms = report["durationMs"].get("triggerExecution", 0)
            self._recent.append((rows, self.batch_ms))
            spent_ms = sum(each for _, each in self._recent)
            self.rows_per_s = 1000 * sum(each for each, _ in self._recent) / max(1, spent_ms)
        self.behind = max(0, _total(source["latestOffset"]) - _total(source["endOffset"]))
        self.dropped_rows += sum(
            each["numRowsDroppedByWatermark"] for each in report["stateOperators"]
        )
        observed = report["observedMetrics"].get(OUTPUT_METRIC)
        if observed is not None:
            self.output_rows += observed["rows"]
        watermark = (report.get("eventTime") or {}).get("watermark")
        if watermark is not None:
            self.watermark = datetime.fromisoformat(watermark).timestamp()


def _total(offset: Any) -> int:
    """Return the rows below an offset of our source, over all bridges and partitions."""
    places = json.loads(offset) if isinstance(offset, str) else offset
    return sum(
        number
        for place in (places or {}).values()
        for partition, number in place.items()
        if partition.isdecimal()
    )
