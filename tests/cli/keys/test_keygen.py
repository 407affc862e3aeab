from __future__ import annotations

import json
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from jsonbus.sealed.keys import read_ring
from tests.cli.running import json_lines, run_command
from tests.sealed.material import ring, shows_secret, write_ring


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "plant.key"


def keygen(*args: object) -> str:
    """Run it; it must succeed. Returns standard output; no output ever has a secret."""
    result = run_command("keygen", *map(str, args))
    assert result.exit_code == 0, result.stderr
    files = [Path(str(each)) for each in args if Path(str(each)).is_file()]
    secrets = [key.secret for each in files for key in read_ring(each).keys]
    assert not shows_secret(result.stderr, *secrets)
    if "--export" not in args:
        assert not shows_secret(result.stdout, *secrets)
    return result.stdout


def refusal(*args: object) -> str:
    result = run_command("keygen", *map(str, args))
    assert result.exit_code == 2
    return result.stderr


def ids(path: Path) -> list[str]:
    return [key.id for key in read_ring(path).keys]


def test_a_file_is_made_shown_changed_and_not_made_again(path: Path) -> None:
    keygen(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert "exists already" in refusal(path)
    keygen("--add", path, "--from", "2100-01-01T00:00:00Z")
    (shown,) = json_lines(keygen("--show", path))
    assert shown["bus"] == read_ring(path).bus
    assert [(each["id"], each["seals"]) for each in shown["keys"]] == [
        ("bus", True),
        ("bus-2", False),
    ]
    assert shown["keys"][1]["from"] == "2100-01-01T00:00:00Z"
    keygen("--drop", "bus", path)
    assert ids(path) == ["bus-2"]


def test_bus_and_id_can_be_named(path: Path) -> None:
    keygen(path, "--bus", "plant", "--id", "k1")
    keygen("--add", path, "--id", "k2")
    assert read_ring(path).bus == "plant"
    assert ids(path) == ["k1", "k2"]


def test_some_keys_go_into_a_file_that_a_node_reads(path: Path) -> None:
    keygen(path)
    for each in ("doors", "lamps"):
        keygen("--add", path, "--id", each)
    kitchen = path.with_name("kitchen.key")
    with kitchen.open("wb") as file:  # as the shell opens it: others may read
        kitchen.chmod(0o644)
        subprocess.run(
            [sys.executable, "-m", "jsonbus", "keygen", "--export", path, "--ids", "bus, doors"],
            stdout=file,
            check=True,
        )
    assert stat.S_IMODE(kitchen.stat().st_mode) == 0o600
    assert ids(kitchen) == ["bus", "doors"]
    assert read_ring(kitchen).keys == read_ring(path).keys[:2]


def test_what_is_exported_into_a_pipe_is_a_key_file(path: Path) -> None:
    keygen(path)
    assert json.loads(keygen("--export", path, "--ids", "bus")) == json.loads(path.read_text())


@pytest.mark.parametrize(
    ("args", "reason"),
    [
        (["--show", "--add"], "one at a time"),
        (["--drop", "k1", "--export"], "one at a time"),
        (["--show", "--bus", "x"], "--bus is only for a new file"),
        (["--drop", "k1", "--id", "x"], "--id is only for a new key"),
        (["--show", "--from", "2026-11-18"], "--from is only for a new key"),
        (["--add", "--ids", "k1"], "--ids is for --export"),
        (["--export"], "--export needs --ids"),
        (["--export", "--ids", "k2"], "there is no key 'k2'"),
        (["--drop", "k1"], "'k1' is the only key"),
        (["--add", "--from", "soon"], "'soon' is no time"),
    ],
)
def test_what_cannot_be_done_is_told(path: Path, args: list[str], reason: str) -> None:
    write_ring(path, ring())
    before = path.read_bytes()
    told = refusal(*args, path)
    assert reason in told
    assert not shows_secret(told)
    assert path.read_bytes() == before


def test_a_file_that_others_may_read_is_refused_with_the_remedy(path: Path) -> None:
    write_ring(path, ring())
    path.chmod(0o640)
    for args in (["--show"], ["--add"], ["--export", "--ids", "k1"]):
        assert f"run chmod 600 {path}" in refusal(*args, path)


def test_without_cryptography_the_remedy_is_told(tmp_path: Path) -> None:
    code = (
        "import importlib.util as u, sys; find = u.find_spec; "
        "u.find_spec = lambda name, *more: None if name == 'cryptography' else find(name, *more); "
        "from jsonbus.cli.main import main; main()"
    )
    for args in (["keygen", "new.key"], ["explain", "--key-file", "new.key", "door"]):
        done = subprocess.run(
            [sys.executable, "-c", code, *args],
            cwd=tmp_path,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 2
        assert done.stderr.endswith("needs cryptography: pip install 'jsonbus[secure]'\n")
        assert "Traceback" not in done.stderr
    assert not any(tmp_path.iterdir())
