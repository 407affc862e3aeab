"""A query whose Python is killed goes on from its checkpoint."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING

from tests.helpers import wait_until
from tests.spark.bridges import Bridge
from tests.spark.jvm import runners

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


def test_a_query_goes_on_after_its_python_process_was_killed(
    spark: SparkSession, bridge: Bridge, tmp_path: Path
) -> None:
    from spark_bridge.spark import supervise

    def start() -> StreamingQuery:
        source = spark.readStream.format("jsonbus").option("bridge", bridge.address)
        rows = source.option("startingOffsets", "earliest").load()
        writer = rows.writeStream.format("parquet").option("path", str(tmp_path / "rows"))
        return writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()

    def written() -> list[int]:
        rows = spark.read.schema("value STRING").parquet(str(tmp_path / "rows"))
        return sorted(int(row.value) for row in rows.collect())

    others = runners(spark)
    supervisor = supervise(start, backoff_s=0)
    first = supervisor.query
    bridge.publish("numbers", range(100))
    first.processAllAvailable()
    assert written() == list(range(100))
    [runner] = runners(spark) - others
    os.kill(runner, signal.SIGKILL)
    bridge.publish("numbers", range(100, 200))
    assert wait_until(lambda: supervisor.restarts == 1, timeout_s=120)
    supervisor.query.processAllAvailable()
    assert written() == list(range(200))
    assert supervisor.query.id == first.id  # the checkpoint's
    assert len(runners(spark) - others - {runner}) == 1
    supervisor.stop()
    assert supervisor.wait()
    assert not supervisor.query.isActive
