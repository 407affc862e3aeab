"""Reads ranges of the log in a task: rows from the bridge, columns as Spark wants them.

A connection that breaks in the middle is no failure of the task: reading goes on behind the last
block that came whole. (In local mode Spark does not repeat a task that failed.)
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StringType, StructType

from .client import Patience
from .columns import arrow_schema, select, value_type
from .errors import CorruptBlockError, DataLossError, MisfitError, RefusedError, SourceError
from .json.values import ValueReader
from .offsets import Range, ahead, expired
from .options import FAILFAST, SourceOptions
from .planning import plan
from .process_pool import begin_task, warn_once

#: Blocks with fewer rows or bytes are joined: each batch costs Spark as much as hundreds of rows.
BATCH_ROWS_MIN = 2048
BATCH_BYTES_MIN = 4 << 20


def as_partitions(options: SourceOptions, ranges: list[Range]) -> list[InputPartition]:
    """Return what each task is to read, in a form that can be sent."""
    tasks = plan(ranges, options.min_partitions, options.max_rows_per_partition)
    return [InputPartition([tuple(each) for each in task]) for task in tasks]


def read_partition(
    options: SourceOptions, schema: StructType, partition: InputPartition
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a partition, in batches with the Arrow schema of `schema`."""
    if partition.value is None:
        return  # Spark makes one up when there is none
    begin_task()
    wanted = arrow_schema(schema)
    data_type = value_type(schema)
    reader = None
    if data_type is not None and not isinstance(data_type, StringType):
        reader = ValueReader(data_type, wanted.field("value").type)
    for each in partition.value:
        yield from _read_range(options, Range(*each), wanted, reader)


def _read_range(
    options: SourceOptions, part: Range, wanted: pa.Schema, reader: ValueReader | None
) -> Iterator[pa.RecordBatch]:
    misfits = 0
    for rows in _join(_read_blocks(options, part)):
        value = rows.column("value")
        if reader is not None:
            value, wrong = reader.read(value)
            if wrong and options.value_mode == FAILFAST:
                raise _misfit(part, rows, wrong[0])
            misfits += len(wrong)
        yield select(rows, part.partition, value, wanted)
    if misfits:
        _note_misfits(options, part, misfits)


def on_loss(options: SourceOptions, cause: str, fact: str, advice: str) -> None:
    """Raise DataLossError, or warn if the query is to go on."""
    if options.fail_on_data_loss:
        raise DataLossError(f"{fact}; {advice}")
    warn_once(cause, f"the query goes on (failOnDataLoss=false), but {fact}")


def _read_blocks(options: SourceOptions, part: Range) -> Iterator[pa.RecordBatch]:
    endpoint = options.endpoint(part.address)
    patience = Patience(endpoint)
    start, end = part.start, part.end
    while start < end:
        try:
            with endpoint.borrow() as connection:
                if connection.log_id != part.epoch:
                    on_loss(options, f"replaced {part.epoch}", *_replaced(part, connection.log_id))
                    return
                for block, rows in connection.read(
                    part.partition, start, end, options.topics, options.include_gaps
                ):
                    patience.succeeded()
                    start = block.end
                    yield rows
                return
        except RefusedError as refused:
            if refused.code == "out_of_range":
                start, end = _clip(options, part, start, end, refused)
            else:
                time.sleep(patience.failed(refused))
        except (OSError, CorruptBlockError) as error:
            time.sleep(patience.failed(error))


def _clip(
    options: SourceOptions, part: Range, start: int, end: int, refused: RefusedError
) -> tuple[int, int]:
    """Return what is left of the range, by what the bridge has; calls on_loss if that is less."""
    first, last = int(refused.facts["first"]), int(refused.facts["end"])
    if start < first:
        told = expired(part.address, part.partition, start, first)
    elif end > last:
        told = ahead(part.address, part.partition, end, last)
    else:
        raise SourceError(str(refused)) from refused
    on_loss(options, f"range {part.epoch} {part.partition}", *told)
    return max(start, first), min(end, last)


def _join(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the same rows, with small batches joined."""
    held: list[pa.RecordBatch] = []
    rows = size_bytes = 0
    for batch in batches:
        if not held and batch.num_rows >= BATCH_ROWS_MIN:
            yield batch
            continue
        held.append(batch)
        rows += batch.num_rows
        size_bytes += batch.nbytes
        if rows >= BATCH_ROWS_MIN or size_bytes >= BATCH_BYTES_MIN:
            yield _combine(held)
            held = []
            rows = size_bytes = 0
    if held:
        yield _combine(held)


def _combine(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    if len(batches) == 1:
        return batches[0]
    (combined,) = pa.Table.from_batches(batches).combine_chunks().to_batches()
    return combined


def _misfit(part: Range, rows: pa.RecordBatch, row: int) -> MisfitError:
    topic, offset = rows.column("topic")[row].as_py(), rows.column("offset")[row].as_py()
    text = rows.column("value")[row].as_py()
    shown = text if len(text) <= 200 else text[:200] + "…"
    return MisfitError(
        f"the value of topic {topic} at offset {offset} of partition {part.partition} "
        f"(bridge {part.address}) does not fit the schema of the column value: {shown}. Correct "
        "the option valueSchema, or set valueMode=PERMISSIVE to get null for such values"
    )


def _note_misfits(options: SourceOptions, part: Range, count: int) -> None:
    """Report them to the bridge, which counts them. Not a reason to fail a task that has all
    its rows.
    """
    warn_once(
        f"misfits {part.address} {options.group}",
        f"{count} values of partition {part.partition} (bridge {part.address}) do not fit the "
        "schema of the column value and are null; the bridge counts them",
    )
    body = {"op": "note", "group": options.group, "misfits": count}
    try:
        options.endpoint(part.address).tell(body, part.epoch)
    except (SourceError, OSError) as error:
        warn_once("note", f"could not tell the bridge of {count} misfits: {error}")


def _replaced(part: Range, log_id: str) -> tuple[str, str]:
    return (
        f"the bridge at {part.address} has another log ({log_id}) than the one that a batch was "
        f"planned for ({part.epoch})",
        "bring its directory back, or set failOnDataLoss=false to go on without those rows",
    )
