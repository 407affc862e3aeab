"""The pipeline: each of its rules on a handful of rows, and all of it on a bridge."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import jsonbus
from tests.end_to_end.processes import Desk
from tests.helpers import wait_until
from tests.spark.bridges import Bridge
from tests.spark.jvm import runners

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from spark_bridge.pipeline import PipelineSettings

#: When the first reading was taken: the beginning of a window.
BEGIN = datetime(2026, 1, 31, 12, tzinfo=UTC)

SCHEMA = """
    topic STRING, value STRING, node STRING, incarnation BIGINT, sequence BIGINT,
    timestamp TIMESTAMP, received_at TIMESTAMP, retained BOOLEAN, partition INT, offset BIGINT
"""


@pytest.fixture
def utc(spark: SparkSession) -> Iterator[SparkSession]:
    """The session with the zone that a pipeline gives it."""
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    yield spark
    assert before is not None
    spark.conf.set("spark.sql.session.timeZone", before)


def settings(**changes: Any) -> PipelineSettings:
    from spark_bridge.pipeline import PipelineSettings

    usual = {"output": "none", "checkpoint": "none", "baseline_readings_min": 3}
    return PipelineSettings(**{**usual, **changes})


def at(seconds: float) -> datetime:
    return BEGIN + timedelta(seconds=seconds)


def rows(spark: SparkSession, *values: tuple[str, str], retained: bool = False) -> DataFrame:
    """Rows of the log, as (topic, JSON text), received a day after BEGIN."""
    received_at = at(86_400)
    return spark.createDataFrame(
        [
            (topic, value, "node", 1, number, received_at, received_at, retained, 0, number)
            for number, (topic, value) in enumerate(values)
        ],
        SCHEMA,
    )


def readings(spark: SparkSession, *values: tuple[float, float], topic: str = "t") -> DataFrame:
    """Readings as (seconds after BEGIN, value)."""
    from spark_bridge.pipeline import as_readings

    texts = [
        (topic, json.dumps({"at": at(taken).isoformat(), "value": value}))
        for taken, value in values
    ]
    return as_readings(rows(spark, *texts), settings())


def test_numbers_and_objects_with_a_number_are_readings(utc: SparkSession) -> None:
    from spark_bridge.pipeline import as_readings

    of_day = at(86_400).timestamp()
    texts = {
        "21.5": (21.5, of_day),
        "-3": (-3.0, of_day),
        '{"value": 7}': (7.0, of_day),
        f'{{"value": 8, "at": {at(5).timestamp()}}}': (8.0, at(5).timestamp()),
        '{"value": 9, "at": "2026-01-31T13:00:05.25+01:00"}': (9.0, at(5.25).timestamp()),
        '{"value": 10, "at": "soon"}': (10.0, of_day),
        '{"value": 11, "at": "2999-01-01T00:00:00Z"}': (11.0, of_day),  # a clock that is wrong
        '{"value": 12, "at": 1e300}': (12.0, of_day),
    }
    found = as_readings(rows(utc, *(("t", text) for text in texts)), settings())
    assert [(row.value, row.at.timestamp()) for row in found.sort("offset").collect()] == [
        (value, pytest.approx(taken)) for value, taken in texts.values()
    ]


def test_what_is_no_reading_is_left_out(utc: SparkSession) -> None:
    from spark_bridge.pipeline import as_readings

    for text in ('"warm"', "null", "[1]", "true", '{"temperature": 3}', '{"value": "x"}', "{}"):
        assert as_readings(rows(utc, ("t", text)), settings()).count() == 0, text
    assert as_readings(rows(utc, ("t", "1"), retained=True), settings()).count() == 0
    other_names = settings(value_field="temperature", time_field="when")
    taken = as_readings(rows(utc, ("t", '{"temperature": 3, "when": 5}')), other_names).collect()
    assert [(row.value, row.at.timestamp()) for row in taken] == [(3.0, 5.0)]


def test_windows_have_count_mean_minimum_and_maximum(utc: SparkSession) -> None:
    from spark_bridge.pipeline.windows import as_messages, with_windows

    taken = readings(utc, (0, 1.0), (9.999, 3.0), (10, 7.0), topic="sensors/a")
    windows = with_windows(taken, settings())
    messages = as_messages(windows, settings()).sort("value").collect()
    assert {(row.topic, row.retain) for row in messages} == {("windows/sensors/a", True)}
    assert [json.loads(row.value) for row in messages] == [
        {
            **{"start": "2026-01-31T12:00:00.000Z", "end": "2026-01-31T12:00:10.000Z"},
            **{"count": 2, "mean": 2.0, "min": 1.0, "max": 3.0},
            "deviation": pytest.approx(2**0.5),
        },
        {
            **{"start": "2026-01-31T12:00:10.000Z", "end": "2026-01-31T12:00:20.000Z"},
            **{"count": 1, "mean": 7.0, "min": 7.0, "max": 7.0},
        },
    ]


def test_a_reading_far_from_the_last_whole_window_is_an_anomaly(utc: SparkSession) -> None:
    from spark_bridge.pipeline.anomalies import find_anomalies

    # Mean 10, deviation 1. It is the window for readings from second 20 to 30, both exactly.
    baseline = [(1, 9.0), (2, 10.0), (3, 11.0)]
    judged = [(19.999, 99.0), (20, 16.1), (21, 15.9), (29.999, 3.9), (29, 4.1), (30, 99.0)]
    found = find_anomalies(readings(utc, *baseline, *judged), settings()).sort("at").collect()
    assert [(row.value, row.rule, row.mean, row.deviation) for row in found] == [
        (16.1, "mean", 10.0, 1.0),
        (3.9, "mean", 10.0, 1.0),
    ]
    few = find_anomalies(readings(utc, *baseline, *judged), settings(baseline_readings_min=4))
    assert few.count() == 0
    tolerant = find_anomalies(readings(utc, *baseline, *judged), settings(tolerance=6.105))
    assert tolerant.count() == 0


def test_a_reading_beyond_the_limits_is_an_anomaly_and_judges_nobody(utc: SparkSession) -> None:
    from spark_bridge.pipeline.anomalies import as_messages, find_anomalies

    limited = settings(low=-40.0, high=85.0)
    taken = readings(utc, (1, 10.0), (2, 10.0), (3, 10.0), (4, 999.0), (20, 10.1), (21, -41.0))
    found = find_anomalies(taken, limited)
    alerts = [json.loads(row.value) for row in as_messages(found, limited).collect()]
    assert {(alert["value"], alert["rule"]) for alert in alerts} == {
        (999.0, "limits"),
        (10.1, "mean"),  # all others were equal
        (-41.0, "limits"),
    }
    assert {alert["sensor"] for alert in alerts} == {"t"}
    assert {row.topic for row in as_messages(found, limited).collect()} == {"alerts/t"}


def test_topics_become_folders_whatever_they_are_made_of(utc: SparkSession, tmp_path: Path) -> None:
    from spark_bridge.pipeline import read_raw
    from spark_bridge.pipeline.raw import folder, with_partitions

    topics = [
        *("sensors/kitchen", "2026", "a=b", "50%", "..", "küche/°C", "x:y?*[z]#'\"", " ", "a%2Fb"),
        *("/".join("ab" * 60), "é" * 127, "x" * 255),
    ]
    raw = with_partitions(rows(utc, *((topic, "1") for topic in topics)))
    raw.write.partitionBy("date", "topic").parquet(folder(str(tmp_path)))
    assert (tmp_path / "raw/date=2026-02-01/topic=sensors%2Fkitchen").is_dir()
    found = read_raw(utc, str(tmp_path)).sort("offset").collect()
    assert [row.long_topic or row.topic for row in found] == topics
    assert len({row.topic for row in found}) == len(topics)
    assert found[0].topic == "sensors/kitchen" and found[0].long_topic is None
    assert utc.read.parquet(folder(str(tmp_path))).where("topic = 'sensors/kitchen'").count() == 1


def test_queries_that_are_restarted_lose_none_of_their_counts(
    utc: SparkSession, bridge: Bridge, tmp_path: Path
) -> None:
    from spark_bridge.pipeline import Pipeline

    places = {"output": str(tmp_path / "output"), "checkpoint": str(tmp_path / "checkpoint")}
    bridge.publish("sensors/a", range(20))
    before = runners(utc)
    pipeline = Pipeline(utc, settings(bridge=bridge.address, **places))
    pipeline.start()
    try:
        # Nobody asks for the progress until the queries have failed, each after some batches.
        for query in utc.streams.active:
            query.processAllAvailable()
        killed = runners(utc) - before
        assert len(killed) == 3
        for runner in killed:
            os.kill(runner, signal.SIGKILL)
        bridge.publish("sensors/a", range(20, 25))
        assert wait_until(lambda: len(runners(utc) - before - killed) == 3, timeout_s=120)
        pipeline.finish()
        progress = pipeline.progress()
        assert {name: each.rows for name, each in progress.items()} == dict.fromkeys(progress, 25)
        assert all(each.restarts for each in progress.values())
    finally:
        pipeline.stop()


def test_settings_that_cannot_be_are_named() -> None:
    pytest.importorskip("pyspark")
    for wrong in (
        {"window_s": 0},
        {"low": 5.0, "high": 5.0},
        {"trigger_s": -1},
        {"time_field": "value"},
    ):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            settings(**wrong)


class Listener:
    """Somebody on the bus who keeps what the pipeline publishes."""

    def __init__(self, desk: Desk) -> None:
        self.bus = jsonbus.Bus(name="listener", port=desk.port, interface="lo")
        self.windows: dict[str, int] = {}
        self.alerts: list[dict[str, Any]] = []
        self.bus.subscribe("windows/sensors/a", self._take_window)
        self.bus.subscribe("alerts/**", lambda message: self.alerts.append(message.value))

    def _take_window(self, message: jsonbus.Message) -> None:
        self.windows[message.value["start"][17:19]] = message.value["count"]


@pytest.fixture
def listener(desk: Desk) -> Iterator[Listener]:
    opened = Listener(desk)
    yield opened
    opened.bus.close()


def test_a_pipeline_goes_on_where_it_was_and_counts_what_comes_late(
    utc: SparkSession, bridge: Bridge, listener: Listener, tmp_path: Path
) -> None:
    from spark_bridge.pipeline import Pipeline
    from spark_bridge.pipeline.raw import count_raw

    chosen = settings(
        bridge=bridge.address,
        output=str(tmp_path / "output"),
        checkpoint=str(tmp_path / "checkpoint"),
        high=85.0,
    )

    def publish(*taken: tuple[float, float]) -> None:
        bridge.publish(
            "sensors/a", [{"value": value, "at": at(when).timestamp()} for when, value in taken]
        )

    def run() -> dict[str, Any]:
        pipeline = Pipeline(utc, chosen, once=True)
        pipeline.start()
        assert wait_until(lambda: not pipeline.is_active, timeout_s=300)
        pipeline.check()
        return {name: each.to_dict() for name, each in pipeline.progress().items()}

    # The watermark goes to second 15: the first window is closed.
    publish(*((second, 20.0 + second % 2) for second in range(10)), (25, 20.5))
    first = run()
    assert first["raw"]["rows"] == first["windows"]["rows"] == first["alerts"]["rows"] == 11
    assert wait_until(lambda: listener.windows == {"00": 10, "20": 1}), listener.windows
    # One is late, one too late, one far from the mean, one beyond the limit, one is no reading.
    publish((12, 20.0), (3, 20.0), (26, 60.0), (27, 100.0))
    bridge.publish("sensors/a", ["no number"])
    second = run()
    assert second["raw"]["rows"] == 5
    assert second["windows"]["dropped_rows"] == 1
    assert second["alerts"]["output_rows"] == 2
    assert wait_until(lambda: listener.windows == {"00": 10, "10": 1, "20": 3}), listener.windows
    assert wait_until(lambda: len(listener.alerts) == 2)
    assert {(alert["rule"], alert["value"]) for alert in listener.alerts} == {
        ("mean", 60.0),
        ("limits", 100.0),
    }
    assert count_raw(utc, chosen.output) == (16, 16)
    assert sorted(each.name for each in (tmp_path / "checkpoint").iterdir()) == [
        *("alerts", "raw", "windows")
    ]
