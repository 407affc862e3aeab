"""A client of a Connect server: what is in the log, read in batch and as a stream.

Arguments: where the server is, the address of the bridge, a folder that the server can write to.
Prints the rows of both, and what importing the package gives on the server.
"""

from __future__ import annotations

import json
import sys

from pyspark.sql import SparkSession
from pyspark.sql.functions import udf

import spark_bridge


def main(remote: str, bridge: str, folder: str) -> None:
    spark = SparkSession.builder.remote(remote).getOrCreate()
    spark_bridge.register(spark, by_value=True)
    batch = spark.read.format("jsonbus").option("bridge", bridge).load()
    in_batch = [list(row) for row in batch.select("topic", "value").sort("offset").collect()]
    stream = (
        spark.readStream.format("jsonbus")
        .option("bridge", bridge)
        .option("startingOffsets", "earliest")
        .load()
    )
    query = (
        stream.select("topic", "value", "offset")
        .writeStream.format("parquet")
        .option("checkpointLocation", folder + "/checkpoint")
        .trigger(availableNow=True)
        .start(folder + "/rows")
    )
    query.awaitTermination()
    rows = spark.read.parquet(folder + "/rows").sort("offset")
    streamed = [list(row) for row in rows.select("topic", "value").collect()]

    @udf("string")
    def try_import() -> str:
        try:
            import spark_bridge
        except ImportError as error:
            return type(error).__name__
        return spark_bridge.__name__

    imported = spark.range(1).select(try_import()).collect()[0][0]
    result = {"batch": in_batch, "stream": streamed, "import": imported}
    print(json.dumps(result), flush=True)  # noqa: T201 (the test reads it)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
