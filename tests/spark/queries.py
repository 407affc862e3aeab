"""Streaming queries on a bridge, started and watched."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.helpers import wait_until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

#: On a machine with more to do than it can.
TIMEOUT_S = 120.0


def read_stream(
    spark: SparkSession, address: str, schema: str | None = None, **options: Any
) -> DataFrame:
    """The rows of a bridge from the first one on, if nothing else is said."""
    reader = spark.readStream.format("jsonbus").option("bridge", address)
    if schema is not None:
        reader = reader.schema(schema)
    return reader.options(**{"startingOffsets": "earliest", **options}).load()


def read_batch(
    spark: SparkSession, address: str, schema: str | None = None, **options: Any
) -> DataFrame:
    """The rows of a bridge that are there now."""
    reader = spark.read.format("jsonbus").option("bridge", address)
    if schema is not None:
        reader = reader.schema(schema)
    return reader.options(**options).load()


@contextmanager
def running(
    frame: DataFrame, take: Callable[[list[Any]], None], checkpoint: Path, **trigger: Any
) -> Iterator[StreamingQuery]:
    """A query that hands its rows to `take`, batch by batch."""

    def take_batch(batch: DataFrame, batch_id: int) -> None:
        take(batch.collect())

    writer = frame.writeStream.foreachBatch(take_batch)
    writer = writer.option("checkpointLocation", str(checkpoint))
    query = (writer.trigger(**trigger) if trigger else writer).start()
    try:
        yield query
    finally:
        query.stop()


def run_available(frame: DataFrame, checkpoint: Path) -> tuple[list[Any], list[int]]:
    """Everything that is there, by Trigger.AvailableNow; and how many rows each batch had."""
    rows: list[Any] = []
    with running(frame, rows.extend, checkpoint, availableNow=True) as query:
        assert query.awaitTermination(TIMEOUT_S)
        counts = [progress["numInputRows"] for progress in query.recentProgress]
    return rows, counts


def wait_for(query: StreamingQuery, condition: Callable[[], object]) -> None:
    """Wait until the condition holds; a query that fails meanwhile is told with its reason."""

    def is_over() -> bool:
        return bool(condition()) or not query.isActive

    assert wait_until(is_over, TIMEOUT_S), query.status
    if not condition():
        raise AssertionError(f"the query ended: {query.exception()}")


def why_it_fails(frame: DataFrame, checkpoint: Path) -> str:
    """The reason with which a query on the frame ends."""
    from pyspark.errors import StreamingQueryException

    try:
        run_available(frame, checkpoint)
    except StreamingQueryException as error:
        return str(error)
    raise AssertionError("the query did not fail")
