"""Turns rows of the log into readings.

A value is a number, or an object with a number and, if the sensor has a clock, the time at which it
was taken (ISO 8601, or seconds since 1970). What is neither is no reading; it is in the raw data.

The time of a reading moves the watermark of all sensors. So it is believed only if it is not after
the reception: one sensor whose clock is a year ahead would make everybody else's readings late.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DoubleType, StringType, StructField, StructType

from .settings import PipelineSettings


def read_rows(spark: SparkSession, settings: PipelineSettings, query: str) -> DataFrame:
    """Read the stream of rows for one query of the pipeline."""
    options = {
        **settings.bridge_options,
        "topics": settings.topics,
        "group": f"{settings.name}-{query}",
        "startingOffsets": settings.starting,
        "maxRowsPerTrigger": str(settings.rows_per_batch_max),
    }
    rows = spark.readStream.format("jsonbus").options(**options).load()
    # A bridge that records everything also records what the pipeline publishes.
    for own in (settings.windows_topic, settings.alerts_topic):
        rows = rows.where(~F.startswith("topic", F.lit(f"{own}/")))
    return rows


def as_readings(rows: DataFrame, settings: PipelineSettings) -> DataFrame:
    """Return the readings among the rows: topic, value (double), at (timestamp), and their
    source.
    """
    parsed = F.from_json(
        "value",
        StructType(
            [
                StructField(settings.value_field, DoubleType()),
                StructField(settings.time_field, StringType()),
            ]
        ),
    )
    value = F.coalesce(parsed.getField(settings.value_field), F.col("value").try_cast(DoubleType()))
    taken_at = _as_time(parsed.getField(settings.time_field))
    at = F.when(taken_at <= F.col("received_at"), taken_at).otherwise(
        F.least("timestamp", "received_at")
    )
    # A retained value that is sent again to a late subscriber is not a new reading.
    return (
        rows.where(~F.col("retained"))
        .select(
            "topic", value.alias("value"), at.alias("at"), "node", "sequence", "partition", "offset"
        )
        .where(F.col("value").isNotNull() & ~F.isnan("value"))
    )


def _as_time(text: Column) -> Column:
    """Parse ISO 8601, or a number of seconds; null if it is neither."""
    return F.coalesce(text.try_cast("double").try_cast("timestamp"), text.try_cast("timestamp"))


def milliseconds(seconds: float) -> str:
    """Format a duration for Spark."""
    return f"{round(seconds * 1000)} milliseconds"
