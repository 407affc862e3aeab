"""The queries of a pipeline: started, kept running, watched and stopped together."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from ..spark import Supervisor, supervise
from . import anomalies, raw, windows
from .progress import OUTPUT_METRIC, QueryProgress
from .readings import as_readings, read_rows
from .settings import PipelineSettings

#: How often a failed query is checked again while others wait for it.
_RESTART_CHECK_S = 0.2


class Pipeline:
    """A pipeline in a session in which `format("jsonbus")` is registered.

    `once`: stop after everything that was in the log at the start has been processed.
    """

    def __init__(
        self, spark: SparkSession, settings: PipelineSettings, *, once: bool = False
    ) -> None:
        self._spark = spark
        self._settings = settings
        self._once = once
        self._supervisors: dict[str, Supervisor] = {}
        self._lock = threading.Lock()  # guards what follows: supervisors restart in their threads
        self._queries: dict[str, StreamingQuery] = {}
        self._progress = {
            "raw": QueryProgress(),
            "windows": QueryProgress(),
            "alerts": QueryProgress(scans=anomalies.scans(settings)),
        }

    def start(self) -> None:
        """Start all queries. Raises what Spark raises for one that cannot start."""
        # Dates, and times without a zone, are in UTC.
        self._spark.conf.set("spark.sql.session.timeZone", "UTC")
        starts: dict[str, Callable[[], StreamingQuery]] = {
            "raw": self._start_raw,
            "windows": self._start_windows,
            "alerts": self._start_alerts,
        }
        try:
            for name, start in starts.items():
                self._supervisors[name] = supervise(start)
        except BaseException:
            self.stop()
            raise

    def progress(self) -> dict[str, QueryProgress]:
        """Return the progress of the queries by name; ask every few seconds."""
        for name, supervisor in self._supervisors.items():
            self._take_reports(name)
            self._progress[name].restarts = supervisor.restarts
        return self._progress

    @property
    def is_active(self) -> bool:
        """True if a query runs."""
        return any(each.is_active for each in self._supervisors.values())

    def check(self) -> None:
        """Raise the exception of a query that failed too often to be restarted again."""
        for supervisor in self._supervisors.values():
            if not supervisor.is_active:
                supervisor.wait()

    def finish(self) -> None:
        """Process what is in the log now, and stop. Raises as `check` does."""
        for supervisor in self._supervisors.values():
            while supervisor.is_active:
                try:
                    supervisor.query.processAllAvailable()
                    break
                except StreamingQueryException:
                    time.sleep(_RESTART_CHECK_S)  # it will be restarted, or has failed for good
        self.check()
        self.progress()
        self.stop()

    def stop(self) -> None:
        """Stop all queries, wherever they are: unfinished batches are done when they start
        again.
        """
        for supervisor in self._supervisors.values():
            supervisor.stop()

    def _start_raw(self) -> StreamingQuery:
        rows = raw.with_partitions(read_rows(self._spark, self._settings, "raw"))
        return self._start(
            "raw",
            _counted(rows)
            .writeStream.format("parquet")
            .partitionBy("date", "topic")
            .option("path", raw.folder(self._settings.output)),
        )

    def _start_windows(self) -> StreamingQuery:
        changed = windows.with_windows(self._readings("windows"), self._settings)
        publish = windows.window_publisher(self._settings)
        writer = _counted(changed).writeStream.outputMode("update").foreachBatch(publish)
        return self._start("windows", writer)

    def _start_alerts(self) -> StreamingQuery:
        found = anomalies.find_anomalies(self._readings("alerts"), self._settings)
        writer = _counted(anomalies.as_messages(found, self._settings)).writeStream
        writer = writer.format("jsonbus").options(**self._settings.bridge_options)
        # A topic that is too long for its alert must not stop the alerts of all others.
        return self._start("alerts", writer.option("onBadRow", "skip"))

    def _readings(self, query: str) -> DataFrame:
        return as_readings(read_rows(self._spark, self._settings, query), self._settings)

    def _start(self, name: str, writer: DataStreamWriter) -> StreamingQuery:
        trigger: dict[str, Any] = {"availableNow": True}
        if not self._once:
            trigger = {"processingTime": f"{round(self._settings.trigger_s * 1000)} milliseconds"}
        self._take_reports(name)  # the number of the failed query, if this is a restart
        query = (
            writer.queryName(f"{self._settings.name}-{name}")
            .option("checkpointLocation", f"{self._settings.checkpoint.rstrip('/')}/{name}")
            .trigger(**trigger)
            .start()
        )
        with self._lock:
            self._queries[name] = query
        return query

    def _take_reports(self, name: str) -> None:
        with self._lock:
            if name in self._queries:
                self._progress[name].take(self._queries[name].recentProgress)


def _counted(rows: DataFrame) -> DataFrame:
    """Return the same rows, with a metric in the progress reports: not every sink reports its
    rows.
    """
    return rows.observe(OUTPUT_METRIC, F.count(F.lit(1)).alias("rows"))
