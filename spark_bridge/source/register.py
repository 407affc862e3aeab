"""Makes `format("jsonbus")` known to a Spark session."""

from __future__ import annotations

import sys
from typing import Any

from pyspark.cloudpickle import register_pickle_by_value, unregister_pickle_by_value

from .datasource import JsonBusDataSource


def register(spark: Any, by_value: bool = False) -> None:
    """Register source and sink with a session, which may be one of Spark Connect.

    `by_value`: their code is sent along, for executors where this package is not installed.
    """
    if not by_value:
        spark.dataSource.register(JsonBusDataSource)
        return
    package = sys.modules[__package__]
    register_pickle_by_value(package)  # type: ignore[no-untyped-call]  # pyspark's copy has none
    try:
        spark.dataSource.register(JsonBusDataSource)
    finally:
        unregister_pickle_by_value(package)  # type: ignore[no-untyped-call]
