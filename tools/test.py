"""Everything CI runs: make `.venv`, install, check, test. Arguments are passed on to pytest.

python3 tools/test.py                       all checks, all tests
python3 tools/test.py tests/core -k topics  all checks, some tests
"""

from __future__ import annotations

import subprocess
import sys

from _setup import ROOT, say, set_up


def main() -> int:
    python = str(set_up(extras=("dev", "spark")))
    checks = subprocess.run([python, "tools/check.py"], cwd=ROOT).returncode
    say("tests")
    tests = subprocess.run(
        [python, "-m", "pytest", "--durations=10", *sys.argv[1:]], cwd=ROOT
    ).returncode
    # Both are run even if the first fails: one round tells everything.
    say(f"checks {'passed' if checks == 0 else 'FAILED'}")
    say(f"tests {'passed' if tests == 0 else 'FAILED'}")
    return 1 if checks or tests else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
