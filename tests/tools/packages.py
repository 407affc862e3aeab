"""The package as it is published: built, and installed into environments of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[2]

#: Far more than anything here takes, also on a machine that is slow and busy.
TIMEOUT_S = 300.0


def run(
    command: Sequence[str | Path], folder: Path, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a command away from the project, whose modules Python would find in its folder."""
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run(
        list(map(str, command)),
        cwd=folder,
        env={**clean, **(env or {})},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )


def succeed(
    command: Sequence[str | Path], folder: Path, env: Mapping[str, str] | None = None
) -> str:
    """Run a command that has to succeed; return what it printed on standard output."""
    done = run(command, folder, env)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def build(folder: Path, *options: str) -> Path:
    """Build the project as `python -m build` does; return the wheel."""
    succeed([sys.executable, "-m", "build", *options, "--outdir", folder, ROOT], folder.parent)
    (wheel,) = folder.glob("*.whl")
    return wheel


def install(folder: Path, *requirements: str | Path) -> Path:
    """Make an environment with these and what they require; return the folder of its programs."""
    # The pip of this environment installs into that one, which therefore needs none of its own.
    succeed([sys.executable, "-m", "venv", "--without-pip", folder], folder.parent)
    pip = [sys.executable, "-m", "pip", "--python", folder / "bin" / "python"]
    succeed([*pip, "install", "--quiet", *requirements], folder.parent)
    return folder / "bin"
