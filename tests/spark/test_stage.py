"""The stage itself: a bridge that is killed comes back as the same one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.spark.bridges import Bridge

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_what_was_published_is_read_also_after_the_bridge_was_killed(
    spark: SparkSession, bridge: Bridge
) -> None:
    bridge.publish("numbers", range(100))
    assert _values(spark, bridge) == list(range(100))
    bridge.restart()
    bridge.publish("numbers", range(100, 200))
    assert _values(spark, bridge) == list(range(200))
    bridge.stop()
    bridge.start()
    assert _values(spark, bridge) == list(range(200))


def _values(spark: SparkSession, bridge: Bridge) -> list[int]:
    rows = spark.read.format("jsonbus").option("bridge", bridge.address).load()
    return [int(row.value) for row in rows.sort("offset").collect()]
