"""The stream reader as Spark calls it, but without Spark: offsets, limits, losses, failures."""

from __future__ import annotations

import json
import logging
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import IntegerType, LongType, StringType, StructType

from spark_bridge.source.datasource import JsonBusDataSource
from spark_bridge.source.errors import (
    DataLossError,
    MisfitError,
    OptionError,
    RefusedError,
    UnreachableError,
)
from spark_bridge.source.stream_reader import JsonBusStreamReader
from tests.helpers import wait_until
from tests.spark_bridge.log.log_rows import make_row
from tests.spark_bridge.served_log import ServedLog

SCHEMA = (
    StructType()
    .add("topic", StringType())
    .add("value", StringType())
    .add("partition", IntegerType())
    .add("offset", LongType())
)
Rows = list[tuple[Any, ...]]


class Query:
    """What Spark does for a query, with a checkpoint that may outlive several readers."""

    def __init__(self, *logs: ServedLog, schema: StructType = SCHEMA, **options: str) -> None:
        self.logs = logs
        self.schema = schema
        self.options = {"startingOffsets": "earliest", "connectTimeoutMs": "10000", **options}
        self.ends: list[dict[str, Any]] = []  # written down before the batch is run
        self.committed: dict[str, Any] | None = None
        self.reader = self.restart()

    def restart(self) -> JsonBusStreamReader:
        """As after a crash of the driver: a new reader, and only the checkpoint is left."""
        addresses = ",".join(log.address for log in self.logs)
        options = {"bridge": addresses, **self.options}
        if hasattr(self, "reader"):
            self.reader.stop()
        self.reader = JsonBusDataSource(options).streamReader(self.schema)
        return self.reader

    def plan(self) -> dict[str, Any] | None:
        """The end of a new batch; None if there is nothing new."""
        start = self.ends[-1] if self.ends else self.reader.initialOffset()
        end = _through_json(self.reader.latestOffset(start, self.reader.getDefaultReadLimit()))
        if json.dumps(end) == json.dumps(start):
            return None
        self.ends.append(end)
        return end

    def run(self) -> Rows:
        """Run the last batch that was planned, for the first time or again."""
        start = self.committed or self.reader.initialOffset()
        rows: Rows = []
        for partition in self.reader.partitions(_through_json(start), self.ends[-1]):
            for batch in self.reader.read(partition):
                rows += [tuple(row.values()) for row in batch.to_pylist()]
        return rows

    def step(self) -> Rows:
        """A whole batch: planned, run and committed; no rows if there is nothing new."""
        if self.plan() is None:
            return []
        rows = self.run()
        self.committed = self.ends[-1]
        return rows

    def values(self) -> list[Any]:
        return [json.loads(row[1]) for row in self.step()]


def _through_json(offset: dict[str, Any]) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(json.dumps(offset))
    return loaded


@pytest.fixture
def query() -> Iterator[Callable[..., Query]]:
    made: list[Query] = []

    def make(*logs: ServedLog, **options: Any) -> Query:
        made.append(Query(*logs, **options))
        return made[-1]

    yield make
    for each in made:
        each.reader.stop()


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


def test_a_bridge_that_cannot_be_told_does_not_end_the_query(
    served: ServedLog, query: Make
) -> None:
    served.publish(range(10))
    q = query(served)
    q.step()
    served.stop()
    q.reader.commit(q.ends[-1])
    served.start()


def test_a_wrong_token_is_told_at_once(open_log: Callable[..., ServedLog], query: Make) -> None:
    guarded = open_log(token="secret")
    with pytest.raises(RefusedError, match="bad_token"):
        query(guarded).step()
    assert query(guarded, token="secret").step() == []


def test_two_addresses_of_one_bridge_are_refused(served: ServedLog, query: Make) -> None:
    twice = f"{served.address},localhost:{served.address.rpartition(':')[2]}"
    with pytest.raises(OptionError, match="are the same bridge"):
        query(served, bridge=twice).step()


def test_a_bridge_that_is_down_at_the_start_is_waited_for(served: ServedLog, query: Make) -> None:
    served.publish(range(3))
    served.stop()
    timer = threading.Timer(0.3, served.start)
    timer.start()
    assert query(served).values() == [0, 1, 2]
    timer.join()


def test_a_bridge_that_stays_down_ends_the_query_with_one_sentence(query: Make) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        address = f"127.0.0.1:{closed.getsockname()[1]}"
    q = query(bridge=address, connectTimeoutMs="200")
    with pytest.raises(UnreachableError, match=f"no bridge at {address} for 0.2 s"):
        q.step()


def test_a_bridge_that_goes_down_gives_nothing_new_until_it_is_back(
    served: ServedLog, query: Make
) -> None:
    served.publish(range(3))
    q = query(served)
    assert q.values() == [0, 1, 2]
    served.stop()
    for _ in range(3):
        assert q.plan() is None
    served.start()
    served.publish([3])
    assert wait_until(lambda: q.values() == [3])


def test_a_bridge_that_goes_down_for_long_ends_the_query(served: ServedLog, query: Make) -> None:
    served.publish(range(3))
    q = query(served, connectTimeoutMs="300", longPollMs="20")
    assert q.values() == [0, 1, 2]
    served.stop()
    with pytest.raises(UnreachableError):
        wait_until(lambda: q.plan())
    served.start()


