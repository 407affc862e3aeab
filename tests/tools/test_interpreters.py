"""tools/test.py --python: which interpreter is found, and which environment it gets."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

TOOLS = Path(__file__).resolve().parents[2] / "tools"
OLD, NEW = "3.12", "3.99"


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"tools_{name}", TOOLS / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def find(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[str], str]:
    """`find_interpreter` on a machine that has nothing yet: PATH is tmp_path/bin."""
    monkeypatch.syspath_prepend(str(TOOLS))
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}")
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path / "pyenv"))
    monkeypatch.setenv("UV_PYTHON_INSTALL_DIR", str(tmp_path / "uv"))
    found: Callable[[str], str] = load("_interpreters").find_interpreter
    return found


def write_python(path: Path, version: str, code: int = 0) -> Path:
    """Write a program that says of itself that it is this version."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\necho {version}\nexit {code}\n")
    path.chmod(0o755)
    return path


@pytest.mark.parametrize(
    "place", ["bin", f"pyenv/versions/{NEW}.4/bin", f"uv/cpython-{NEW}.4-linux-x86_64-gnu/bin"]
)
def test_an_interpreter_is_found_in_path_with_pyenv_and_with_uv(
    find: Callable[[str], str], tmp_path: Path, place: str
) -> None:
    python = write_python(tmp_path / place / f"python{NEW}", NEW)
    assert find(NEW) == str(python)


def test_a_shim_that_leads_nowhere_is_passed_over(
    find: Callable[[str], str], tmp_path: Path
) -> None:
    write_python(tmp_path / "bin" / f"python{NEW}", "", code=127)
    python = write_python(tmp_path / f"pyenv/versions/{NEW}.0/bin/python{NEW}", NEW)
    assert find(NEW) == str(python)


def test_a_program_of_another_version_is_not_taken_for_it(
    find: Callable[[str], str], tmp_path: Path
) -> None:
    write_python(tmp_path / "bin" / f"python{NEW}", OLD)
    with pytest.raises(SystemExit, match=rf"there is no Python {NEW} here.*pyenv install {NEW}"):
        find(NEW)


@pytest.mark.parametrize(
    ("version", "said"),
    [
        ("3.10", r"needs Python 3\.11 or newer, not 3\.10"),
        ("3.13.1", "is not a version of Python such as 3.13"),
        ("newest", "is not a version of Python such as 3.13"),
    ],
)
def test_what_is_no_version_or_too_old_is_refused(
    find: Callable[[str], str], version: str, said: str
) -> None:
    with pytest.raises(SystemExit, match=said):
        find(version)


@pytest.mark.parametrize(
    ("given", "run"),
    [
        ([], ["-q", "--quick"]),
        (["--quick"], ["-q", "--quick"]),
        (["tests/core", "-k", "topics"], ["tests/core", "-k", "topics"]),
    ],
)
def test_a_version_has_an_environment_of_its_own_that_runs_the_tests(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, given: list[str], run: list[str]
) -> None:
    monkeypatch.syspath_prepend(str(TOOLS))
    log = tmp_path / "log"
    version = "{}.{}".format(*sys.version_info[:2])
    # A venv that is there already, with everything: only the tests are run in it.
    script = load("test")
    setup = sys.modules["_setup"]
    venv = tmp_path / f".venv-{version}"
    python = write_python(venv / "bin" / "python", version)
    python.write_text(f'#!/bin/sh\n[ "$1" = -m ] && echo "$@" >> {log}\nexit 0\n')
    (venv / "installed.json").write_text(
        json.dumps({"project": setup._fingerprint(), "extras": sorted(script.QUICK_EXTRAS)})
    )
    monkeypatch.setattr(script, "VENV", tmp_path / ".venv")
    monkeypatch.setattr(script, "QUICK_GROUPS", ())
    monkeypatch.setattr(sys, "argv", ["test.py", "--python", version, *given])
    assert script.main() == 0
    assert log.read_text().splitlines() == [" ".join(["-m", "pytest", *run])]


def test_a_version_has_to_be_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(TOOLS))
    monkeypatch.setattr(sys, "argv", ["test.py", "--python"])
    with pytest.raises(SystemExit, match="--python needs a version"):
        load("test").main()


def test_environments_of_versions_are_not_part_of_the_project() -> None:
    ignored = (TOOLS.parent / ".gitignore").read_text().splitlines()
    assert "/.venv-3.*" in ignored
