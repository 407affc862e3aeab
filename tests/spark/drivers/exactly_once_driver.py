"""The driver that is killed: two queries from one bridge, into Parquet and into SQLite.

Arguments: the address of the bridge, and the folder for everything. Each query has a checkpoint and
is supervised, so it outlives a bridge that is away; what outlives this process is in the folder.

SQLite stands for any store with transactions: the rows of a batch and the number of the batch go
in together, so a batch that Spark repeats, since it was killed before it knew of the commit, is
found to be there already.
"""

from __future__ import annotations

import contextlib
import sqlite3
import sys
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from spark_bridge.spark import session, supervise

#: What tells a row from all others, and what it carries.
COLUMNS = ("topic", "value", "partition", "offset")

#: Leaves the processor to whoever is still starting: without it one query never rests.
EVERY = "200 milliseconds"


def main(bridge: str, folder: Path, java_options: str) -> None:
    spark = session(
        "exactly once",
        master="local[2]",
        config={
            "spark.driver.extraJavaOptions": java_options,
            "spark.sql.warehouse.dir": str(folder / "warehouse"),
        },
    )
    prepare_store(folder / "rows.sqlite")

    def start_parquet() -> StreamingQuery:
        rows = read(spark, bridge, "parquet")
        writer = rows.writeStream.format("parquet").option("path", str(folder / "rows.parquet"))
        writer = writer.option("checkpointLocation", str(folder / "parquet"))
        return writer.trigger(processingTime=EVERY).start()

    def start_store() -> StreamingQuery:
        def store(rows: DataFrame, batch: int) -> None:
            store_batch(folder / "rows.sqlite", batch, rows)

        writer = read(spark, bridge, "sqlite").writeStream.foreachBatch(store)
        writer = writer.option("checkpointLocation", str(folder / "sqlite"))
        return writer.trigger(processingTime=EVERY).start()

    supervisors = [
        supervise(start, restarts_max=100, backoff_s=0.1, backoff_max_s=1.0)
        for start in (start_parquet, start_store)
    ]
    for supervisor in supervisors:
        supervisor.wait()


def read(spark: SparkSession, bridge: str, group: str) -> DataFrame:
    source = spark.readStream.format("jsonbus").option("bridge", bridge).option("group", group)
    return source.option("startingOffsets", "earliest").load().select(*COLUMNS)


def prepare_store(path: Path) -> None:
    with contextlib.closing(sqlite3.connect(path)) as store, store:
        store.execute("CREATE TABLE IF NOT EXISTS batches (number INTEGER PRIMARY KEY)")
        # No key on purpose: a row that comes twice is to be seen twice.
        store.execute(f"CREATE TABLE IF NOT EXISTS rows ({', '.join(map(repr, COLUMNS))})")


def store_batch(path: Path, number: int, rows: DataFrame) -> None:
    collected = rows.collect()
    with contextlib.closing(sqlite3.connect(path)) as store, store:
        if store.execute("SELECT 1 FROM batches WHERE number = ?", [number]).fetchone():
            return
        store.execute("INSERT INTO batches VALUES (?)", [number])
        store.executemany("INSERT INTO rows VALUES (?, ?, ?, ?)", collected)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3])
