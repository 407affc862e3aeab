"""The way of a message stays short; tools/hops.py says what is counted, and shows it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

#: Hops at most; for a repair, calls at most. The way may become shorter, but not longer.
HOPS_MAX = {
    "publish, a topic for the first time, to the socket": 12,
    "publish, a known topic, to the socket": 7,
    "datagram, from the socket to a quick handler": 7,
}
REPAIR_CALLS_MAX = 119


@pytest.fixture(scope="module")
def printed() -> str:
    done = subprocess.run(
        [sys.executable, "tools/hops.py", "--calls"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def rows(printed: str) -> dict[str, list[str]]:
    found = re.findall(r"^\| (.+?) \| (\d+) \| (\d+) \| (\d*) \|$", printed, re.MULTILINE)
    return {title: figures for title, *figures in found}


@pytest.mark.slow
def test_no_way_becomes_longer(printed: str) -> None:
    figures = rows(printed)
    longer = [title for title, most in HOPS_MAX.items() if int(figures[title][2]) > most]
    assert longer == [], printed
    assert int(figures["repair, all of it"][0]) <= REPAIR_CALLS_MAX, printed


def test_every_way_is_shown_from_its_first_call(printed: str) -> None:
    assert "  * Bus.publish  (sync/bus.py)" in printed
    assert "  * Receiving." in printed
    assert len(re.findall(r"^\| repair \d", printed, re.MULTILINE)) == 4
