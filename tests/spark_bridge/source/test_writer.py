"""The writers' way of making parts of rows, without Spark."""

from __future__ import annotations

import datetime as dt
import os
from decimal import Decimal

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DecimalType,
    MapType,
    Row,
    StringType,
    StructType,
    TimestampType,
)

from spark_bridge import wire
from spark_bridge.sink import store
from spark_bridge.sink.rows import check_rows, read_rows
from spark_bridge.source import writer
from spark_bridge.source.sink_options import SinkColumns, find_columns, parse_sink_options
from spark_bridge.source.writer import _as_batches, _encode, _gather


def columns(schema: StructType) -> SinkColumns:
    return find_columns(schema, parse_sink_options({"topic": "t"}))


TEXT = columns(StructType().add("value", "string"))


def parts_of(*batches: pa.RecordBatch) -> list[list[int]]:
    """How many rows the batches of each part have."""
    return [[each.num_rows for each in part] for part in _gather(TEXT, batches)]


def test_small_batches_share_a_part() -> None:
    batch = pa.record_batch({"value": ["1", "2"]})
    assert parts_of(batch, batch, batch) == [[2, 2, 2]]


def test_without_rows_there_is_no_part() -> None:
    assert parts_of() == []
    assert parts_of(pa.record_batch({"value": pa.array([], pa.string())})) == []


def test_a_large_batch_is_split_into_parts_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "PART_BYTES", 10_000)
    texts = [f'"{number:05}{"x" * 100}"' for number in range(1000)]
    parts = list(_gather(TEXT, [pa.record_batch({"value": texts})]))
    assert len(parts) > 5
    assert all(sum(each.nbytes for each in part) < 20_000 for part in parts)
    sent = [value for part in parts for _, value, _ in read_rows(_encode(part))]
    assert [int(value[:5]) for value in sent] == list(range(1000))


def test_a_row_that_is_larger_than_a_part_is_a_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "PART_BYTES", 1_000)
    batch = pa.record_batch({"value": ["1", "2" * 5000, "3"]})
    assert sum(sum(part) for part in parts_of(batch)) == 3


def test_the_bridge_takes_what_the_writer_sends() -> None:
    [part] = _gather(TEXT, [pa.record_batch({"value": ["1", None]})])
    body = _encode(part)
    assert check_rows(body, value_bytes_max=100).rows == 2
    assert list(read_rows(body)) == [("t", 1, False), ("t", None, False)]


def test_both_halves_agree_on_what_they_do_not_share() -> None:
    assert writer.WRITE_PREFIX == store.WRITE_PREFIX
    assert 8 * writer.PART_BYTES <= wire.STAGE_BYTES_MAX


@pytest.mark.skipif(os.name != "posix", reason="time zones are set the POSIX way")
def test_single_rows_become_the_same_json_as_arrow_batches() -> None:
    """The way of PySpark 4.0, which has no Arrow writer for streams."""
    kind = (
        StructType()
        .add("text", StringType())
        .add("at", TimestampType())
        .add("price", DecimalType(5, 2))
        .add("raw", BinaryType())
        .add("tags", MapType(StringType(), ArrayType(StringType())))
    )
    at = dt.datetime(2024, 5, 1, 12, tzinfo=dt.UTC).astimezone().replace(tzinfo=None)
    row = Row(value=Row("a", at, Decimal("1.5"), bytearray(b"ab"), {"k": ["v", None]}))
    schema = StructType().add("value", kind)
    batches = _as_batches(iter([row, Row(value=None)]), schema)
    [part] = _gather(columns(schema), batches)
    assert [value for _, value, _ in read_rows(_encode(part))] == [
        {
            "text": "a",
            "at": "2024-05-01T12:00:00.000000Z",
            "price": 1.5,
            "raw": "YWI=",
            "tags": {"k": ["v", None]},
        },
        None,
    ]


def test_many_single_rows_become_several_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "BATCH_ROWS", 4)
    schema = StructType().add("value", StringType())
    batches = list(_as_batches(iter([Row(value=str(n)) for n in range(10)]), schema))
    assert [each.num_rows for each in batches] == [4, 4, 2]
