"""What a query does when a bridge is down, refuses, or has lost what it should read."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.spark.bridges import Bridge
from tests.spark.queries import read_stream, run_available, running, wait_for, why_it_fails
from tests.spark_bridge.served_log import ServedLog

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_a_bridge_that_is_killed_under_a_query_loses_and_repeats_nothing(
    spark: SparkSession, bridge: Bridge, tmp_path: Path
) -> None:
    rows: list[Any] = []
    with running(read_stream(spark, bridge.address), rows.extend, tmp_path / "checkpoint") as query:
        bridge.publish("t", range(50))
        wait_for(query, lambda: len(rows) >= 50)
        bridge.restart()
        bridge.publish("t", range(50, 100))
        wait_for(query, lambda: len(rows) >= 100)
    assert [int(row.value) for row in rows] == list(range(100))


def test_a_bridge_that_is_down_at_the_start_is_waited_for(
    spark: SparkSession, served: ServedLog, tmp_path: Path
) -> None:
    served.publish(range(3))
    served.stop()
    timer = threading.Timer(1.0, served.start)
    timer.start()
    rows, _ = run_available(read_stream(spark, served.address), tmp_path / "checkpoint")
    timer.join()
    assert [row.value for row in rows] == ["0", "1", "2"]


def test_a_bridge_that_stays_down_ends_the_query_with_one_sentence(
    spark: SparkSession, served: ServedLog, tmp_path: Path
) -> None:
    served.stop()
    frame = read_stream(spark, served.address, connectTimeoutMs="300")
    reason = why_it_fails(frame, tmp_path / "checkpoint")
    served.start()
    assert f"no bridge at {served.address} for 0.3 s" in reason
    assert "start it with `jsonbus bridge" in reason


def test_a_wrong_token_ends_the_query(
    spark: SparkSession, open_log: Callable[..., ServedLog], tmp_path: Path
) -> None:
    guarded = open_log(token="secret")
    guarded.publish([1])
    frame = read_stream(spark, guarded.address, token="guessed")
    reason = why_it_fails(frame, tmp_path / "wrong")
    assert "bad_token" in reason
    assert "guessed" not in reason
    frame = read_stream(spark, guarded.address, token="secret")
    assert len(run_available(frame, tmp_path / "right")[0]) == 1


@pytest.mark.parametrize("loss", ["replaced", "expired"])
def test_rows_that_are_gone_end_the_query_or_are_left_out(
    spark: SparkSession, open_log: Callable[..., ServedLog], tmp_path: Path, loss: str
) -> None:
    log = open_log(partitions=1, retention_bytes=1, segment_bytes=1)
    log.publish(range(5))
    checkpoint = tmp_path / "checkpoint"
    assert len(run_available(read_stream(spark, log.address), checkpoint)[0]) == 5
    if loss == "replaced":
        log.replace()
        log.publish([20_000, 20_001])
        complaint = "has another log"
    else:
        for start in (5, 10_000, 20_000):
            log.publish(range(start, 10_000 * (start // 10_000 + 1)))
        log.log.expire()
        complaint = "offset 5 of partition 0 is no longer in the log"
    assert complaint in why_it_fails(read_stream(spark, log.address), checkpoint)
    frame = read_stream(spark, log.address, failOnDataLoss="false")
    rows, _ = run_available(frame, checkpoint)
    assert [int(row.value) for row in rows[:2]] == [20_000, 20_001]
    assert run_available(read_stream(spark, log.address), checkpoint)[0] == []
