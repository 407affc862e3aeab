"""The lab as a command, and what it says where it cannot run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ASK_FOR_OBSTACLE = "from tools.lab.namespace import find_obstacle; print(find_obstacle())"


def run_lab(*arguments: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "tools.lab", *arguments]
    return subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=300)


OPEN_AND_SEALED = pytest.mark.parametrize("kind", [[], ["--sealed"]], ids=["open", "sealed"])


@OPEN_AND_SEALED
def test_the_lab_tells_what_its_nodes_see(namespaces: None, kind: list[str]) -> None:
    shape = ["--loss", "0.05", "--delay", "1", *kind]
    done = run_lab("--hosts", "2", "--nodes-per-host", "1", "--messages", "20", *shape)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 hosts on a " in done.stdout
    assert "0.05 loss, 1 ± 0 ms delay, seed 1" in done.stdout
    for text in ("host1.1 knows all others", "host2.1 knows all others", "host1.1 heard "):
        assert text in done.stdout


@OPEN_AND_SEALED
def test_the_promises_hold_on_real_processes_under_every_fault(
    namespaces: None, kind: list[str]
) -> None:
    # A short run, and a seed whose few faults are of every kind.
    done = run_lab("--promises", "--hosts", "8", "--minutes", "0.45", "--seed", "8", *kind)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0  times broken: nothing is withheld" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "code", "reason"),
    [
        (["--hosts", "0"], 2, "use 1 or more"),
        (["--promises", "--hosts", "1"], 2, "one that subscribes"),
        (["--mode", "loud"], 2, "invalid choice: 'loud'"),
        (["--jitter", "5"], 1, "no frame arrives early"),
        (["--loss", "2"], 1, "loss is a probability"),
    ],
)
def test_wrong_arguments_are_refused_in_one_line(
    namespaces: None, arguments: list[str], code: int, reason: str
) -> None:
    done = run_lab(*arguments)
    assert done.returncode == code
    assert reason in done.stderr.splitlines()[-1]


def test_a_machine_without_the_commands_is_told_which_ones_it_lacks() -> None:
    argv = [sys.executable, "-c", ASK_FOR_OBSTACLE]
    empty = {**os.environ, "PATH": str(ROOT)}
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=60, env=empty)
    assert "needs the commands ip, nsenter, setpriv, unshare" in done.stdout


def test_a_user_without_the_rights_is_told_to_run_as_root(namespaces: None) -> None:
    powerless = ["setpriv", "--bounding-set=-all", "--inh-caps=-all", "--"]
    argv = [*powerless, sys.executable, "-c", ASK_FOR_OBSTACLE]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert "cannot make a network namespace" in done.stdout
    assert "run as root" in done.stdout
