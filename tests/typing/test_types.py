from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

PROGRAM = Path(__file__).with_name("program.py")
ROOT = Path(__file__).parents[2]


def test_type_checkers_know_the_values_of_messages_and_refuse_wrong_handlers() -> None:
    found = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", str(PROGRAM)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
    )
    errors = {int(each) for each in re.findall(r":(\d+): error", found.stdout)}
    lines = PROGRAM.read_text(encoding="utf-8").splitlines()
    wrong = {number for number, line in enumerate(lines, 1) if "# wrong: " in line}
    assert errors == wrong, found.stdout + found.stderr
