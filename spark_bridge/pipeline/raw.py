"""Everything as it came, in Parquet: `output/raw/date=2026-01-31/topic=sensors%2Fkitchen/…`.

The date is that of reception (UTC): a sensor with a wrong clock does not scatter files over the
centuries. Spark escapes what a path cannot hold, and undoes it when it reads. But a name in a
folder has at most 255 bytes, and a topic of that length becomes longer by escaping; it gets a short
name made of its beginning and a hash, and is kept whole in the column `long_topic`.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

FOLDER = "raw"

#: Bytes of an escaped topic in a path; "topic=" precedes it.
NAME_BYTES_MAX = 240
#: Characters of a long topic that stay readable; each takes up to four bytes.
PREFIX_CHARACTERS = 40

#: Characters that may be escaped, each to three bytes. More than Spark escapes: that does no harm.
_NOT_ESCAPED = r"[A-Za-z0-9_.~-]|[^\x00-\x7F]"

_SCHEMA = """
    value STRING, node STRING, incarnation BIGINT, sequence BIGINT, timestamp TIMESTAMP,
    received_at TIMESTAMP, retained BOOLEAN, partition INT, offset BIGINT, long_topic STRING,
    date DATE, topic STRING
"""


def with_partitions(rows: DataFrame) -> DataFrame:
    """Add the columns `date`, `topic` as a path can hold it, and `long_topic` to rows of the
    log.
    """
    escaped_bytes = F.octet_length("topic") + 2 * F.length(
        F.regexp_replace("topic", _NOT_ESCAPED, "")
    )
    is_long = escaped_bytes > NAME_BYTES_MAX
    short = F.concat(
        F.substring("topic", 1, PREFIX_CHARACTERS),
        F.lit("~"),
        F.substring(F.sha2("topic", 256), 1, 16),
    )
    return rows.select(
        *(name for name in rows.columns if name != "topic"),
        F.when(is_long, F.col("topic")).alias("long_topic"),
        F.to_date("received_at").alias("date"),
        F.when(is_long, short).otherwise(F.col("topic")).alias("topic"),
    )


def folder(output: str) -> str:
    """Return where the raw data is below the output."""
    return f"{output.rstrip('/')}/{FOLDER}"


def read_raw(spark: SparkSession, output: str) -> DataFrame:
    """Read what a pipeline has written; whole batches only.

    The schema is explicit: a topic that looks like a number must stay text.
    """
    return spark.read.schema(_SCHEMA).parquet(folder(output))


def count_raw(spark: SparkSession, output: str) -> tuple[int, int]:
    """Count the rows and the distinct messages; equal if none is there twice."""
    is_numbered = F.col("sequence").isNotNull()  # plain datagrams have no sequence
    message = F.struct("node", "incarnation", "sequence")
    counted = (
        read_raw(spark, output)
        .agg(
            F.count(F.lit(1)),
            F.count_distinct(F.when(is_numbered, message)) + F.count_if(~is_numbered),
        )
        .first()
    )
    assert counted is not None
    return counted[0], counted[1]
