"""tools/test.py: where a commit begins to explore new histories."""

from __future__ import annotations

import importlib.util
import subprocess
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "tools" / "test.py"


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ModuleType:
    """The script, in a project that has nothing but a version."""
    monkeypatch.syspath_prepend(str(SCRIPT.parent))
    spec = importlib.util.spec_from_file_location("tools_test", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    (tmp_path / "jsonbus").mkdir()
    (tmp_path / "jsonbus" / "version.py").write_text('__version__ = "1.0"\n')
    monkeypatch.setattr(module, "ROOT", tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    return module


def test_every_commit_explores_other_histories_and_the_same_every_time(script: ModuleType) -> None:
    git = ["git", "-c", "user.name=x", "-c", "user.email=x@example.com"]
    seeds = []
    subprocess.run([*git, "init", "-q"], cwd=script.ROOT, check=True)
    for message in ("one", "two"):
        commit = [*git, "commit", "-q", "--allow-empty", "-m", message]
        subprocess.run(commit, cwd=script.ROOT, check=True)
        seeds.append(script.first_seed())
        assert script.first_seed() == seeds[-1]
    assert seeds[0] != seeds[1]


def test_without_git_every_version_explores_other_histories(script: ModuleType) -> None:
    first = script.first_seed()
    assert script.first_seed() == first
    (script.ROOT / "jsonbus" / "version.py").write_text('__version__ = "1.1"\n')
    assert script.first_seed() != first
