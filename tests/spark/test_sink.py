"""Results of a real Spark on a real bus: each row once, whoever is killed."""

from __future__ import annotations

import base64
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import jsonbus
from tests.end_to_end.processes import Desk
from tests.helpers import wait_until
from tests.spark.bridges import Bridge
from tests.spark.pausing import make_pausing_source, make_row_source

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: Numbers from 0 on under one topic, ROWS in each batch.
ROWS = 50

#: A driver of its own, which stages a batch and is killed before it commits.
DRIVER = """
import sys
from pathlib import Path
from pyspark.sql.functions import lit
from spark_bridge.spark import session
from tests.spark.pausing import make_pausing_source
from tests.spark.test_sink import numbers, start

folder, address = Path({folder!r}), {address!r}
spark = session(
    master="local[2]", config={{"spark.sql.warehouse.dir": str(folder / "warehouse")}}
)
spark.dataSource.register(make_pausing_source(folder))
start(numbers(spark), "pausing", address, folder / "checkpoint").awaitTermination()
"""


class Outlet:
    """The bus behind a bridge: who listens, and what was heard."""

    def __init__(self, desk: Desk, open_bridge: Callable[..., Bridge]) -> None:
        self.heard: list[jsonbus.Message] = []
        # First the listener: then the bridge knows of it before it publishes anything.
        self.bus = jsonbus.Bus(name="listener", port=desk.port, interface="lo")
        self.bus.subscribe("out/**", self.heard.append)
        self.bridge = open_bridge("recorded/**")

    @property
    def address(self) -> str:
        return self.bridge.address

    def stats(self) -> dict[str, int]:
        stats: dict[str, int] = self.bridge.ask({"op": "stats"})["sink"]
        return stats

    def values(self, count: int) -> list[Any]:
        """What was heard, once there are so many values."""
        wait_until(lambda: len(self.heard) >= count)
        return [message.value for message in self.heard]


@pytest.fixture
def outlet(desk: Desk, open_bridge: Callable[..., Bridge]) -> Iterator[Outlet]:
    outlet = Outlet(desk, open_bridge)
    yield outlet
    outlet.bus.close()


def numbers(spark: SparkSession) -> DataFrame:
    """The next ROWS numbers in each batch."""
    rate = spark.readStream.format("rate-micro-batch")
    rows = rate.option("rowsPerBatch", ROWS).option("numPartitions", 2).load()
    return rows.selectExpr("'out/numbers' AS topic", "value")


def start(rows: DataFrame, form: str, address: str, checkpoint: Path) -> Any:
    """One batch of a query."""
    writing = rows.writeStream.format(form).option("bridge", address).trigger(once=True)
    return writing.option("checkpointLocation", str(checkpoint)).start()


def run(rows: DataFrame, form: str, address: str, checkpoint: Path) -> None:
    query = start(rows, form, address, checkpoint)
    assert query.awaitTermination(120)


def save(rows: DataFrame, address: str, **options: str) -> None:
    rows.write.format("jsonbus").option("bridge", address).options(**options).mode("append").save()


def test_every_row_of_a_stream_is_heard_once_across_restarts(
    spark: SparkSession, outlet: Outlet, tmp_path: Path
) -> None:
    for _ in range(3):
        run(numbers(spark), "jsonbus", outlet.address, tmp_path / "checkpoint")
    assert sorted(outlet.values(3 * ROWS)) == list(range(3 * ROWS))
    stats = outlet.stats()
    assert (stats["batches_published"], stats["rows_published"]) == (3, 3 * ROWS)
    assert stats["staged_rows"] == 0


def test_a_batch_without_rows_sends_nothing_and_the_next_one_goes_out(
    spark: SparkSession, outlet: Outlet, tmp_path: Path
) -> None:
    for wanted in ("false", "true"):
        rows = numbers(spark).where(wanted)
        run(rows, "jsonbus", outlet.address, tmp_path / "checkpoint")
    assert sorted(outlet.values(ROWS)) == list(range(ROWS, 2 * ROWS))
    assert outlet.stats()["batches_published"] == 1


