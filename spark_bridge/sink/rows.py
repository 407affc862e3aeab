"""Rows on their way to the bus: checked when they are staged, read when they are published.

They travel and are kept as an Arrow IPC stream with the columns topic, value (JSON text, null for
JSON's null) and optionally retain. All that the bus could refuse is looked for before a row is
kept: a batch that is on its way out must not stop in the middle because of one row.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from jsonbus import topic_matches
from jsonbus.errors import InvalidTopicError

from ..errors import RequestError

#: Shorter text cannot be nested too deeply to be written again: orjson reads 1,024 levels and
#: writes 254, and a level takes two characters.
_DEEP_CHARACTERS = 508

_TEXTS = (pa.string(), pa.large_string(), pa.null())
_WRITE_OPTIONS = pa.ipc.IpcWriteOptions(compression="lz4")


class CheckedRows(NamedTuple):
    """An Arrow stream whose rows can all be published."""

    rows: int
    body: bytes
    skipped: int  # rows that were left out


def check_rows(body: bytes, *, value_bytes_max: int, skip_bad: bool = False) -> CheckedRows:
    """Check rows that a client sent. `skip_bad` leaves out those that the bus would refuse.

    Raises RequestError with the row (the first is 1), its topic and the reason if there is such a
    row, or with the column that is missing or has the wrong type.
    """
    topics: dict[str | None, str | None] = {}
    kept, rows, skipped = [], 0, 0
    for batch in _read_batches(body):
        faults = dict(_find_faults(batch, topics, value_bytes_max))
        if faults and not skip_bad:
            index = min(faults)
            topic = batch.column("topic")[index].as_py()
            raise RequestError(f"row {rows + index + 1}, topic {topic!r}: {faults[index]}")
        if faults:
            batch = batch.filter(pa.array([each not in faults for each in range(batch.num_rows)]))
        rows += batch.num_rows
        skipped += len(faults)
        kept.append(batch)
    return CheckedRows(rows, _write_batches(kept) if skipped else body, skipped)


def read_rows(body: bytes) -> Iterator[tuple[str, Any, bool]]:
    """Yield (topic, value, retain) of checked rows, in order."""
    for batch in _read_batches(body):
        topics = batch.column("topic").to_pylist()
        texts = batch.column("value").to_pylist()
        if "retain" in batch.schema.names:
            retains = batch.column("retain").to_pylist()
        else:
            retains = [False] * batch.num_rows
        for topic, text, retain in zip(topics, texts, retains, strict=True):
            yield topic, None if text is None else orjson.loads(text), bool(retain)


def _read_batches(body: bytes) -> Iterator[pa.RecordBatch]:
    try:
        with pa.ipc.open_stream(body) as reader:
            _check_columns(reader.schema)
            for batch in reader:
                batch.validate(full=True)
                yield batch
    except (pa.ArrowException, OSError) as error:
        raise RequestError(f"the rows are no Arrow stream that can be read: {error}") from error


def _write_batches(batches: list[pa.RecordBatch]) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batches[0].schema, options=_WRITE_OPTIONS) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return bytes(sink.getvalue())


def _check_columns(schema: pa.Schema) -> None:
    types = dict(zip(schema.names, schema.types, strict=True))
    if len(types) < len(schema.names) or types.keys() - {"topic", "value", "retain"}:
        raise RequestError(
            f"the columns are {', '.join(schema.names)}: they have to be topic, value and, "
            "optionally, retain"
        )
    for name in ("topic", "value"):
        if types.get(name) not in _TEXTS:
            raise RequestError(f"column {name} has the type {types.get(name)}, not string")
    if types.get("retain", pa.bool_()) != pa.bool_():
        raise RequestError(f"column retain has the type {types['retain']}, not bool")


def _find_faults(
    batch: pa.RecordBatch, topics: dict[str | None, str | None], value_bytes_max: int
) -> Iterator[tuple[int, str]]:
    """Yield (index, reason) of rows that the bus would refuse; a row may come twice.

    `topics` caches the result for each topic.
    """
    names = batch.column("topic")
    for topic in pc.unique(names).to_pylist():
        if topic not in topics:
            topics[topic] = _topic_fault(topic)
    if any(topics.values()):
        for index, topic in enumerate(names.to_pylist()):
            fault = topics[topic]
            if fault is not None:
                yield index, fault
    for index, text in enumerate(batch.column("value").to_pylist()):
        fault = None if text is None else _value_fault(text, value_bytes_max)
        if fault is not None:
            yield index, fault


def _topic_fault(topic: str | None) -> str | None:
    if topic is None:
        return "the topic is null"
    try:
        topic_matches("**", topic)
    except InvalidTopicError as error:
        return f"the topic is not valid: {error.reason}"
    return None


def _value_fault(text: str, value_bytes_max: int) -> str | None:
    try:
        value = orjson.loads(text)
    except ValueError as error:
        return f"the value {_shorten(text)} is not JSON text ({error}): make it with to_json()"
    if len(text) < _DEEP_CHARACTERS:
        return None
    try:
        size_bytes = len(orjson.dumps(value))
    except TypeError:
        return "the value is nested too deeply: make it flatter"
    if size_bytes > value_bytes_max:
        return (
            f"the value takes {size_bytes:,} bytes, at most {value_bytes_max:,} are allowed: "
            "make it smaller, or split it"
        )
    return None


def _shorten(text: str) -> str:
    return repr(text if len(text) <= 40 else text[:39] + "…")
