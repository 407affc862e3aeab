"""Check everything but the tests before a commit: format, lint, types, imports, tree.

A checker is taken from the Python that runs this script, else from `.venv`. A checker that is in
neither is reported and counts as failed: what was not checked did not pass.
"""

from __future__ import annotations

import subprocess
import sys

from _import_rules import broken_rules
from _setup import ROOT, say, venv_python
from _tree_rules import broken_tree_rules, needless_exceptions

SOURCES = ["jsonbus", "spark_bridge", "tests", "tools"]
TYPED = ["jsonbus", "spark_bridge"]


def main() -> int:
    results = [
        _run("format", "ruff", "format", "--check", *SOURCES),
        _run("lint", "ruff", "check", *SOURCES),
        _run("types", "mypy", "--strict", *(each for each in TYPED if _has_python(each))),
        _check_rules("import directions", broken_rules(ROOT)),
        _check_rules("tree", broken_tree_rules(ROOT)),
    ]
    for entry in needless_exceptions(ROOT):
        say(f"tools/_tree_rules.py: delete this exception, it is not needed any more: {entry}")
    failed = [name for name, passed in results if not passed]
    say(f"checks failed: {', '.join(failed)}" if failed else "all checks passed")
    return 1 if failed else 0


def _run(name: str, module: str, *arguments: str) -> tuple[str, bool]:
    say(f"{name}: {module} {' '.join(arguments)}")
    python = _python_with(module)
    if python is None:
        say(f"{name}: {module} was not found: python3 tools/test.py installs it into .venv")
        return name, False
    return name, subprocess.run([python, "-m", module, *arguments], cwd=ROOT).returncode == 0


def _check_rules(name: str, broken: list[str]) -> tuple[str, bool]:
    say(name)
    for line in broken:
        print(line, flush=True)
    return name, not broken


def _python_with(module: str) -> str | None:
    for python in (sys.executable, str(venv_python())):
        try:
            found = subprocess.run(
                [python, "-c", f"import importlib.util as u; u.find_spec({module!r}) or exit(1)"]
            )
        except OSError:
            continue
        if found.returncode == 0:
            return python
    return None


def _has_python(folder: str) -> bool:
    return any((ROOT / folder).rglob("*.py"))


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
