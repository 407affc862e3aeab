"""Registers `format("jsonbus")` with a Spark session."""

from __future__ import annotations

import sys
from typing import Any

from pyspark.cloudpickle import register_pickle_by_value, unregister_pickle_by_value

from .datasource import JsonBusDataSource

#: Names that Spark adds to the environment of a source's Python when a query begins. All queries
#: share that HashMap, and nothing guards it: two that begin at once can corrupt it for good, and
#: then every task fails with an OptionalDataException until the JVM is restarted. Setting a name
#: that exists already only replaces a value, which corrupts nothing.
ADDED_BY_SPARK = (
    "SPARK_AUTH_SOCKET_TIMEOUT",
    "SPARK_BUFFER_SIZE",
    "SPARK_LOCAL_DIRS",
    "SPARK_PYTHON_RUNTIME",
)


def register(spark: Any, by_value: bool = False) -> None:
    """Register source and sink with a session, which may be one of Spark Connect.

    `by_value`: their code is sent along, for executors where this package is not installed.
    """
    context = getattr(spark, "sparkContext", None)  # a session of Spark Connect has none
    if context is not None:
        for name in ADDED_BY_SPARK:
            context.environment.setdefault(name, "")  # it is replaced before it is used
    if not by_value:
        spark.dataSource.register(JsonBusDataSource)
        return
    package = sys.modules[__package__]
    register_pickle_by_value(package)  # type: ignore[no-untyped-call]  # pyspark's copy has none
    try:
        spark.dataSource.register(JsonBusDataSource)
    finally:
        unregister_pickle_by_value(package)  # type: ignore[no-untyped-call]
