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
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

SCRIPT = Path(__file__).resolve().parent / "bench_wire.py"
MESSAGES = 20_000
#: Messages of the shorter run.
FEW = 1_200
RUN_S_MAX = 900

#: Loops of bench_wire.py; the first of each group is what the others are compared with.
COUNTED = (
    ("floor-publish", "node-publish", "bus-publish"),
    ("floor-receive", "node-receive", "bus-receive"),
    ("node-suppress",),
    ("node-refuse",),
)


def measure_instructions(say: Callable[[str], None], messages: int = MESSAGES) -> str:
    """A table, or one line about why there is none."""
    counter = find_counter()
    if counter is None:
        return "instructions cannot be counted: neither perf nor valgrind works here"
    loops = [loop for group in COUNTED for loop in group]

    def count(loop: str) -> float:
        say(f"instructions of {loop}, by {counter}")
        return count_instructions(counter, loop, messages)

    # Side by side: the one thing that a busy machine does not change.
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        figures = dict(zip(loops, pool.map(count, loops), strict=True))
    lines = [
        f"### Instructions per message, by {counter}, over {messages:,} messages",
        "",
        "| loop | instructions | × the first |",
        "|---|---:|---:|",
    ]
    for group in COUNTED:
        for loop in group:
            ratio = figures[loop] / figures[group[0]]
            lines.append(f"| {loop} | {figures[loop]:,.0f} | {ratio:.2f} |")
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
