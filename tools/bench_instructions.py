"""Instructions per message: a figure that other programs on the machine do not change.

`perf stat` counts them where the processor's counters can be read, else valgrind's callgrind, which
runs the loop some fifty times slower. Each loop is run twice, with few and with many messages, in
processes that are otherwise the same: the difference is the loop's alone.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

SCRIPT = Path(__file__).resolve().parent / "bench_wire.py"
MESSAGES = 20_000
#: Messages of the shorter run.
FEW = 1_200
RUN_S_MAX = 900

#: What is counted: a floor, and what is compared with it (names of bench_wire.py's loops).
COUNTED = {
    "floor-publish": ("node-publish", "bus-publish"),
    "floor-receive": ("node-receive", "bus-receive"),
}


def measure_instructions(say: Callable[[str], None], messages: int = MESSAGES) -> str:
    """A table, or one line about why there is none."""
    counter = find_counter()
    if counter is None:
        return "instructions cannot be counted: neither perf nor valgrind works here"
    lines = [
        "### Instructions per message",
        "",
        f"counted by {counter}, {messages:,} messages",
        "",
        "| loop | instructions | × floor |",
        "|---|---:|---:|",
    ]
    for floor, others in COUNTED.items():
        of_floor = 0.0
        for loop in (floor, *others):
            say(f"instructions of {loop}, by {counter}")
            figure = count_instructions(counter, loop, messages)
            of_floor = of_floor or figure
            lines.append(f"| {loop} | {figure:,.0f} | {figure / of_floor:.2f} |")
    return "\n".join(lines)


def find_counter() -> str | None:
    """perf, callgrind, or None."""
    if shutil.which("perf") and _count("perf", [sys.executable, "-c", ""]) is not None:
        return "perf"
    return "callgrind" if shutil.which("valgrind") else None


def count_instructions(counter: str, loop: str, messages: int) -> float:
    """Per message of the loop."""
    many = FEW + messages
    counts = []
    for count in (FEW, many):
        arguments = ["--loop", loop, "--messages", str(count), "--prepare", str(many)]
        counted = _count(counter, [sys.executable, str(SCRIPT), *arguments])
        if counted is None:
            raise RuntimeError(f"{counter} did not count {loop}")
        counts.append(counted)
    return (counts[1] - counts[0]) / messages


def _count(counter: str, command: Sequence[str]) -> int | None:
    if counter == "perf":
        prefix = ["perf", "stat", "-x", ",", "-e", "instructions:u"]
        pattern = r"^(\d+),"
    else:
        prefix = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null"]
        pattern = r"Collected : (\d+)"
    # Hashes of strings decide how dictionaries collide: the same in every run.
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    done = subprocess.run(
        [*prefix, *command], env=environment, capture_output=True, text=True, timeout=RUN_S_MAX
    )
    found = re.search(pattern, done.stderr, re.MULTILINE)
    return int(found[1]) if found is not None and done.returncode == 0 else None
