"""Everything CI runs: make `.venv`, install, check, test. Arguments are passed on to pytest.

python3 tools/test.py                       all checks, all tests
python3 tools/test.py tests/core -k topics  all checks, some tests

Without arguments the tests run as two processes side by side, those of bridge, Spark and gateway in
one of them: they wait for starting JVMs and killed processes for most of their time, as the others
wait for the bus's own times.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile

from _setup import ROOT, say, set_up

BESIDE = ("tests/spark", "tests/spark_bridge", "tests/gateway")


def main() -> int:
    python = str(set_up(extras=("dev", "gateway", "spark")))
    checks = subprocess.run([python, "tools/check.py"], cwd=ROOT).returncode
    command = [python, "-m", "pytest", "--durations=10"]
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
    """Those of BESIDE are shown when all others have been."""
    with tempfile.TemporaryFile() as output:
        say(f"tests of {', '.join(BESIDE)}, shown below")
        beside = subprocess.Popen(
            [*command, "-p", "no:cacheprovider", *BESIDE],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
        try:
            say("all other tests")
            others = subprocess.run([*command, *(f"--ignore={each}" for each in BESIDE)], cwd=ROOT)
            beside.wait()
        finally:
            beside.terminate()
            beside.wait()
        output.seek(0)
        say(f"tests of {', '.join(BESIDE)}")
        sys.stdout.buffer.write(output.read())
        sys.stdout.flush()
    return others.returncode or beside.returncode


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
