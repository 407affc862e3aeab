"""The Spark half of the bridge: `format("jsonbus")` as a source and as a sink.

    datasource ──► stream_reader ──► intake ──► watcher ──► client     in the driver: offsets
                   batch_reader  ──► reading ──► client, values        in the executors: rows

It needs the standard library, pyarrow and pyspark, nothing else of this package.
"""

from .datasource import JsonBusDataSource
from .register import register

__all__ = ["JsonBusDataSource", "register"]
