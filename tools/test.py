"""Everything CI runs: make `.venv`, install, check, test. Arguments are passed on to pytest.

python3 tools/test.py                       all checks, all tests
python3 tools/test.py tests/core -k topics  all checks, some tests

Without arguments the tests run as several processes side by side: those of GROUPS wait for starting
JVMs, killed processes and cut networks for most of their time, as the others wait for the bus's own
times.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from contextlib import ExitStack
from typing import IO

from _browser import need_browser
from _setup import ROOT, say, set_up

#: What runs beside the other tests, each group in a process of its own.
GROUPS = (
    ("tests/spark", "tests/spark_bridge", "tests/browser"),
    ("tests/gateway", "tests/netns", "tests/end_to_end"),
)


def main() -> int:
    python = str(set_up(extras=("dev", "web", "mcap", "spark")))
    checks = subprocess.run([python, "tools/check.py"], cwd=ROOT).returncode
    command = [python, "-m", "pytest", "--durations=10"]
    if not sys.argv[1:] or any("browser" in each for each in sys.argv[1:]):
        need_browser()
    if sys.argv[1:]:
        say("tests")
        tests = subprocess.run([*command, *sys.argv[1:]], cwd=ROOT).returncode
    else:
        tests = _run_side_by_side(command)
    # All are run even if the first fails: one round tells everything.
    say(f"checks {'passed' if checks == 0 else 'FAILED'}")
    say(f"tests {'passed' if tests == 0 else 'FAILED'}")
    return 1 if checks or tests else 0


def _run_side_by_side(command: list[str]) -> int:
    """Those of GROUPS are shown when all others have been."""
    with ExitStack() as stack:
        beside = [(group, *_start(command, group, stack)) for group in GROUPS]
        say("all other tests")
        apart = [f"--ignore={folder}" for group in GROUPS for folder in group]
        failed = subprocess.run([*command, *apart], cwd=ROOT).returncode != 0
        for group, process, output in beside:
            failed |= process.wait() != 0
            output.seek(0)
            say(f"tests of {', '.join(group)}")
            sys.stdout.buffer.write(output.read())
            sys.stdout.flush()
    return int(failed)


def _start(
    command: list[str], group: tuple[str, ...], stack: ExitStack
) -> tuple[subprocess.Popen[bytes], IO[bytes]]:
    say(f"tests of {', '.join(group)}, shown below")
    output = stack.enter_context(tempfile.TemporaryFile())
    process = subprocess.Popen(
        [*command, "-p", "no:cacheprovider", *group],
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
