"""What of the pipeline needs no Spark: its progress, and how it is called wrongly."""

from __future__ import annotations

import json
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed: pip install -e .[spark]")

from spark_bridge.pipeline.command import main
from spark_bridge.pipeline.progress import QueryProgress
from spark_bridge.pipeline.settings import PipelineSettings


def report(batch: int, rows: int, *, run: str = "first", **changes: Any) -> dict[str, Any]:
    """A progress report as Spark makes it, of a query that reads its source twice."""
    source = {
        "startOffset": json.dumps({"127.0.0.1:7710": {"epoch": "x", "0": 5, "1": 5}}),
        "endOffset": json.dumps({"127.0.0.1:7710": {"epoch": "x", "0": 7, "1": 5}}),
        "latestOffset": json.dumps({"127.0.0.1:7710": {"epoch": "x", "0": 9, "1": 6}}),
    }
    usual = {
        "runId": run,
        "batchId": batch,
        "numInputRows": 2 * rows,
        "durationMs": {"triggerExecution": 500},
        "sources": [source],
        "stateOperators": [{"numRowsDroppedByWatermark": 2}, {"numRowsDroppedByWatermark": 0}],
        "observedMetrics": {"output": {"rows": 3}},
        "eventTime": {"watermark": "2026-01-31T12:00:00.500Z"},
    }
    return {**usual, **changes}


def test_every_report_counts_once_however_often_it_is_seen() -> None:
    progress = QueryProgress(scans=2)
    progress.take([report(0, 10)])
    progress.take([report(0, 10), report(1, 30), report(2, 0)])
    assert (progress.batches, progress.rows, progress.output_rows) == (2, 40, 9)
    assert progress.dropped_rows == 6
    assert progress.rows_per_s == 40.0
    assert (progress.batch_ms, progress.behind) == (500, 3)
    assert progress.watermark == 1769860800.5
    # A restarted query repeats the number of the batch in which it failed.
    progress.take([report(2, 5, run="second")])
    assert progress.rows == 45


def test_a_report_of_the_first_batch_and_one_without_state_are_understood() -> None:
    progress = QueryProgress()
    source = {"startOffset": "null", "endOffset": None, "latestOffset": None}
    progress.take([report(0, 1, sources=[source], stateOperators=[], observedMetrics={})])
    progress.take([report(1, 1, eventTime={})])
    assert (progress.rows, progress.behind, progress.watermark) == (4, 3, 1769860800.5)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--window-s", "0"], "--window-s is 0.0: it must be more than 0"),
        (["--low", "5", "--high", "4"], "--low is 5.0, which is not below high, 4.0"),
    ],
)
def test_settings_that_cannot_be_are_wrong_usage(
    arguments: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--output", "x", "--checkpoint", "y", *arguments]) == 2
    assert capsys.readouterr().err == f"Error: {complaint}\n"


def test_a_setting_of_spark_needs_a_key_and_a_value(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as leaving:
        main(["--output", "x", "--checkpoint", "y", "--conf", "spark"])
    assert leaving.value.code == 2
    assert "'spark' is no KEY=VALUE" in capsys.readouterr().err


def test_a_pipeline_reads_from_a_bridge_with_tls() -> None:
    settings = PipelineSettings(
        output="data", checkpoint="state", bridge="north:7710", token="s", tls=True, tls_ca="ca.pem"
    )
    assert settings.bridge_options == {
        "bridge": "north:7710",
        "token": "s",
        "tls": "true",
        "tlsCa": "ca.pem",
    }
    plain = PipelineSettings(output="data", checkpoint="state")
    assert plain.bridge_options == {"bridge": "127.0.0.1:7710"}
