"""The sink: each task stages its rows at the bridge, the driver has the batch published.

A task stages under the query's id, which is kept in its checkpoint, and the batch's number. The
bridge publishes a batch when the driver commits it, and remembers the last one of each query: what
Spark repeats after a crash goes out once. What no driver commits is never published.

The commit runs in a process that knows neither the query nor the tasks, but for what the tasks'
messages tell. A batch without rows has nothing to tell, and nothing to be published.
"""

from __future__ import annotations

import secrets
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import Row, StructType

from .errors import OptionError, SourceError
from .process_pool import begin_task, warn_once
from .sink_options import SinkColumns, find_columns, parse_sink_options

try:
    from pyspark.sql.datasource import DataSourceStreamArrowWriter as _StreamWriter

    TAKES_ARROW = True
except ImportError:  # before 4.1 a stream is written by rows
    from pyspark.sql.datasource import (  # type: ignore[assignment]
        DataSourceStreamWriter as _StreamWriter,
    )

    TAKES_ARROW = False
try:
    from pyspark.sql.conversion import LocalDataToArrowConversion
except ImportError:  # its place in 4.0
    from pyspark.sql.connect.conversion import (  # type: ignore[attr-defined, no-redef]
        LocalDataToArrowConversion,
    )

#: The most that is staged in one request, uncompressed: a task needs memory for a few of these,
#: however large its partition is.
PART_BYTES = 8 << 20

#: Rows per batch where Spark gives single rows.
BATCH_ROWS = 10_000

#: A bridge answers when the rows are on its disk, or on the bus. Rows wait for those of others, and
#: a large batch takes long: some 10,000 rows a second.
STAGE_WAIT_S = 120.0
PUBLISH_WAIT_S = 900.0
#: Nobody waits for a batch to be discarded: what is left expires.
DISCARD_S = 5.0

#: How the bridge recognizes ids of single writes.
WRITE_PREFIX = "write-"

_WRITE_OPTIONS = {"compression": "lz4"}


@dataclass(frozen=True)
class Staged(WriterCommitMessage):
    """The rows that one task staged: the driver names them when it commits."""

    query: str
    partition: int
    attempt: int
    rows: int
    skipped: int


class _Writer:
    """The common part of both writers. Raises OptionError if an option or a column is wrong."""

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        self._options = parse_sink_options(options)
        [self._endpoint] = self._options.endpoints
        self._columns = find_columns(schema, self._options)
        self._schema = schema

    def _stage(self, batches: Iterable[pa.RecordBatch], query: str, batch: int, run: str) -> Staged:
        """Stage the rows of this task."""
        begin_task()
        partition = _task().partitionId()
        # Not the number of Spark's attempt, which restarts with the driver: rows from a task of a
        # killed driver must not get into ours.
        attempt = secrets.randbits(53)
        task = {"query": query, "batch": batch, "partition": partition, "attempt": attempt}
        place = {"op": "stage", **task, "run": run, "skip_bad": self._options.on_bad_row == "skip"}
        rows = skipped = 0
        for number, part in enumerate(_gather(self._columns, batches)):
            body = _encode(part)
            request = {**place, "part": number, "bytes": len(body)}
            kept = self._endpoint.ask(request, None, STAGE_WAIT_S, body)["rows"]
            rows += kept
            skipped += sum(each.num_rows for each in part) - kept
        return Staged(query, partition, attempt, rows, skipped)

    def _publish(self, messages: list[Any], batch: int) -> None:
        staged = [each for each in messages if each is not None]
        skipped = sum(each.skipped for each in staged)
        if skipped:
            warn_once(
                f"skipped {staged[0].query}",
                f"{skipped:,} rows of batch {batch} are not published: their topic is not valid or "
                "their value no JSON text (onBadRow=skip; this is said once)",
            )
        partitions = [[each.partition, each.attempt] for each in staged if each.rows]
        if partitions:
            request = {"op": "publish", "query": staged[0].query, "batch": batch}
            self._endpoint.ask({**request, "partitions": partitions}, None, PUBLISH_WAIT_S)

    def _discard(self, messages: list[Any], batch: int, own_query: str | None = None) -> None:
        queries = {each.query for each in messages if each is not None and each.rows}
        if own_query is not None:
            queries.add(own_query)  # a task that Spark killed staged rows and sent no message
        for query in queries:
            try:
                endpoint = self._endpoint._replace(timeout_s=DISCARD_S)
                endpoint.tell({"op": "discard", "query": query, "batch": batch})
            except (OSError, SourceError) as error:
                warn_once("discard", f"batch {batch} could not be discarded at the bridge: {error}")


