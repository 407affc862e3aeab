"""Finds anomalous readings, each reported once.

Two rules, by the readings themselves and nothing else, so that a repeated batch comes to the same:

    limits   The reading is beyond `low` or `high`. Needs no memory.
    mean     The reading is further from its sensor's recent mean than `deviations` times the
             standard deviation, and further than `tolerance`.

Recent is the youngest window that is complete when the reading arrives: the one that ended between
`lateness_s` and `lateness_s + window_s` before it was taken. All readings of that window are there
by then, so the alert needs not wait; and a sensor that just began, or paused, is not judged by its
mean. In Spark this is the join of a stream of readings with the stream of windows made of it: a
reading is kept until its window is there, a window as long as readings may need it.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from .readings import milliseconds
from .settings import PipelineSettings
from .windows import with_windows


def find_anomalies(readings: DataFrame, settings: PipelineSettings) -> DataFrame:
    """Return the readings that break a rule, with `rule` and what they were compared with."""
    beyond = _is_beyond(settings)
    far = find_far(readings.where(~beyond), settings)
    if not _has_limits(settings):
        return far
    broken = readings.where(beyond).select(
        *readings.columns,
        F.lit("limits").alias("rule"),
        F.lit(None).cast("double").alias("mean"),
        F.lit(None).cast("double").alias("deviation"),
    )
    return far.unionByName(broken)


def find_far(readings: DataFrame, settings: PipelineSettings) -> DataFrame:
    """Return the readings that are far from their sensor's recent mean."""
    baselines = (
        with_windows(readings, settings)
        .where(F.col("count") >= settings.baseline_readings_min)
        .select(
            F.col("topic").alias("baseline_topic"),
            F.window_time("window").alias("closed_at"),  # the last microsecond of the window
            "mean",
            "deviation",
        )
    )
    since_s, until_s = settings.lateness_s, settings.lateness_s + settings.window_s
    judged = readings.withWatermark("at", milliseconds(settings.lateness_s)).join(
        baselines,
        (F.col("topic") == F.col("baseline_topic"))
        & (F.col("at") > F.col("closed_at") + _interval(since_s))
        & (F.col("at") <= F.col("closed_at") + _interval(until_s)),
    )
    distance = F.abs(F.col("value") - F.col("mean"))
    allowed = F.greatest(F.col("deviation") * settings.deviations, F.lit(settings.tolerance))
    return judged.where(distance > allowed).select(
        *readings.columns, F.lit("mean").alias("rule"), "mean", "deviation"
    )


def as_messages(anomalies: DataFrame, settings: PipelineSettings) -> DataFrame:
    """Return anomalies as messages for the bus. `node` and `sequence` identify the message for
    ever.
    """
    value = F.to_json(
        F.struct(
            F.col("topic").alias("sensor"),
            *("value", "at", "rule", "mean", "deviation"),
            F.lit(settings.low).cast("double").alias("low"),
            F.lit(settings.high).cast("double").alias("high"),
            *("node", "sequence"),
        )
    )
    return anomalies.select(
        F.concat_ws("/", F.lit(settings.alerts_topic), "topic").alias("topic"), value.alias("value")
    )


def scans(settings: PipelineSettings) -> int:
    """Return how often a query for anomalies reads its source: for the readings, for their
    windows, and for those beyond the limits.
    """
    return 3 if _has_limits(settings) else 2


def _has_limits(settings: PipelineSettings) -> bool:
    return settings.low is not None or settings.high is not None


def _is_beyond(settings: PipelineSettings) -> Column:
    beyond = F.lit(False)
    if settings.low is not None:
        beyond = beyond | (F.col("value") < settings.low)
    if settings.high is not None:
        beyond = beyond | (F.col("value") > settings.high)
    return beyond


def _interval(seconds: float) -> Column:
    return F.expr(f"INTERVAL '{seconds:.3f}' SECOND")