def test_a_batch_that_was_published_before_the_query_failed_is_not_published_again(
    spark: SparkSession, outlet: Outlet, tmp_path: Path
) -> None:
    spark.dataSource.register(make_pausing_source(tmp_path))
    (tmp_path / "go").touch()
    (tmp_path / "fail").touch()
    with pytest.raises(Exception, match="the driver fails here"):
        run(numbers(spark), "pausing", outlet.address, tmp_path / "checkpoint")
    for _ in range(2):  # the retry, and the next batch
        run(numbers(spark), "jsonbus", outlet.address, tmp_path / "checkpoint")
    assert sorted(outlet.values(2 * ROWS)) == list(range(2 * ROWS))
    stats = outlet.stats()
    assert (stats["batches_repeated"], stats["rows_published"]) == (1, 2 * ROWS)


def test_a_driver_killed_between_staging_and_commit_publishes_nothing_and_its_retry_all(
    spark: SparkSession, outlet: Outlet, desk: Desk, tmp_path: Path
) -> None:
    driver = desk.start_python(DRIVER.format(folder=str(tmp_path), address=outlet.address))
    desk.wait_until((tmp_path / "reached").exists)
    assert outlet.stats()["staged_rows"] == ROWS
    driver.end()
    assert outlet.heard == []
    run(numbers(spark), "jsonbus", outlet.address, tmp_path / "checkpoint")
    assert sorted(outlet.values(ROWS)) == list(range(ROWS))
    stats = outlet.stats()
    assert (stats["rows_published"], stats["staged_rows"]) == (ROWS, 0)


def test_a_bridge_killed_between_staging_and_commit_publishes_all_when_it_is_back(
    spark: SparkSession, outlet: Outlet, tmp_path: Path
) -> None:
    spark.dataSource.register(make_pausing_source(tmp_path))
    query = start(numbers(spark), "pausing", outlet.address, tmp_path / "checkpoint")
    assert wait_until((tmp_path / "reached").exists, 120)
    outlet.bridge.kill()
    starting = threading.Thread(target=outlet.bridge.start)
    starting.start()
    (tmp_path / "go").touch()
    assert query.awaitTermination(120)
    starting.join()
    assert sorted(outlet.values(ROWS)) == list(range(ROWS))
    assert outlet.stats()["rows_published"] == ROWS


def test_a_stream_can_be_written_by_rows(
    spark: SparkSession, outlet: Outlet, tmp_path: Path
) -> None:
    spark.dataSource.register(make_row_source())
    run(numbers(spark), "by-rows", outlet.address, tmp_path / "checkpoint")
    assert sorted(outlet.values(ROWS)) == list(range(ROWS))


def test_writes_of_foreach_batch_that_name_their_batch_go_out_once(
    spark: SparkSession, outlet: Outlet, tmp_path: Path
) -> None:
    """Spark does not let Python sinks take output mode "update": this is the way to publish it."""
    fails = [True, False]

    def publish(rows: DataFrame, batch: int) -> None:
        save(rows, outlet.address, query="sums", batch=str(batch))
        if fails.pop(0):
            raise RuntimeError("the driver fails here")

    totals = numbers(spark).groupBy("topic").agg({"value": "sum"}).toDF("topic", "value")
    for is_first in (True, False):
        writing = totals.writeStream.foreachBatch(publish).outputMode("update").trigger(once=True)
        query = writing.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
        if is_first:
            with pytest.raises(Exception, match="the driver fails here"):
                query.awaitTermination(120)
        else:
            assert query.awaitTermination(120)
    assert outlet.values(1) == [sum(range(ROWS))]
    stats = outlet.stats()
    assert (stats["batches_repeated"], stats["rows_published"]) == (1, 1)


