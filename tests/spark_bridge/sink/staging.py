"""Rows as a task of Spark stages them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa


def arrow_stream(columns: dict[str, pa.Array], rows_per_batch: int = 1_000_000) -> bytes:
    """An Arrow IPC stream with these columns."""
    table = pa.table(columns)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=rows_per_batch)
    return bytes(sink.getvalue())


def text_rows(
    topics: Sequence[str | None], texts: Sequence[str | None], retain: Sequence[bool | None] = ()
) -> bytes:
    """Rows with these texts as values."""
    columns = {"topic": pa.array(topics, pa.string()), "value": pa.array(texts, pa.string())}
    if retain:
        columns["retain"] = pa.array(retain, pa.bool_())
    return arrow_stream(columns)


def value_rows(values: Iterable[Any], topic: str = "results") -> bytes:
    """Rows with these values, all under one topic."""
    texts = [json.dumps(value) for value in values]
    return text_rows([topic] * len(texts), texts)
