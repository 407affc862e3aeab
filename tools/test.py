"""Run everything that CI runs: make `.venv`, install, check, test.

python3 tools/test.py                       all checks, all tests
python3 tools/test.py --quick               the quick tests: no privileges, no Spark, no browser
python3 tools/test.py --python 3.13         the quick tests with another Python, in .venv-3.13
python3 tools/test.py tests/core -k topics  all checks, some tests: arguments go to pytest

Without a path the tests run as several processes side by side: most of them wait, for starting
JVMs, killed processes and cut networks, or for the times of the bus itself. Beside them all, unless
with --quick, a minute of random histories is simulated that no other commit has tried.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
import zlib
from contextlib import ExitStack
from pathlib import Path
from typing import IO

from _browser import need_browser
from _interpreters import find_interpreter
from _setup import ROOT, VENV, say, set_up

#: Folders whose tests run beside the others, each group in a process.
GROUPS = (
    ("tests/spark", "tests/spark_bridge", "tests/browser", "tests/bus", "tests/sealed"),
    ("tests/gateway", "tests/netns", "tests/end_to_end"),
)
#: The same for `--quick`.
QUICK_GROUPS = (
    ("tests/sync", "tests/aio", "tests/doctor", "tests/demo", "tests/survey"),
    ("tests/gateway", "tests/cli", "tests/spark_bridge"),
)

QUICK_EXTRAS = ("dev", "web", "mcap", "bridge")

EXPLORE_S = 60


def main() -> int:
    given = sys.argv[1:]
    if given in (["--help"], ["-h"]):
        print(__doc__)
        return 0
    if given == ["--quick"]:
        return _run_quick(set_up(extras=QUICK_EXTRAS))
    if given[:1] == ["--python"]:
        return _run_with_another_python(given[1:])
    python = str(set_up(extras=("dev", "web", "mcap", "spark")))
    checks = subprocess.run([python, "tools/check.py"], cwd=ROOT).returncode
    command = [python, "-m", "pytest", "--durations=10", "--all"]
    if not given or any("browser" in each for each in given):
        need_browser()
    if given:
        say("tests")
        tests = subprocess.run([*command, *given], cwd=ROOT).returncode
    else:
        explore = [python, "tools/simulate.py", "--jobs=1", f"--seconds={EXPLORE_S}"]
        explore.append(f"--seed={first_seed()}")
        tests = _run_side_by_side(command, GROUPS, {"new histories": explore})
    # The tests are run even if a check fails: one round shows everything.
    say(f"checks {'passed' if checks == 0 else 'FAILED'}")
    say(f"tests {'passed' if tests == 0 else 'FAILED'}")
    return 1 if checks or tests else 0


def _run_with_another_python(given: list[str]) -> int:
    """Run the quick tests, or those that pytest is told to run, with the version given first."""
    if not given:
        sys.exit("--python needs a version: python3 tools/test.py --python 3.13")
    version, *chosen = given
    maker = find_interpreter(version)
    python = set_up(QUICK_EXTRAS, VENV.with_name(f"{VENV.name}-{version}"), maker)
    if chosen in ([], ["--quick"]):
        return _run_quick(python)
    return subprocess.run([str(python), "-m", "pytest", *chosen], cwd=ROOT).returncode


def _run_quick(python: Path) -> int:
    began_at = time.monotonic()
    command = [str(python), "-m", "pytest", "-q", "--quick"]
    tests = _run_side_by_side(command, QUICK_GROUPS)
    took_s = time.monotonic() - began_at
    say(f"quick tests {'passed' if tests == 0 else 'FAILED'} in {took_s:.0f} s")
    return tests


def first_seed() -> int:
    """Return where this commit begins to explore: the same every time, far from other commits."""
    command = ["git", "rev-parse", "HEAD"]
    try:
        found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):  # an unpacked archive
        return zlib.crc32((ROOT / "jsonbus" / "version.py").read_bytes())
    return int(found.stdout[:8], 16)


def _run_side_by_side(
    command: list[str],
    groups: tuple[tuple[str, ...], ...],
    more: dict[str, list[str]] | None = None,
) -> int:
    """Run all tests, and more commands by title; the others' output follows that of the tests."""
    with ExitStack() as stack:
        beside = {title: _start(title, each, stack) for title, each in (more or {}).items()}
        for group in groups:
            title = f"tests of {', '.join(group)}"
            beside[title] = _start(title, [*command, "-p", "no:cacheprovider", *group], stack)
        say("all other tests")
        apart = [f"--ignore={folder}" for group in groups for folder in group]
        failed = subprocess.run([*command, *apart], cwd=ROOT).returncode != 0
        for title, (process, output) in beside.items():
            failed |= process.wait() != 0
            output.seek(0)
            say(title)
            sys.stdout.buffer.write(output.read())
            sys.stdout.flush()
    return int(failed)


def _start(
    title: str, command: list[str], stack: ExitStack
) -> tuple[subprocess.Popen[bytes], IO[bytes]]:
    say(f"{title}, shown below")
    output = stack.enter_context(tempfile.TemporaryFile())
    process = subprocess.Popen(
        command,
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
    )
    stack.callback(process.wait)
    stack.callback(process.terminate)  # before that: an interrupted run leaves nothing behind
    return process, output


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
