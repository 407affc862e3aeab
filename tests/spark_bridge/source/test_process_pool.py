"""What lives as long as the process: here, the garbage collector's view of it."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from importlib.machinery import ModuleSpec

import pytest

from spark_bridge.source.process_pool import begin_task, process_wide


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    process_wide("tasks").clear()
    yield
    process_wide("tasks").clear()
    gc.unfreeze()


def test_a_worker_of_spark_hides_what_is_loaded_from_the_collector_at_the_second_task(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys.modules["__main__"], "__spec__", ModuleSpec("pyspark.daemon", None))
    begin_task()
    assert gc.get_freeze_count() == 0  # more is loaded while it runs
    begin_task()
    frozen = gc.get_freeze_count()
    assert frozen > 0
    kept = [[] for _ in range(1000)]
    begin_task()
    assert gc.get_freeze_count() <= frozen  # not again: what came since may become garbage
    assert len(kept) == 1000


def test_any_other_process_is_left_alone() -> None:
    for _ in range(3):
        begin_task()
    assert gc.get_freeze_count() == 0
