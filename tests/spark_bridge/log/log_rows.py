"""Rows for logs: made, appended, and read back as plain Python."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Any

import pyarrow as pa

from spark_bridge.log.block import ROWS_WITHOUT_OFFSET, decode_rows, is_intact, parse_header
from spark_bridge.log.offset_log import FileRun, OffsetLog, Piece

SECOND_US = 1_000_000


def make_row(value: str | None, topic: str | None = "t", at_us: int = 0, gap: int | None = None):
    """One row without an offset."""
    return {
        "topic": topic,
        "value": value,
        "node": "node",
        "incarnation": 1,
        "sequence": None,
        "timestamp": at_us,
        "received_at": at_us,
        "retained": False,
        "gap": gap,
    }


def make_batch(rows: Iterable[dict[str, Any]]) -> pa.RecordBatch:
    """Rows as the log takes them."""
    return pa.RecordBatch.from_pylist(list(rows), schema=ROWS_WITHOUT_OFFSET)


def make_values(*values: str, at_us: int = 0) -> pa.RecordBatch:
    """Rows of one topic that differ in their values."""
    return make_batch(make_row(each, at_us=at_us) for each in values)


def bytes_of(piece: Piece) -> bytes:
    """The blocks of a piece, as a client gets them."""
    if isinstance(piece, FileRun):
        return os.pread(piece.file.fileno(), piece.length, piece.position)
    return piece


def rows_of(piece: Piece) -> list[dict[str, Any]]:
    """The rows of a piece; every block in it must be whole."""
    data = bytes_of(piece)
    rows: list[dict[str, Any]] = []
    while data:
        header = parse_header(data)
        assert header is not None
        block, data = data[: header.size_bytes], data[header.size_bytes :]
        assert is_intact(block, header)
        found = decode_rows(block, header).to_pylist()
        assert len(found) == header.rows
        assert all(header.first <= row["offset"] < header.end for row in found)
        rows.extend(found)
    if isinstance(piece, FileRun):
        assert piece.rows == len(rows)
    return rows


def read_rows(
    log: OffsetLog,
    partition: int = 0,
    start: int | None = None,
    end: int | None = None,
    *,
    wants: Callable[[str], bool] | None = None,
    gaps: bool = False,
) -> list[dict[str, Any]]:
    """The rows of a range; of everything that is there, if none is given."""
    start = log.first()[partition] if start is None else start
    end = log.end()[partition] if end is None else end
    pieces = log.read(partition, start, end, wants=wants, gaps=gaps)
    return [row for piece in pieces for row in rows_of(piece)]


def read_values(log: OffsetLog, partition: int = 0, **options: Any) -> dict[int, str]:
    """The values that are there, by offset."""
    return {row["offset"]: row["value"] for row in read_rows(log, partition, **options)}
