"""Logs behind real servers, and those of them that the Spark half talks to without Spark."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.small_disk import small_disk
from tests.spark_bridge.served_log import ServedLog, serving

if TYPE_CHECKING:
    from tests.spark_bridge.source.spark_query import Query

# The bus half is tested where Spark is not installed, too.
if importlib.util.find_spec("pyspark") is None:
    collect_ignore_glob = ["source/*"]


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[..., ServedLog]]:
    """Serve a new log, for clients that know nothing of Spark."""
    with serving(tmp_path) as serve_one:
        yield serve_one


@pytest.fixture
def open_log(tmp_path: Path) -> Iterator[Callable[..., ServedLog]]:
    """Serve a new log: `open_log(partitions=1, token="secret")`."""
    from spark_bridge.source.process_pool import process_wide

    process_wide("warned").clear()
    with serving(tmp_path) as open_one:
        yield open_one
        pool = process_wide("connections")
        while pool:
            pool.popitem()[1].close()


@pytest.fixture
def served(open_log: Callable[..., ServedLog]) -> ServedLog:
    """One log of two partitions."""
    return open_log()


@pytest.fixture
def query() -> Iterator[Callable[..., Query]]:
    """A streaming query on logs: `query(served, maxRowsPerTrigger="5")`."""
    from tests.spark_bridge.source.spark_query import Query

    made: list[Query] = []

    def make(*logs: ServedLog, **options: Any) -> Query:
        made.append(Query(*logs, **options))
        return made[-1]

    yield make
    for each in made:
        each.reader.stop()


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """The mount point of a file system that has room for DISK_BYTES."""
    with small_disk(tmp_path) as mounted:
        yield mounted
