"""A streaming query without Spark: its calls of the reader, and a checkpoint."""

from __future__ import annotations

import json
from typing import Any

from pyspark.sql.types import IntegerType, LongType, StringType, StructType

from spark_bridge.source.datasource import JsonBusDataSource
from spark_bridge.source.stream_reader import JsonBusStreamReader
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
