"""Logs behind real servers, for the tests of the Spark half that need no Spark."""

from __future__ import annotations

import importlib.util
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.spark_bridge.served_log import ServedLog

# The bus half is tested where Spark is not installed, too.
if importlib.util.find_spec("pyspark") is None:
    collect_ignore_glob = ["test_source_*"]


@pytest.fixture
def open_log(tmp_path: Path) -> Iterator[Callable[..., ServedLog]]:
    """Serve a new log: `open_log(partitions=1, token="secret")`."""
    from spark_bridge.source.client import close_pooled
    from spark_bridge.source.process import process_wide

    opened: list[ServedLog] = []
    numbers = itertools.count()
    process_wide("warned").clear()

    def open_one(**options: Any) -> ServedLog:
        opened.append(ServedLog(tmp_path / f"log-{next(numbers)}", **options))
        return opened[-1]

    yield open_one
    close_pooled()
    for each in opened:
        each.stop()


@pytest.fixture
def served(open_log: Callable[..., ServedLog]) -> ServedLog:
    """One log of two partitions."""
    return open_log()
