"""Find another version of Python on this machine, for `tools/test.py --python 3.13`."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from _setup import PYTHON_LEAST

#: Where pyenv and uv keep interpreters that are not in PATH, and the variables that move them.
KEEPERS = (
    ("PYENV_ROOT", "~/.pyenv", "versions/{version}*/bin"),
    ("UV_PYTHON_INSTALL_DIR", "~/.local/share/uv/python", "cpython-{version}*/bin"),
)


def find_interpreter(version: str) -> str:
    """Return a Python of this version, such as "3.13"; exit if there is none or it is too old."""
    if not re.fullmatch(r"3\.\d+", version):
        sys.exit(f"{version!r} is not a version of Python such as 3.13")
    if int(version.removeprefix("3.")) < PYTHON_LEAST[1]:
        sys.exit(
            f"jsonbus needs Python {PYTHON_LEAST[0]}.{PYTHON_LEAST[1]} or newer, not {version}"
        )
    for path in _candidates(version):
        if _version_of(path) == version:
            return str(path)
    sys.exit(
        f"there is no Python {version} here: python{version} is neither in PATH nor kept by pyenv "
        f"or uv (pyenv install {version}; uv python install {version})"
    )


def _candidates(version: str) -> Iterator[Path]:
    name = f"python{version}"
    for folder in os.get_exec_path():
        yield Path(folder, name)
    for variable, default, pattern in KEEPERS:
        root = Path(os.environ.get(variable) or default).expanduser()
        for folder in sorted(root.glob(pattern.format(version=version)), reverse=True):
            yield folder / name


def _version_of(path: Path) -> str | None:
    """Ask, because a file of that name may be a shim that leads to no interpreter."""
    ask = "import sys; print('%d.%d' % sys.version_info[:2])"
    try:
        told = subprocess.run([str(path), "-c", ask], capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return told.stdout.strip() if told.returncode == 0 else None
