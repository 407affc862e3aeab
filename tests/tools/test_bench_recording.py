"""The benchmark of recordings measures what it says: everything arrives. Times are not tested."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.helpers import find_free_port
from tools.bench import recording as bench_recording

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="CPU clocks of other processes are Linux's"
)


@pytest.fixture(autouse=True)
def port(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JSONBUS_PORT", str(find_free_port()))
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).resolve().parents[2]))


@pytest.mark.slow
def test_every_receiver_has_its_row(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bench_recording.measure_recording(tmp_path, 200, 1)
    rows = [line.split(" | ")[0] for line in capsys.readouterr().out.splitlines()]
    assert rows[2:] == ["| handler that counts", "| jsonl", "| jsonl.gz", "| mcap"]


@pytest.mark.slow
def test_a_replay_is_measured_on_both_sides(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bench_recording.measure_replaying(tmp_path, 50, 1)
    rows = [line.split(" | ")[0] for line in capsys.readouterr().out.splitlines() if line]
    assert rows[2:] == ["| at the publisher", "| at a subscriber", "| a loop that only sleeps"]
