"""The bridge between the bus and Apache Spark.

    bus  ──►  recorder  ──►  offset log  ──►  server  ──►  source, in Spark
    bus  ◄──  publisher  ◄──  sink store  ◄──  server  ◄──  sink, in Spark

Two halves that share no import. The bus half (recorder, log, server) runs without pyspark; the
Spark half (`source/`, `spark/`, `pipeline/`) runs where the bus is not installed. What they
have to agree on is written down in `wire.py` and `log/block.py`.
"""

from __future__ import annotations

from typing import Any

__all__ = ["register"]


def register(spark: Any, by_value: bool = False) -> None:
    """Make `format("jsonbus")` known to a Spark session, as a source and as a sink.

    `by_value`: the code of both is sent along, for executors where this package is not installed,
    and for a server of Spark Connect.
    """
    # The bus half imports this package too, and runs without pyspark.
    from .source import register as register_source

    register_source(spark, by_value=by_value)
