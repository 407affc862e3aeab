"""A minute under loss and restarts: tools/soak.py runs for longer."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SOAK = Path(__file__).resolve().parents[2] / "tools" / "soak.py"


def test_a_minute_of_loss_and_restarts_leaves_nothing_behind(namespaces: None) -> None:
    argv = [sys.executable, str(SOAK), "--minutes", "1"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "all well" in done.stdout
