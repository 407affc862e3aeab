"""Make `.venv` beside the project and install the project into it, with bare Python.

A stamp inside `.venv` records what was installed, so the next run starts at once. The install is
editable: only a change of pyproject.toml makes another one necessary.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
PYTHON_LEAST = (3, 11)

#: Modules that the command line needs.
NEEDS = ("click", "netifaces", "orjson", "rich")

#: Extras that are large to download: a module that shows whether it is there, and a warning.
LARGE = {"spark": ("pyspark", "Apache Spark with pyarrow and a Java: about 550 MB to download")}


def set_up(extras: tuple[str, ...] = (), venv: Path = VENV, maker: str = sys.executable) -> Path:
    """Return the Python of a `.venv` that has the project and these extras; exit if that fails.

    Extras that an earlier run installed stay installed. Another Python than this one makes a folder
    of its own, such as `.venv-3.13`.
    """
    if sys.version_info < PYTHON_LEAST:
        sys.exit(
            f"jsonbus needs Python {PYTHON_LEAST[0]}.{PYTHON_LEAST[1]} or newer; "
            f"this is {sys.version.split()[0]} ({sys.executable})"
        )
    python, stamp = venv_python(venv), venv / "installed.json"
    installed = _read_stamp(stamp) if _runs(python) else None
    if installed is None:
        _make_venv(venv, maker)
        installed = {"project": None, "extras": []}
    wanted = sorted({*installed["extras"], *extras})
    fingerprint = _fingerprint()
    if installed["project"] != fingerprint or installed["extras"] != wanted:
        stamp.unlink(missing_ok=True)  # an install that is cut short starts over
        _install(python, wanted, venv)
        stamp.write_text(json.dumps({"project": fingerprint, "extras": wanted}) + "\n")
    return python


def find_python() -> str:
    """Return a Python that can run the command line: this one, or else that of `.venv`."""
    if all(importlib.util.find_spec(each) is not None for each in NEEDS):
        return sys.executable
    return str(set_up())


def venv_python(venv: Path = VENV) -> Path:
    """Return the path of the interpreter in `.venv`, whether or not it exists."""
    if sys.platform == "win32":
        return venv / "Scripts" / "python.exe"
    return venv / "bin" / "python"


def _make_venv(venv: Path, maker: str) -> None:
    say(f"making {venv} with {maker}")
    result = subprocess.run([maker, "-m", "venv", "--clear", str(venv)])
    if result.returncode != 0:
        sys.exit(
            f"could not make {venv.name}: this Python lacks venv or ensurepip "
            "(on Debian and Ubuntu: apt install python3-venv)"
        )


def _install(python: Path, extras: list[str], venv: Path) -> None:
    chosen = f"[{','.join(extras)}]" if extras else ""
    say(f"installing jsonbus{chosen} into {venv.name}")
    for extra, (module, size) in LARGE.items():
        if extra in extras and not _runs(python, f"import {module}"):
            say(f"{size}, once; that takes some minutes")
    started_at = time.monotonic()
    command = [str(python), "-m", "pip", "install", "--disable-pip-version-check", "--editable"]
    if subprocess.run([*command, f"{ROOT}{chosen}"]).returncode != 0:
        sys.exit("could not install: pip says above why; the first run needs a package index")
    say(f"installed in {time.monotonic() - started_at:.0f} s; the next run skips this")


def _read_stamp(path: Path) -> dict[str, object] | None:
    try:
        stamp = json.loads(path.read_text())
        return stamp if {"project", "extras"} <= stamp.keys() else None
    except (OSError, ValueError):
        return None


def _runs(python: Path, code: str = "") -> bool:
    """Return whether the interpreter starts. A `.venv` breaks when its Python is removed."""
    try:
        return subprocess.run([str(python), "-c", code], capture_output=True).returncode == 0
    except OSError:
        return False


def _fingerprint() -> str:
    # The folder is part of it: an editable install points at the folder it was made in.
    content = str(ROOT).encode() + b"\n" + (ROOT / "pyproject.toml").read_bytes()
    return hashlib.sha256(content).hexdigest()


def say(text: str) -> None:
    """Print a line of progress on stderr, in order with the output of subprocesses."""
    print(f"== {text}", file=sys.stderr, flush=True)
