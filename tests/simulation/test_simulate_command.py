"""The command tools/simulate.py: what it prints, and how it ends."""

from __future__ import annotations

import importlib.util
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from jsonbus.core.node import Node
from jsonbus.sim.history import History
from jsonbus.sim.plan import MODES
from jsonbus.sim.shrink import Shrinker

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
    assert simulate.main(["--seeds", "6", "--nodes", "3", "--jobs", "1"]) == 0
    printed = capsys.readouterr().out
    assert [int(count) for count in re.findall(r"^\w+ +(\d) +0$", printed, re.M)] == [2, 2, 1, 1]
    assert "6 histories (basic, master, delayed, mixed), no invariant broken" in printed
    assert "histories per second of one core" in printed


def test_processes_side_by_side_run_every_history_once(
    simulate: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    assert simulate.main(["--seeds", "12", "--nodes", "3", "--jobs", "2"]) == 0
    slowest = re.findall(r"^(\w+) +(\d+) +\d+\.\d\d$", capsys.readouterr().out, re.M)
    assert len(slowest) == len(set(slowest)) == 10
    assert set(slowest) <= {(mode, str(seed)) for mode in MODES for seed in range(3)}


def test_with_seconds_histories_begin_until_they_are_over(
    simulate: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--seconds", "0.01", "--seed", "5", "--nodes", "3", "--jobs", "1"]
    assert simulate.main(arguments) == 0
    assert "(basic, master, delayed, mixed), no invariant broken" in capsys.readouterr().out


def test_histories_with_channels_show_them_in_their_trace(
    simulate: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--seeds", "1", "--nodes", "3", "--mode", "delayed", "--channels", "--trace"]
    assert simulate.main(arguments) == 0
    printed = capsys.readouterr().out
    assert "no invariant broken" in printed
    assert "= <end of n0" in printed and "= <call of n0" in printed


def test_histories_of_a_sealed_bus_name_the_option_that_repeats_them(
    simulate: ModuleType, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = ["--seeds", "1", "--nodes", "3", "--mode", "delayed", "--sealed"]
    assert simulate.main([*arguments, "--jobs", "1"]) == 0
    assert "1 history (delayed), no invariant broken" in capsys.readouterr().out
    assert simulate.main([*arguments, "--trace"]) == 0
    assert "is_sealed=True" in capsys.readouterr().out
    monkeypatch.setattr(Node, "publish", lambda node, topic, value, now, **flags: False)
    assert simulate.main([*arguments, "--jobs", "1"]) == 1
    command = "--seeds 1 --seed 0 --mode delayed --nodes 3 --sealed --trace"
    assert f"repeat: python3 tools/simulate.py {command}" in capsys.readouterr().out
    shrink = ["--shrink", "--seed", "0", "--seconds", "5", *arguments[2:]]
    assert simulate.main(shrink) == 1
    scenario = capsys.readouterr().out
    assert "promises.checkers, is_sealed=True)" in scenario


def test_a_run_goes_on_after_broken_histories_and_names_the_commands_that_repeat_them(
    simulate: ModuleType, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Node, "publish", lambda node, topic, value, now, **flags: False)
    arguments = ["--seeds", "3", "--seed", "5", "--mode", "delayed", "--channels", "--jobs", "1"]
    assert simulate.main(arguments) == 1
    printed = capsys.readouterr().out
    for seed in (5, 6, 7):
        command = f"--seeds 1 --seed {seed} --mode delayed --channels --trace"
        assert f"repeat: python3 tools/simulate.py {command}" in printed
    assert re.search(r"^delayed +3 +3  .+: 5", printed, re.M)
    assert "3 histories (delayed), 3 broken" in printed


@pytest.mark.parametrize("family", ["large", "long"])
def test_histories_of_other_families_name_their_family(
    family: str,
    simulate: ModuleType,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("jsonbus.sim.plan.LONG_S", 20.0)
    arguments = ["--seeds", "1", "--mode", "delayed", "--nodes", "10", "--family", family]
    assert simulate.main([*arguments, "--jobs", "1"]) == 0
    assert "1 history (delayed), no invariant broken" in capsys.readouterr().out
    assert simulate.main([*arguments, "--trace"]) == 0
    assert f"family='{family}'" in capsys.readouterr().out
    shrink = ["--shrink", "--seed", "0", *arguments[2:]]
    assert simulate.main(shrink) == 0
    assert "nothing to cut" in capsys.readouterr().out
    monkeypatch.setattr(Node, "publish", lambda node, topic, value, now, **flags: False)
    assert simulate.main([*arguments, "--jobs", "1"]) == 1
    command = f"--seeds 1 --seed 0 --mode delayed --family {family} --nodes 10 --trace"
    assert f"repeat: python3 tools/simulate.py {command}" in capsys.readouterr().out


def test_an_exception_is_reported_like_a_broken_promise(
    simulate: ModuleType, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Node, "publish", None)
    assert simulate.main(["--seeds", "1", "--mode", "delayed", "--jobs", "1"]) == 1
    printed = capsys.readouterr().out
    assert "Traceback" in printed
    assert "failed: TypeError: 0" in printed


def test_a_history_that_never_ends_is_reported_and_the_run_goes_on(
    simulate: ModuleType, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def spin(history: History) -> None:
        while history.plan.seed == 0:
            pass

    monkeypatch.setattr(History, "run", spin)
    monkeypatch.setattr(sys.modules["simulate_histories"], "STUCK_S", 0.05)
    assert simulate.main(["--seeds", "2", "--mode", "delayed", "--jobs", "1"]) == 1
    assert re.search(r"^delayed +2 +1  failed: StuckError: 0$", capsys.readouterr().out, re.M)


def test_an_interrupted_run_reports_what_it_found(
    simulate: ModuleType, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(history: History) -> None:
        if history.plan.mode == "delayed":
            raise KeyboardInterrupt

    monkeypatch.setattr(History, "run", interrupt)
    assert simulate.main(["--seeds", "8", "--nodes", "3", "--jobs", "1"]) == 130
    printed = capsys.readouterr().out
    assert "interrupted after 2 histories" in printed
    assert re.search(r"^master +1 +0$", printed, re.M)


def test_ctrl_c_ends_the_processes_of_a_run() -> None:
    arguments = ["--seeds", "1000000", "--nodes", "3", "--jobs", "2"]
    script = "import simulate_histories as run; run.PLAIN_PROGRESS_S = 0.1; import simulate, sys;"
    script += "sys.exit(simulate.main(sys.argv[1:]))"
    with subprocess.Popen(
        [sys.executable, "-c", script, *arguments],
        env={**os.environ, "PYTHONPATH": str(SCRIPT.parent)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,  # Ctrl-C is for all processes of a terminal
    ) as process:
        assert process.stderr is not None
        assert "histories, 0 broken, " in process.stderr.readline()
        os.killpg(process.pid, signal.SIGINT)
        printed, _ = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "interrupted after " in printed
    with pytest.raises(ProcessLookupError):
        os.killpg(process.pid, 0)


def test_a_trace_begins_with_the_meaning_of_its_columns(
    simulate: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    simulate.main(["--seeds", "1", "--nodes", "3", "--mode", "delayed", "--trace"])
    printed = capsys.readouterr().out
    assert printed.index("virtual seconds since the world began") < printed.index("joins, ")


def test_a_run_does_not_depend_on_the_order_of_sets() -> None:
    command = [sys.executable, str(SCRIPT), "--seeds", "1", "--seed", "2", "--nodes", "3"]
    command += ["--mode", "mixed", "--trace"]
    environments = [{**os.environ, "PYTHONHASHSEED": seed} for seed in ("1", "2")]
    one, other = (
        subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment)
        for environment in environments
    )
    assert one.returncode == other.returncode == 0, one.stderr + other.stderr
    assert one.stdout == other.stdout


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


def test_a_broken_history_is_cut_down_to_a_test(
    simulate: ModuleType, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = ["--shrink", "--seed", "5", "--mode", "delayed", "--nodes", "3"]
    assert simulate.main(arguments) == 0
    assert "nothing to cut" in capsys.readouterr().out
    monkeypatch.setattr(Node, "publish", lambda node, topic, value, now, **flags: False)
    assert simulate.main(arguments) == 1
    printed = capsys.readouterr().out
    assert "def test_history_5_of_mode_delayed() -> None:" in printed
    compile(printed, "story", "exec")


def test_with_seconds_the_shortest_so_far_is_printed(
    simulate: ModuleType, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def never_end(shrinker: Shrinker) -> None:
        while True:
            pass

    monkeypatch.setattr(Node, "publish", lambda node, topic, value, now, **flags: False)
    monkeypatch.setattr(Shrinker, "shrink", never_end)
    arguments = ["--shrink", "--seed", "5", "--mode", "delayed", "--channels", "--seconds", "0.1"]
    assert simulate.main(arguments) == 1
    printed = capsys.readouterr()
    assert "steps, the shortest so far\n" in printed.err
    compile(printed.out, "story", "exec")


@pytest.mark.parametrize(
    "arguments",
    [
        ["--loss", "1"],
        ["--mode", "basic"],
        ["--mode", "x"],
        ["--shrink", "--seed", "1"],
        ["--family", "large"],
        ["--family", "long", "--mass-start", "10"],
        ["--family", "large", "--channels", "--seeds", "1"],
        ["--family", "huge", "--seeds", "1"],
    ],
)
def test_impossible_options_are_a_usage_error(
    simulate: ModuleType, arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        simulate.main(arguments)
    assert stopped.value.code == 2
    assert "error: " in capsys.readouterr().err
