"""Each sensor by windows of time: how many readings, their mean, minimum and maximum.

A window is published whenever readings were added to it, also by readings that come late, as long
as the watermark is not beyond its end. Subscribers keep the last value for each `start`.
Readings that come later still are not counted; Spark reports how many (numRowsDroppedByWatermark).
"""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from .readings import milliseconds
from .settings import PipelineSettings


def with_windows(readings: DataFrame, settings: PipelineSettings) -> DataFrame:
    """Return statistics by topic and window; of a stream, the windows that a batch changed."""
    return (
        readings.withWatermark("at", milliseconds(settings.lateness_s))
        .groupBy("topic", F.window("at", milliseconds(settings.window_s)))
        .agg(
            F.count(F.lit(1)).alias("count"),
            F.avg("value").alias("mean"),
            F.min("value").alias("min"),
            F.max("value").alias("max"),
            F.stddev_samp("value").alias("deviation"),
        )
    )


def as_messages(windows: DataFrame, settings: PipelineSettings) -> DataFrame:
    """Return windows as messages for the bus: topic, value, retain."""
    value = F.to_json(
        F.struct(
            F.col("window.start").alias("start"),
            F.col("window.end").alias("end"),
            *("count", "mean", "min", "max", "deviation"),
        )
    )
    return windows.select(
        F.concat_ws("/", F.lit(settings.windows_topic), "topic").alias("topic"),
        value.alias("value"),
        F.lit(True).alias("retain"),  # late subscribers get the last window at once
    )


def window_publisher(settings: PipelineSettings) -> Callable[[DataFrame, int], None]:
    """Make a function for foreachBatch that publishes the windows a batch changed.

    Spark has no sink in Python for changed rows. A batch that is repeated after a crash publishes
    the same windows again, which changes nothing for those who keep the last value.
    """
    options = {**settings.bridge_options, "onBadRow": "skip"}

    def publish(batch: DataFrame, batch_id: int) -> None:
        messages = as_messages(batch, settings)
        messages.write.format("jsonbus").options(**options).mode("append").save()

    return publish
