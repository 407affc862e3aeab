"""Figures of the Spark side become the right tables; its cheap parts run. Times are not tested."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pyarrow", reason="pyarrow is not installed: pip install -e .[bridge]")

from tests.helpers import wait_until
from tools.bench.arena import INSIDE, Arena
from tools.bench.measures import Sample
from tools.bench.report import make_rows, make_summary
from tools.bench.spark.flows import make_flow
from tools.bench.spark.measures import MEASURES, SHOWN, TABLE_HEADER, figure, make_readme_table
from tools.bench.spark.rows import (
    SCHEMA,
    VALUE_BYTES,
    make_batch,
    measure_ranges,
    measure_recorder,
    write_json_files,
)
from tools.bench.spark.stage import Cpu, Stage, children_cpu_s, descendants

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="CPU clocks of other processes are Linux's"
)

CPU = Cpu(jvm=2.0, driver=0.5, workers=1.5, bridge=0.25)


@pytest.fixture
def arena(monkeypatch: pytest.MonkeyPatch) -> Arena:
    monkeypatch.delenv(INSIDE, raising=False)
    return Arena()


def test_a_query_is_told_by_the_batches_that_had_rows() -> None:
    progress = [
        {"numInputRows": 0, "durationMs": {"triggerExecution": 900, "addBatch": 800}},
        {"numInputRows": 300, "durationMs": {"triggerExecution": 100, "addBatch": 60}},
        {"numInputRows": 100, "durationMs": {"triggerExecution": 300, "addBatch": 80}},
    ]
    flow = make_flow(progress, CPU)
    assert (flow.rows, flow.batches, flow.rows_per_s) == (400, 2, 1_000.0)
    assert flow.triggers_ms == (100, 300)
    assert flow.steps_ms == {"triggerExecution": 200, "addBatch": 70}
    assert flow.spark_s_per_million == pytest.approx(4.0 / 400 * 1e6)
    assert flow.bridge_s_per_million == pytest.approx(0.25 / 400 * 1e6)


def test_cpu_is_told_by_kind_and_never_runs_backwards() -> None:
    assert (CPU.spark, CPU.all) == (4.0, 4.25)
    spent = CPU.since(Cpu(jvm=0.5, driver=0.5, workers=1.0, bridge=0.5))
    assert spent == Cpu(jvm=1.5, driver=0.0, workers=0.5, bridge=0.0)


@pytest.mark.slow
def test_cpu_of_a_process_that_has_ended_is_still_counted() -> None:
    burn = "import time; end = time.process_time() + 0.3\nwhile time.process_time() < end: pass"
    script = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {burn!r}]); input()"
    with subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE) as child:
        assert wait_until(lambda: children_cpu_s(child.pid) >= 0.29)
        assert wait_until(lambda: not descendants(child.pid))
        assert children_cpu_s(child.pid) >= 0.29
        assert child.pid in descendants(os.getpid())


def test_the_table_of_the_readme_has_every_figure_with_what_was_to_be_reached() -> None:
    samples = [
        Sample("flow-rate", "jsonbus", 900_000.0),
        Sample("flow-rate", "rate source", 1_000_000.0),
        Sample("flow-per-cpu", "jsonbus", 800_000.0),
        Sample("flow-per-cpu", "JSON files", 200_000.0),
        Sample("flow-per-cpu", "socket source", 10_000.0),
        Sample("flow-bridge", "bridge", 0.05),
    ]
    rows = make_rows(samples, MEASURES)
    first, header, _, *lines, last = make_readme_table(rows).splitlines()
    assert (first, last) == ("<!-- table: the Spark side -->", "<!-- end of table -->")
    assert header == f"| {' | '.join(TABLE_HEADER)} |"
    assert len(lines) == 4
    assert "| 900,000 rows/s | 1,000,000 rows/s | rate source | 0.90 | ≥ 1 × ✗ |" in lines[0]
    assert "| 800,000 rows | 200,000 rows | JSON files | 4.00 | ≥ 4 × ✓ |" in lines[1]
    assert lines[2].endswith("| 10,000 rows | socket source | 80.00 |  |")
    assert "| 0.050 s |  |  |  | ≤ 0.2 ✓ |" in lines[3]
    assert make_summary(rows, MEASURES).count("✓") == 2


def test_what_the_readme_shows_is_measured() -> None:
    for name, _, beside in SHOWN:
        assert beside is None or beside in MEASURES[name].floors


@pytest.mark.parametrize(
    ("value", "shown"),
    [(1_234_567.0, "1,235,000"), (1_234.5, "1,234"), (99.5, "99.50"), (0.0123, "0.012")],
)
def test_a_figure_has_the_digits_that_are_worth_something(value: float, shown: str) -> None:
    assert figure(value) == shown


def test_rows_are_the_same_in_a_log_and_in_json_files(tmp_path: Path) -> None:
    batch = make_batch(10, seed=0)
    assert {len(text) for text in batch.column("value").to_pylist()} == {VALUE_BYTES}
    write_json_files(tmp_path / "json", rows=20, files=2)
    (first, second) = sorted((tmp_path / "json").iterdir())
    lines = [json.loads(line) for line in first.read_text().splitlines()]
    assert len(lines) == len(second.read_text().splitlines()) == 10
    assert list(lines[0]) == [each.split()[0] for each in SCHEMA.split(", ")]
    assert [line["value"] for line in lines] == batch.column("value").to_pylist()


@pytest.mark.slow
def test_recording_and_reading_are_measured_without_a_spark(arena: Arena) -> None:
    with Stage(arena) as stage:
        recorded = list(measure_recorder(stage, messages=2_000, repetitions=1))
        read = list(measure_ranges(stage, repetitions=1, small_rows=1_000))
        folder = stage.folder
        assert stage.jvm == 0  # nobody asked for one
    rates = {each.row: each for each in recorded if each.measure == "recorder-rate"}
    assert rates.keys() == {"bare subscriber", "bridge"}
    assert rates["bridge"].extra["received"] == rates["bridge"].extra["sent"] == 2_000
    assert [each.row for each in read if each.measure == "range-cpu"] == [
        "end of a log 100 times larger",
        "end of a small log",
        "start of a small log",
    ]
    assert all(each.value > 0 for each in [*recorded, *read])
    assert not folder.exists()
