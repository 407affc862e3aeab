"""The driver of tests on a cluster: a query into Parquet that tells which executor read what.

Its one argument is a JSON object: `master`, `config`, `by_value`, `bridge`, `folder`. When the
query runs it prints a line; then, for each line on standard input, it waits until everything that
is there has been processed, and prints how many rows each executor wrote, by its process id.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.functions import udf

from spark_bridge.spark import session


def main() -> None:
    settings = json.loads(sys.argv[1])
    spark = session(
        "cluster",
        master=settings["master"],
        config=settings["config"],
        by_value=settings["by_value"],
    )
    rows = (
        spark.readStream.format("jsonbus")
        .option("bridge", settings["bridge"])
        .option("startingOffsets", "earliest")
        .option("minPartitions", "4")  # else one task reads the few rows of all partitions
        .load()
    )
    query = (
        rows.withColumn("executor", executor()())
        .writeStream.format("parquet")
        .option("checkpointLocation", settings["folder"] + "/checkpoint")
        .start(settings["folder"] + "/rows")
    )
    say({"imports": try_imports(spark)})
    for _ in sys.stdin:
        query.processAllAvailable()
        written = spark.read.parquet(settings["folder"] + "/rows").select("executor").collect()
        say(Counter(row["executor"] for row in written))
    query.stop()
    spark.stop()


def executor() -> Any:
    """A column: the process that the row was read in. Beside the scan, in the same task."""

    def find() -> int:
        import os
        from pathlib import Path

        # This worker was forked by a daemon, which the executor started.
        daemon = os.getppid()
        return int(Path(f"/proc/{daemon}/stat").read_text().rpartition(")")[2].split()[1])

    return udf(find, "int").asNondeterministic()


def try_imports(spark: SparkSession) -> list[str]:
    """What importing the package gives, by executor."""

    def attempt(_: Any) -> list[str]:
        try:
            import spark_bridge
        except ImportError as error:
            return [type(error).__name__]
        return [spark_bridge.__name__]

    return sorted(set(spark.sparkContext.parallelize(range(4), 4).mapPartitions(attempt).collect()))


def say(result: object) -> None:
    print(json.dumps(result), flush=True)  # noqa: T201 (the test reads it)


if __name__ == "__main__":
    main()