def test_values_of_all_types_are_published_as_json(spark: SparkSession, outlet: Outlet) -> None:
    value = """
        struct(
            id, 1.5D AS real, 2.50BD AS price, true AS yes, 'a "text"' AS text, X'00ff' AS raw,
            timestamp'2024-05-01 12:00:00 UTC' AS at, date'2024-05-01' AS day,
            array(1, null) AS list, map('k', struct(1 AS a)) AS map, null AS nothing,
            parse_json('{"v": [1, true]}') AS variant
        ) AS value
    """
    save(spark.range(1).selectExpr("'out/types' AS topic", value), outlet.address)
    assert outlet.values(1) == [
        {
            "id": 0,
            "real": 1.5,
            "price": 2.5,
            "yes": True,
            "text": 'a "text"',
            "raw": base64.b64encode(b"\x00\xff").decode(),
            "at": "2024-05-01T12:00:00.000000Z",
            "day": "2024-05-01",
            "list": [1, None],
            "map": {"k": {"a": 1}},
            "nothing": None,
            "variant": {"v": [1, True]},
        }
    ]


def test_text_is_published_as_the_json_that_it_is_and_can_be_retained(
    spark: SparkSession, outlet: Outlet
) -> None:
    rows = spark.range(2).selectExpr("to_json(struct(id)) AS value", "id = 1 AS retain")
    save(rows, outlet.address, topic="out/text")
    assert sorted(outlet.values(2), key=str) == [{"id": 0}, {"id": 1}]
    late: list[jsonbus.Message] = []
    outlet.bus.subscribe("out/text", late.append)
    assert wait_until(lambda: late)
    assert (late[0].value, late[0].retained) == ({"id": 1}, True)


def test_a_text_that_is_no_json_fails_the_write_and_nothing_of_it_is_published(
    spark: SparkSession, outlet: Outlet
) -> None:
    rows = spark.range(0, 100, 1, 2).selectExpr(
        "'out/' || id AS topic", "if(id = 77, 'oops', '1') AS value"
    )
    with pytest.raises(Exception, match=r"topic 'out/77': the value 'oops' is not JSON .*to_json"):
        save(rows, outlet.address)
    assert wait_until(lambda: outlet.stats()["staged_rows"] == 0), "what others staged is left"
    assert outlet.stats()["rows_published"] == 0

    save(rows, outlet.address, onBadRow="skip")
    assert outlet.values(99) == [1] * 99
    assert outlet.stats()["rows_skipped"] == 1


def test_what_is_wrong_is_said_when_the_query_starts(
    spark: SparkSession, outlet: Outlet, tmp_path: Path
) -> None:
    with pytest.raises(Exception, match="there is no column value"):
        save(spark.range(1).selectExpr("'out/x' AS topic"), outlet.address)
    with pytest.raises(Exception, match="unknown option 'topics' of the sink: did you mean topic"):
        save(spark.range(1).selectExpr("id AS value"), outlet.address, topics="out/x")
    with pytest.raises(Exception, match="a bus cannot be overwritten"):
        rows = spark.range(1).selectExpr("'out/x' AS topic", "id AS value")
        rows.write.format("jsonbus").mode("overwrite").save()
    with pytest.raises(Exception, match="leave out the options query and batch"):
        writing = numbers(spark).writeStream.format("jsonbus").options(query="x", batch=1)
        writing.start(checkpointLocation=str(tmp_path / "other")).awaitTermination(120)
    with pytest.raises(Exception, match="column extra has no place on the bus"):
        rows = numbers(spark).selectExpr("*", "1 AS extra")
        run(rows, "jsonbus", outlet.address, tmp_path / "checkpoint")


def test_a_bridge_that_is_not_there_fails_the_write_with_its_address(spark: SparkSession) -> None:
    rows = spark.range(1).selectExpr("'out/x' AS topic", "id AS value")
    with pytest.raises(Exception, match=r"no bridge at 127\.0\.0\.1:1 for 0\.2 s"):
        save(rows, "127.0.0.1:1", connectTimeoutMs="200")