def test_a_bridge_that_is_down_does_not_hold_up_the_others(
    open_log: Callable[..., ServedLog], query: Make
) -> None:
    up, down = open_log(partitions=1), open_log(partitions=1)
    for log in (up, down):
        log.publish([0])
    q = query(up, down)
    rows = q.step()
    while len(rows) < 2:
        rows += q.step()
    down.stop()
    up.publish([1])
    assert wait_until(lambda: q.values() == [1])
    down.start()
    down.publish([2])
    assert wait_until(lambda: q.values() == [2])


def test_a_range_is_read_on_behind_the_block_after_which_the_connection_broke(
    served: ServedLog, query: Make
) -> None:
    for start in range(0, 30_000, 10_000):
        served.publish(range(start, start + 10_000))
    q = query(served)
    q.plan()
    (partition,) = q.reader.partitions(q.reader.initialOffset(), q.ends[-1])
    batches = q.reader.read(partition)
    offsets = next(batches).column("offset").to_pylist()
    served.stop()
    timer = threading.Timer(0.2, served.start)
    timer.start()
    for batch in batches:
        offsets += batch.column("offset").to_pylist()
    timer.join()
    assert offsets == list(range(30_000))


def make_expired(open_log: Callable[..., ServedLog], query: Make, **options: str) -> Query:
    """A query that read 5 rows, of a log that meanwhile begins at 20,000 and ends at 30,000."""
    log = open_log(partitions=1, retention_bytes=1, segment_bytes=1)
    q = query(log, **options)
    log.publish(range(5))
    assert len(q.step()) == 5
    for start in (5, 10_000, 20_000):
        log.publish(range(start, 10_000 * (start // 10_000 + 1)))
    log.log.expire()
    assert (log.log.first(), log.log.end()) == ([20_000], [30_000])
    return q


def test_rows_that_expired_are_an_error_with_both_numbers(
    open_log: Callable[..., ServedLog], query: Make
) -> None:
    q = make_expired(open_log, query)
    with pytest.raises(DataLossError, match=r"offset 5 of partition 0 .* begins at 20000"):
        q.step()


def test_rows_that_expired_are_jumped_over_with_one_warning_if_that_is_wanted(
    open_log: Callable[..., ServedLog], query: Make, caplog: pytest.LogCaptureFixture
) -> None:
    q = make_expired(open_log, query, failOnDataLoss="false", maxRowsPerTrigger="10")
    with caplog.at_level(logging.WARNING):
        assert q.values() == list(range(20_000, 20_010))
        assert q.values() == list(range(20_010, 20_020))
    assert len([r for r in caplog.records if "begins at 20000" in r.getMessage()]) <= 2


@pytest.mark.parametrize("fails", [True, False])
def test_rows_that_expire_between_planning_and_reading_are_noticed(
    open_log: Callable[..., ServedLog], query: Make, fails: bool
) -> None:
    log = open_log(partitions=1, retention_bytes=1 << 40, segment_bytes=1)
    q = query(log, failOnDataLoss=str(fails).lower())
    for start in (0, 10_000):
        log.publish(range(start, start + 10_000))
    q.plan()
    log.stop()
    log._log_options["retention_bytes"] = 1
    log.start()
    log.log.expire()
    assert log.log.first() == [10_000]
    if fails:
        with pytest.raises(DataLossError, match=r"offset 0 of partition 0 .* begins at 10000"):
            q.run()
    else:
        assert [json.loads(row[1]) for row in q.run()] == list(range(10_000, 20_000))


def test_a_log_that_was_replaced_is_an_error_or_a_new_start(served: ServedLog, query: Make) -> None:
    served.publish(range(5))
    strict, lenient = query(served), query(served, failOnDataLoss="false")
    assert strict.values() == lenient.values() == [0, 1, 2, 3, 4]
    served.replace()
    served.publish([10, 11])
    for q in (strict, lenient):
        q.restart()
    with pytest.raises(DataLossError, match="has another log"):
        strict.step()
    assert lenient.values() == [10, 11]
    assert lenient.step() == []


def test_a_log_that_is_replaced_under_a_running_query_is_noticed(
    served: ServedLog, query: Make
) -> None:
    q = query(served)
    served.publish(range(5))
    q.step()
    served.replace()
    with pytest.raises(DataLossError, match="has another log"):
        wait_until(lambda: q.plan())


def test_a_bridge_that_moved_is_read_on(served: ServedLog, query: Make) -> None:
    q = query(served)
    served.publish(range(5))
    q.step()
    served.publish([5])
    q.plan()
    served.move()
    q.restart()
    assert [row[1] for row in q.run()] == ["5"]
    q.committed = q.ends[-1]
    served.publish([6])
    assert q.values() == [6]
    assert list(q.ends[-1]) == [served.address]


def test_a_bridge_may_be_added_and_removed(open_log: Callable[..., ServedLog], query: Make) -> None:
    one, other = open_log(partitions=1), open_log(partitions=3)
    one.publish([1])
    other.publish([2], partition=2)
    q = query(one, failOnDataLoss="false")
    assert q.values() == [1]
    q.logs = (one, other)
    q.restart()
    assert q.values() == [2]
    q.logs = (one,)
    q.restart()
    one.publish([3])
    assert q.values() == [3]


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
    assert again.partitions(end, later)[0].value[3:] == (14, 20)
    assert again.latestOffset() == later


def test_spark_before_4_2_reads_from_the_first_row_if_it_is_told_so(
    served: ServedLog, query: Make
) -> None:
    served.publish(range(10))
    q = query(served, maxRowsPerTrigger="4")
    end = q.reader.latestOffset()
    assert q.reader.partitions(q.reader.initialOffset(), end)[0].value[3:] == (0, 10)


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