class JsonBusStreamWriter(_Writer, _StreamWriter):
    """Writes a streaming query to the bus: each batch once."""

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        super().__init__(options, schema)
        if self._options.query is not None:
            raise OptionError(
                "a streaming query has an id and batches of its own: leave out the options query "
                "and batch, which are for df.write"
            )

    def write(self, iterator: Iterator[Any]) -> Staged:
        """Stage the rows of a task, which come as Arrow batches, before 4.1 one by one."""
        find = _task().getLocalProperty
        query, batch = find("sql.streaming.queryId"), find("streaming.sql.batchId")
        if query is None or batch is None:
            raise SourceError("this task does not know its query: use df.write outside of streams")
        # A stream's job group is the id of its run.
        run = find("spark.jobGroup.id") or query
        batches = iterator if TAKES_ARROW else _as_batches(iterator, self._schema)
        return self._stage(batches, query, int(batch), run)

    def commit(self, messages: list[Any], batchId: int) -> None:
        """Publish the batch, unless it is on the bus already."""
        self._publish(messages, batchId)

    def abort(self, messages: list[Any], batchId: int) -> None:
        """Forget what was staged; a batch that is being published goes on."""
        self._discard(messages, batchId)


class JsonBusBatchWriter(_Writer, DataSourceArrowWriter):
    """Writes a DataFrame to the bus: all of it, once every task has staged its rows, or nothing.

    With the options query and batch it is a batch of that query, and goes out once however often it
    is written: for foreachBatch, which runs again after a crash.
    """

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        super().__init__(options, schema)
        # Made on the driver, and sent with the writer to the tasks.
        self._run = WRITE_PREFIX + uuid.uuid4().hex
        self._query = self._options.query or self._run
        self._batch = self._options.batch or 0

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        """Stage the rows of a task."""
        return self._stage(iterator, self._query, self._batch, self._run)

    def commit(self, messages: list[Any]) -> None:
        """Publish what all tasks staged."""
        self._publish(messages, self._batch)

    def abort(self, messages: list[Any]) -> None:
        """Forget what was staged."""
        self._discard(messages, self._batch, self._query)


def _task() -> TaskContext:
    context = TaskContext.get()
    assert context is not None, "only tasks write"
    return context


def _gather(
    columns: SinkColumns, batches: Iterable[pa.RecordBatch]
) -> Iterator[list[pa.RecordBatch]]:
    """Return the rows as they travel, in parts of about PART_BYTES."""
    part: list[pa.RecordBatch] = []
    size_bytes = 0
    for batch in batches:
        for piece in _split(columns.shape(batch)):
            part.append(piece)
            size_bytes += piece.nbytes
            if size_bytes >= PART_BYTES:
                yield part
                part, size_bytes = [], 0
    if part:
        yield part


def _split(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Split the batch into pieces that are not too large, unless a single row is; none if it is
    empty.
    """
    if batch.num_rows > 1 and batch.nbytes > PART_BYTES:
        half = batch.num_rows // 2
        yield from _split(batch.slice(0, half))
        yield from _split(batch.slice(half))
    elif batch.num_rows:
        yield batch


def _encode(part: list[pa.RecordBatch]) -> bytes:
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(**_WRITE_OPTIONS)
    with pa.ipc.new_stream(sink, part[0].schema, options=options) as writer:
        for each in part:
            writer.write_batch(each)
    return bytes(sink.getvalue())


def _as_batches(rows: Iterator[Row], schema: StructType) -> Iterator[pa.RecordBatch]:
    while chunk := list(islice(rows, BATCH_ROWS)):
        yield from LocalDataToArrowConversion.convert(chunk, schema, False).to_batches()
