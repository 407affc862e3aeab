"""The command tools/simulate.py: what it prints, and how it ends."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from jsonbus.core.node import Node

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "tools" / "simulate.py"


@pytest.fixture
def simulate(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(SCRIPT.parent))
    spec = importlib.util.spec_from_file_location("simulate", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_script_runs_by_itself() -> None:
    command = [sys.executable, str(SCRIPT), "--nodes", "10", "--joins", "2", "--loss", "0.05"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stderr
    assert "2 late joins, 10 nodes, mode delayed, 5.0% of datagrams" in result.stdout
    assert "| 10 | 5 % | 2 |" in result.stdout


def test_histories_that_end_well_are_counted(
    simulate: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    assert simulate.main(["--seeds", "1", "--nodes", "3"]) == 0
    assert "4 histories (basic, master, delayed, mixed)" in capsys.readouterr().out


def test_histories_with_channels_show_them_in_their_trace(
    simulate: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--seeds", "1", "--nodes", "3", "--mode", "delayed", "--channels", "--trace"]
    assert simulate.main(arguments) == 0
    printed = capsys.readouterr().out
    assert "1 histories (delayed), no invariant broken" in printed
    assert "= <end of n0" in printed and "= <call of n0" in printed


def test_a_broken_invariant_ends_the_run_and_names_the_command_that_repeats_it(
    simulate: ModuleType, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Node, "publish", lambda node, topic, value, now, **flags: False)
    assert simulate.main(["--seeds", "9", "--seed", "5", "--mode", "delayed"]) == 1
    printed = capsys.readouterr().out
    assert "broken: " in printed
    assert "repeat: python3 tools/simulate.py --seeds 1 --seed 5 --mode delayed --trace" in printed


def test_a_trace_begins_with_the_meaning_of_its_columns(
    simulate: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    simulate.main(["--seeds", "1", "--nodes", "3", "--mode", "delayed", "--trace"])
    printed = capsys.readouterr().out
    assert printed.index("virtual seconds since the world began") < printed.index("joins, ")


def test_a_mass_start_tells_its_shares(
    simulate: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    assert simulate.main(["--mass-start", "20"]) == 0
    assert "all nodes sure" in capsys.readouterr().out


def test_the_table_is_markdown(simulate: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    assert simulate.main(["--table", "--nodes", "10"]) == 0
    rows = capsys.readouterr().out.splitlines()
    assert len(rows) == 5
    assert all(row.startswith("|") for row in rows)


@pytest.mark.parametrize("arguments", [["--loss", "1"], ["--mode", "basic"], ["--mode", "x"]])
def test_impossible_options_are_a_usage_error(
    simulate: ModuleType, arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        simulate.main(arguments)
    assert stopped.value.code == 2
    assert "error: " in capsys.readouterr().err
