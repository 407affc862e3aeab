"""A sink whose commit can be held up: time to kill somebody."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

PAUSE_S_MAX = 120.0


def make_pausing_source(folder: Path) -> type:
    """`format("pausing")`: the sink of format("jsonbus"), but for its commit.

    That makes the file `reached` and waits for the file `go`; if there is a file `fail` it fails
    when the batch is published. Local classes travel to Spark's processes by value.
    """
    from spark_bridge.source.datasource import JsonBusDataSource
    from spark_bridge.source.writer import JsonBusStreamWriter

    reached, go, fail = (str(folder / name) for name in ("reached", "go", "fail"))
    pause_s_max = PAUSE_S_MAX

    class PausingWriter(JsonBusStreamWriter):
        def commit(self, messages: list[Any], batchId: int) -> None:
            Path(reached).touch()
            deadline = time.monotonic() + pause_s_max
            while not Path(go).exists() and time.monotonic() < deadline:
                time.sleep(0.01)
            super().commit(messages, batchId)
            if Path(fail).exists():
                raise RuntimeError("the driver fails here")

    class PausingSource(JsonBusDataSource):
        @classmethod
        def name(cls) -> str:
            return "pausing"

        def streamWriter(self, schema: Any, overwrite: bool) -> Any:
            return PausingWriter(self.options, schema)

    return PausingSource


def make_row_source() -> type:
    """`format("by-rows")`: a stream written as with PySpark 4.0, which has no Arrow writer."""
    from pyspark.sql.datasource import DataSourceStreamWriter

    from spark_bridge.source.datasource import JsonBusDataSource
    from spark_bridge.source.writer import JsonBusStreamWriter, _as_batches

    class RowWriter(DataSourceStreamWriter):
        def __init__(self, inner: JsonBusStreamWriter) -> None:
            self._inner = inner

        def write(self, iterator: Iterator[Any]) -> Any:
            return self._inner.write(_as_batches(iterator, self._inner._schema))

        def commit(self, messages: list[Any], batchId: int) -> None:
            self._inner.commit(messages, batchId)

    class RowSource(JsonBusDataSource):
        @classmethod
        def name(cls) -> str:
            return "by-rows"

        def streamWriter(self, schema: Any, overwrite: bool) -> Any:
            return RowWriter(JsonBusStreamWriter(self.options, schema))

    return RowSource
