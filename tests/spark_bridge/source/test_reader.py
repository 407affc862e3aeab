"""The stream reader as Spark calls it, but without Spark: offsets, limits, columns."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import LongType, StringType, StructType

from spark_bridge.source.client import Connection
from spark_bridge.source.datasource import JsonBusDataSource
from spark_bridge.source.errors import (
    MisfitError,
    OptionError,
)
from tests.helpers import wait_until
from tests.spark_bridge.log.log_rows import make_row
from tests.spark_bridge.served_log import ServedLog
from tests.spark_bridge.source.spark_query import SCHEMA, Query

Make = Callable[..., Query]


def test_rows_come_once_and_in_order(served: ServedLog, query: Make) -> None:
    q = query(served)
    served.publish(range(3))
    served.publish(["x"], topic="a/b", partition=1)
    assert q.step() == [
        ("t", "0", 0, 0),
        ("t", "1", 0, 1),
        ("t", "2", 0, 2),
        ("a/b", '"x"', 1, 0),
    ]
    assert q.step() == []
    served.publish([3])
    assert q.step() == [("t", "3", 0, 3)]


def test_topics_are_filtered(served: ServedLog, query: Make) -> None:
    q = query(served, topics="a/*,c")
    for topic in ("a/b", "a/b/c", "c", "d"):
        served.publish([topic], topic=topic)
    assert q.values() == ["a/b", "c"]


def test_a_query_with_nothing_new_gives_back_the_very_offset(
    served: ServedLog, query: Make
) -> None:
    q = query(served)
    assert q.plan() is None
    served.publish([1])
    assert q.values() == [1]
    assert q.plan() is None


def test_news_end_the_wait(served: ServedLog, query: Make) -> None:
    q = query(served, longPollMs="60000")
    q.reader.initialOffset()
    served.publish([0])
    assert q.values() == [0]
    timer = threading.Timer(0.2, served.publish, ([1],))
    timer.start()
    assert q.values() == [1]
    timer.join()


@pytest.mark.slow
def test_news_of_any_bridge_end_the_wait(open_log: Callable[..., ServedLog], query: Make) -> None:
    logs = [open_log(partitions=1) for _ in range(3)]
    q = query(*logs, longPollMs="60000")
    for log in logs:
        log.publish([0])
    rows = q.step()
    while len(rows) < 3:
        rows += q.step()
    for number, log in enumerate(logs):
        timer = threading.Timer(0.1, log.publish, ([number],))
        timer.start()
        assert q.values() == [number]
        timer.join()


@pytest.mark.parametrize("is_repeated", [False, True])
def test_latest_starts_behind_what_was_there_and_keeps_that_start(
    served: ServedLog, query: Make, is_repeated: bool
) -> None:
    served.publish(range(5))
    q = query(served, startingOffsets="latest")
    assert q.plan() is not None  # at once, without rows: it is what is written down
    if is_repeated:
        served.publish(range(5, 8))
        q.restart()
    assert q.run() == []
    if not is_repeated:
        served.publish(range(5, 8))
    q.committed = q.ends[-1]
    assert q.values() == [5, 6, 7]


def test_a_first_batch_that_is_repeated_reads_the_same_rows(served: ServedLog, query: Make) -> None:
    q = query(served, startingOffsets="latest")
    q.reader.initialOffset()
    served.publish(range(4))
    q.plan()
    first = q.run()
    served.publish(range(4, 9))
    q.restart()
    assert q.run() == first
    assert [row[1] for row in first] == ["0", "1", "2", "3"]


def test_offsets_by_partition_and_by_time_are_starts(served: ServedLog, query: Make) -> None:
    served.append(0, [make_row(str(n), at_us=n * 1_000_000) for n in range(10)])
    by_offset = json.dumps({served.address: {"0": 7, "1": -1}})
    assert query(served, startingOffsets=by_offset).values() == [7, 8, 9]
    assert query(served, startingOffsets="1970-01-01T00:00:08Z").values() == [8, 9]


@pytest.mark.parametrize(
    ("offsets", "complaint"),
    [
        ({"0": 7}, "0 to 1, and each needs an offset"),
        ({"0": 7, "1": 1}, "ends at 0, before the offset 1"),
        ({"0": 0, "1": 0, "epoch": "other"}, "of the log other"),
    ],
)
def test_starts_that_cannot_be_are_errors(
    served: ServedLog, query: Make, offsets: dict[str, Any], complaint: str
) -> None:
    served.publish(range(9))
    text = json.dumps({served.address: offsets})
    with pytest.raises(OptionError, match=complaint):
        query(served, startingOffsets=text).step()
    with pytest.raises(OptionError, match="not in the option `bridge`"):
        query(served, startingOffsets='{"elsewhere:1": {"0": 0, "1": 0}}').step()


def test_a_batch_has_at_most_so_many_rows(served: ServedLog, query: Make) -> None:
    served.publish(range(60), partition=0)
    served.publish(range(30), partition=1)
    q = query(served, maxRowsPerTrigger="30")
    counts = []
    while rows := q.step():
        counts.append([sum(row[2] == partition for row in rows) for partition in (0, 1)])
    assert [sum(each) for each in counts] == [30, 30, 30]
    assert counts[0] == [20, 10]


def test_a_trigger_that_wants_everything_gets_it(served: ServedLog, query: Make) -> None:
    served.publish(range(60))
    q = query(served, maxRowsPerTrigger="30")
    end = q.reader.latestOffset(q.reader.initialOffset(), ReadAllAvailable())
    assert end[served.address]["0"] == 60


@pytest.mark.slow
def test_a_batch_has_about_so_many_bytes(served: ServedLog, query: Make) -> None:
    for _ in range(20):
        served.publish(["x" * 1000] * 10)
    q = query(served, maxBytesPerTrigger="50000")
    counts = []
    while rows := q.step():
        counts.append(len(rows))
    assert sum(counts) == 200
    assert len(counts) >= 3


def test_a_batch_waits_for_enough_rows(served: ServedLog, query: Make) -> None:
    q = query(served, minRowsPerTrigger="10", longPollMs="0")
    served.publish(range(9))
    assert q.plan() is None
    served.publish([9])
    assert len(q.step()) == 10


def test_a_batch_does_not_wait_for_enough_rows_for_ever(served: ServedLog, query: Make) -> None:
    q = query(served, minRowsPerTrigger="10", maxTriggerDelay="1ms", longPollMs="10")
    served.publish(range(3))
    assert wait_until(lambda: len(q.step()) == 3)


def test_available_now_stops_at_what_was_there(served: ServedLog, query: Make) -> None:
    served.publish(range(10))
    q = query(served, maxRowsPerTrigger="4", minRowsPerTrigger="4")
    q.reader.prepareForTriggerAvailableNow()
    counts = [len(q.step())]
    served.publish(range(100))
    while rows := q.step():
        counts.append(len(rows))
    assert counts == [4, 4, 2]


def test_large_ranges_are_split_into_tasks(served: ServedLog, query: Make) -> None:
    served.publish(range(100))
    q = query(served, minPartitions="4", maxRowsPerPartition="10")
    q.plan()
    assert len(q.reader.partitions(q.reader.initialOffset(), q.ends[-1])) == 10
    assert [json.loads(row[1]) for row in q.run()] == list(range(100))


def test_the_latest_offset_is_reported_from_the_last_reply(served: ServedLog, query: Make) -> None:
    served.publish(range(10))
    q = query(served, maxRowsPerTrigger="3")
    q.step()
    served.publish(range(10))
    reported = q.reader.reportLatestOffset()
    assert reported is not None
    assert reported[served.address]["0"] == 10  # and not 20: nobody was asked


def test_the_bridge_is_told_how_far_a_group_is(served: ServedLog, query: Make) -> None:
    served.publish(range(10))
    q = query(served, group="mine", maxRowsPerTrigger="4")
    q.step()
    q.reader.commit(q.ends[-1])
    assert served.groups.describe(served.log.end(), 0.0)["mine"]["lag"] == 6


def test_spark_before_4_2_tells_no_start_and_gets_the_same_rows(
    served: ServedLog, query: Make
) -> None:
    served.publish(range(10))
    q = query(served, startingOffsets="latest", maxRowsPerTrigger="4")
    end = q.reader.latestOffset()  # before anybody asked for the initial offset
    served.publish(range(10, 20))
    assert q.reader.partitions(q.reader.initialOffset(), end) == []
    end = q.reader.latestOffset()
    assert end[served.address]["0"] == 14
    # After a restart the offset of the checkpoint comes with the batch, not before.
    again = q.restart()
    later = again.latestOffset()
    assert later[served.address]["0"] == 20
    assert again.partitions(end, later)[0].value[0][3:] == (14, 20)
    assert again.latestOffset() == later


def test_spark_before_4_2_reads_from_the_first_row_if_it_is_told_so(
    served: ServedLog, query: Make
) -> None:
    served.publish(range(10))
    q = query(served, maxRowsPerTrigger="4")
    end = q.reader.latestOffset()
    assert q.reader.partitions(q.reader.initialOffset(), end)[0].value[0][3:] == (0, 10)


def test_a_batch_goes_as_far_as_the_log_does_when_it_is_planned(
    served: ServedLog, query: Make
) -> None:
    q = query(served)
    served.publish([1])
    end = q.reader.latestOffset(q.reader.initialOffset())
    served.publish([2])
    end = q.reader.latestOffset(end)
    connection = Connection(served.address, None, 30.0)
    try:
        for number in range(3, 6):
            served.publish([number])
            connection.request({"op": "stats"})  # whoever waited for rows has been told by now
    finally:
        connection.close()
    assert q.reader.latestOffset(end)[served.address]["0"] == 5


def test_one_task_reads_what_is_little_of_all_partitions(served: ServedLog, query: Make) -> None:
    served.publish(range(10), partition=0)
    served.publish(range(10, 20), partition=1)
    q = query(served)
    start, end = q.reader.initialOffset(), q.reader.latestOffset()
    assert len(q.reader.partitions(start, end)) == 1
    assert sorted(q.values()) == list(range(20))


def test_gaps_are_rows_only_if_they_are_wanted(served: ServedLog, query: Make) -> None:
    served.append(0, [make_row("1"), make_row(None, None, gap=7), make_row("2")])
    assert query(served).values() == [1, 2]
    schema = StructType().add("gap", LongType()).add("offset", LongType())
    assert query(served, schema=schema, includeGaps="true").step() == [
        (None, 0),
        (7, 1),
        (None, 2),
    ]


VALUES = StructType().add("offset", LongType()).add("value", StructType().add("a", LongType()))


def test_values_that_do_not_fit_are_null_and_counted(served: ServedLog, query: Make) -> None:
    served.publish([{"a": 1}, {"a": "x"}, None, 5])
    q = query(served, schema=VALUES, group="mine")
    assert q.step() == [(0, {"a": 1}), (1, None), (2, None), (3, None)]
    assert served.groups.describe(served.log.end(), 0.0)["mine"]["misfits"] == 2


def test_values_that_do_not_fit_fail_the_query_if_that_is_wanted(
    served: ServedLog, query: Make
) -> None:
    served.publish([{"a": 1}, {"a": "x"}], topic="a/b")
    q = query(served, schema=VALUES, valueMode="failfast")
    complaint = r'topic a/b at offset 1 of partition 0 .*: \{"a": "x"\}\.'
    with pytest.raises(MisfitError, match=complaint):
        q.step()


@pytest.mark.parametrize(
    ("schema", "complaint"),
    [
        (StructType(), "schema is empty"),
        (StructType().add("colour", StringType()), "has a column colour"),
        (StructType().add("offset", StringType()), "offset is BIGINT, not STRING"),
        (StructType().add("offset", LongType(), nullable=False), "leave out its NOT NULL"),
        (StructType().add("topic", StringType()).add("topic", StringType()), "twice"),
        (StructType().add("gap", LongType()), "includeGaps=true"),
        (
            StructType().add("value", StructType().add("a", LongType(), nullable=False)),
            "value.a is NOT NULL",
        ),
    ],
)
def test_a_schema_that_the_source_cannot_fill_is_refused(
    schema: StructType, complaint: str
) -> None:
    with pytest.raises(OptionError, match=complaint):
        JsonBusDataSource({}).streamReader(schema)


def test_options_of_the_other_kind_of_query_are_refused() -> None:
    with pytest.raises(OptionError, match="endingOffsets is for batch"):
        JsonBusDataSource({"endingOffsets": "latest"}).streamReader(SCHEMA)
    with pytest.raises(OptionError, match="are for streaming queries"):
        JsonBusDataSource({"maxRowsPerTrigger": "5"}).reader(SCHEMA)


def test_a_batch_query_reads_what_was_there_when_it_was_planned(served: ServedLog) -> None:
    served.publish(range(10))
    options = {
        "bridge": served.address,
        "endingOffsets": json.dumps({served.address: {"0": 8, "1": -1}}),
    }
    reader = JsonBusDataSource(options).reader(SCHEMA)
    partitions = reader.partitions()
    served.publish(range(10))
    rows = [row for each in partitions for batch in reader.read(each) for row in batch.to_pylist()]
    assert [row["offset"] for row in rows] == list(range(8))
