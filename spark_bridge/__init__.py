"""The bridge between the bus and Apache Spark.

    bus  ──►  recorder  ──►  offset log  ──►  server  ──►  source, in Spark
    bus  ◄──  bus.publish  ◄──  sink  ◄─────  server  ◄──  sink, in Spark

Two halves that share no import. The bus half runs without pyspark:

bridge.py     a node with log, recorder, sink and server
recorder.py   from the bus into the log
rows.py       messages to rows, the recorder's hot path
log/          the offset log on disk
server.py     TCP connections, their time limits, access control
streams.py    bytes from and to one client
wire.py       the protocol between the halves
requests.py   the answer to each request
fields.py     the fields of a request, checked
sink/         batches that Spark publishes on the bus
groups.py     how far queries are
state.py      the state that a bridge reports over the bus
metrics.py    counters for Prometheus
errors.py     every error of this half

The Spark half runs where the bus is not installed:

source/       `format("jsonbus")`: source and sink
spark/        sessions, Java, supervisor
pipeline/     a ready-made streaming job; pipeline_program.py is its command, which says so where
              Spark is missing

What the halves have to agree on is written down in `wire.py` and `log/block.py`.
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
