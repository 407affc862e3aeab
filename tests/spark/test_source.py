"""`format("jsonbus")` in a real Spark: rows, columns, options, progress."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.spark.bridges import Bridge
from tests.spark.queries import (
    read_batch,
    read_stream,
    run_available,
    running,
    wait_for,
    why_it_fails,
)
from tests.spark_bridge.log.log_rows import make_row
from tests.spark_bridge.served_log import ServedLog

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_messages_of_the_bus_come_into_a_table(
    spark: SparkSession, bridge: Bridge, tmp_path: Path
) -> None:
    for room in ("north", "south"):
        bridge.publish(f"rooms/{room}", ({"celsius": number / 2} for number in range(100)))
    frame = read_stream(spark, bridge.address, topics="rooms/*")
    query = (
        frame.writeStream.format("parquet")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start(str(tmp_path / "rows"))
    )
    assert query.awaitTermination(120)
    rows = spark.read.parquet(str(tmp_path / "rows")).orderBy("topic", "sequence").collect()
    assert len(rows) == 200
    for room, part in (("north", rows[:100]), ("south", rows[100:])):
        assert {row.topic for row in part} == {f"rooms/{room}"}
        assert [json.loads(row.value) for row in part] == [{"celsius": n / 2} for n in range(100)]
        assert [row.sequence - part[0].sequence for row in part] == list(range(100))
        assert len({(row.partition, row.node, row.incarnation) for row in part}) == 1
    # Not exactly: each process looks at the machine's clock now and then, and counts on from there.
    assert all(row.received_at - row.timestamp > timedelta(seconds=-1) for row in rows)
    assert not any(row.retained for row in rows)


def test_every_column_has_its_type_and_value(spark: SparkSession, served: ServedLog) -> None:
    instant = datetime(2026, 1, 2, 3, 4, 5, 678901, UTC)
    row = make_row('{"a": 1}', "a/b", at_us=int(instant.timestamp()) * 1_000_000 + 678901)
    served.append(1, [{**row, "sequence": 7, "retained": True}, make_row("2")])
    frame = read_batch(spark, served.address)
    assert [(field.name, field.dataType.simpleString()) for field in frame.schema] == [
        ("topic", "string"),
        ("value", "string"),
        ("node", "string"),
        ("incarnation", "bigint"),
        ("sequence", "bigint"),
        ("timestamp", "timestamp"),
        ("received_at", "timestamp"),
        ("retained", "boolean"),
        ("partition", "int"),
        ("offset", "bigint"),
    ]
    micros = frame.selectExpr("*", "unix_micros(timestamp)", "unix_micros(received_at)").collect()
    first = micros[0].asDict()
    expected_us = row["timestamp"]
    assert (micros[0][10], micros[0][11]) == (expected_us, expected_us)
    assert (first["topic"], first["value"], first["node"]) == ("a/b", '{"a": 1}', "node")
    assert (first["incarnation"], first["sequence"], first["retained"]) == (1, 7, True)
    assert (first["partition"], first["offset"]) == (1, 0)
    assert (micros[1].sequence, micros[1].retained, micros[1].offset) == (None, False, 1)


def test_a_batch_query_has_bounds(spark: SparkSession, served: ServedLog) -> None:
    served.append(0, [make_row(str(n), at_us=n * 1_000_000) for n in range(10)])
    bound = json.dumps({served.address: {"0": 8, "1": -1}})
    frame = read_batch(
        spark, served.address, startingOffsets="1970-01-01T00:00:05Z", endingOffsets=bound
    )
    assert [row.value for row in frame.collect()] == ["5", "6", "7"]
    assert read_batch(spark, served.address, startingOffsets="latest").count() == 0
    assert read_batch(spark, served.address, minPartitions="3").rdd.getNumPartitions() >= 3


def test_available_now_takes_what_is_there_in_batches(
    spark: SparkSession, served: ServedLog, tmp_path: Path
) -> None:
    served.publish(range(10), partition=0)
    served.publish(range(10, 15), partition=1)
    frame = read_stream(spark, served.address, maxRowsPerTrigger="6")
    rows, counts = run_available(frame, tmp_path / "checkpoint")
    assert counts == [6, 6, 3]
    assert sorted(int(row.value) for row in rows) == list(range(15))
    # And goes on there the next time.
    served.publish([15])
    rows, counts = run_available(frame, tmp_path / "checkpoint")
    assert [row.value for row in rows] == ["15"]


def test_two_bridges_are_read_side_by_side(
    spark: SparkSession, open_log: Callable[..., ServedLog], tmp_path: Path
) -> None:
    north, south = open_log(partitions=1), open_log(partitions=3)
    north.publish(range(3), topic="north")
    south.publish(range(5), topic="south", partition=2)
    frame = read_stream(spark, f"{north.address},{south.address}")
    rows, _ = run_available(frame, tmp_path / "checkpoint")
    found = sorted((row.topic, row.partition, int(row.value)) for row in rows)
    assert found == [("north", 0, n) for n in range(3)] + [("south", 2, n) for n in range(5)]


def test_the_schema_is_a_projection(spark: SparkSession, served: ServedLog, tmp_path: Path) -> None:
    served.publish(["x"], topic="a")
    frame = read_stream(spark, served.address, schema="offset BIGINT, topic STRING")
    rows, _ = run_available(frame, tmp_path / "checkpoint")
    assert [tuple(row) for row in rows] == [(0, "a")]


@pytest.mark.parametrize("way", ["option", "schema"])
def test_values_are_structs_if_their_schema_is_given(
    spark: SparkSession, served: ServedLog, tmp_path: Path, way: str
) -> None:
    served.publish([{"id": "a", "celsius": 20}, {"id": "b"}, "no struct"])
    columns = "id STRING, celsius DOUBLE"
    if way == "option":
        frame = read_stream(spark, served.address, valueSchema=columns)
    else:
        frame = read_stream(spark, served.address, schema=f"value STRUCT<{columns}>")
    rows, _ = run_available(frame.select("value"), tmp_path / "checkpoint")
    assert [row.value and tuple(row.value) for row in rows] == [("a", 20.0), ("b", None), None]


def test_values_that_do_not_fit_end_the_query_in_the_mode_failfast(
    spark: SparkSession, served: ServedLog, tmp_path: Path
) -> None:
    served.publish([{"id": 1}, {"id": "x"}], topic="a/b")
    frame = read_stream(spark, served.address, valueSchema="id BIGINT", valueMode="FAILFAST")
    reason = why_it_fails(frame, tmp_path / "checkpoint")
    assert "topic a/b at offset 1 of partition 0" in reason


def test_gaps_are_shown_if_they_are_wanted(
    spark: SparkSession, served: ServedLog, tmp_path: Path
) -> None:
    served.append(0, [make_row("1"), make_row(None, None, gap=7), make_row("2")])
    frame = read_stream(spark, served.address, includeGaps="true").select("value", "gap")
    rows, _ = run_available(frame, tmp_path / "checkpoint")
    assert [tuple(row) for row in rows] == [("1", None), (None, 7), ("2", None)]
    assert read_batch(spark, served.address).columns[-1] == "offset"


def test_progress_shows_the_lag(spark: SparkSession, served: ServedLog, tmp_path: Path) -> None:
    served.publish(range(10))
    rows: list[Any] = []
    frame = read_stream(spark, served.address, maxRowsPerTrigger="4", group="mine")
    names = ("endOffset", "latestOffset")
    with running(frame, rows.extend, tmp_path / "checkpoint") as query:
        wait_for(query, lambda: len(rows) == 10 and len(query.recentProgress) >= 3)
        progress = [
            tuple(json.loads(source[name])[served.address]["0"] for name in names)
            for source in (each["sources"][0] for each in query.recentProgress[:3])
        ]
        assert progress == [(4, 10), (8, 10), (10, 10)]
        served.publish([10])
        wait_for(query, lambda: len(rows) == 11)
        # A batch is committed while the next one is made.
        wait_for(query, lambda: served.groups.describe(served.log.end(), 0.0)["mine"]["lag"] <= 1)


def test_latest_loses_nothing_from_the_first_batch_on(
    spark: SparkSession, served: ServedLog, tmp_path: Path
) -> None:
    served.publish(range(5))
    frame = read_stream(spark, served.address, startingOffsets="latest")

    def fail(rows: list[Any]) -> None:
        raise RuntimeError("killed in its first batch")

    with running(frame, fail, tmp_path / "checkpoint") as query:
        wait_for(query, lambda: query.exception() is not None)
    served.publish(range(5, 9))
    rows: list[Any] = []
    with running(frame, rows.extend, tmp_path / "checkpoint") as query:
        wait_for(query, lambda: len(rows) >= 4)
        served.publish([9])
        wait_for(query, lambda: len(rows) >= 5)
    assert [int(row.value) for row in rows] == [5, 6, 7, 8, 9]


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"maxRowPerTrigger": "5"}, "did you mean maxRowsPerTrigger?"),
        ({"maxRowsPerTrigger": "none"}, "option maxRowsPerTrigger: 'none'"),
        ({"bridge": "nowhere:0"}, "option bridge: 'nowhere:0'"),
        ({"path": "/data"}, "the option `bridge` names the bridge"),
    ],
)
def test_wrong_options_are_told_when_the_source_is_loaded(
    spark: SparkSession, options: dict[str, str], complaint: str
) -> None:
    from pyspark.errors import AnalysisException

    with pytest.raises(AnalysisException, match="PYTHON_DATA_SOURCE_ERROR") as error:
        spark.readStream.format("jsonbus").options(**options).load()
    assert complaint in str(error.value)
