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

from tools._setup import ROOT

MESSAGES = 20_000
#: Messages of the shorter run.
FEW = 1_200
RUN_S_MAX = 900

#: Loops of command.py: what each stands for, and what it is compared with.
COUNTED: dict[str, tuple[str, str | None]] = {
    "floor-publish": ("publish, a bare program around orjson", None),
    "node-publish": ("publish (wanted), the core", "floor-publish"),
    "bus-publish": ("publish (wanted), Bus", "floor-publish"),
    "node-publish-reliable": ("publish (reliable), the core", "node-publish"),
    "bus-publish-reliable": ("publish (reliable), Bus", "bus-publish"),
    "node-suppress": ("publish (suppressed), the core", None),
    "floor-receive": ("receive batches, a bare program around orjson", None),
    "node-receive": ("receive batches, the core", "floor-receive"),
    "bus-receive": ("receive batches, Bus, to the handler", "floor-receive"),
    "node-receive-reliable": ("receive reliable batches, the core", "node-receive"),
    "bus-receive-reliable": ("receive reliable batches, Bus, to the handler", "bus-receive"),
    "node-receive-slices": ("receive a slice of a large message, the core", None),
    "node-refuse": ("receive an unwanted 1.6 KB datagram, the core", None),
    "match-again": ("match a topic met before", None),
    "match-anew": ("match a new topic with 1,000 patterns", None),
}
#: What waits for others for a while is not slowed down with the rest: messages would not gather.
BY_THE_CLOCK = ("bus-publish", "bus-publish-reliable")


def measure_instructions(
    say: Callable[[str], None], messages: int = MESSAGES, only: Sequence[str] = tuple(COUNTED)
) -> str:
    """A table, or one line about why there is none."""
    counter = find_counter()
    if counter is None:
        return "instructions cannot be counted: neither perf nor valgrind works here"
    loops = [loop for loop in only if counter == "perf" or loop not in BY_THE_CLOCK]

    def count(loop: str) -> float | None:
        say(f"instructions of {loop}, by {counter}")
        return count_instructions(counter, loop, messages)

    # Side by side: the one thing that a busy machine does not change.
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        figures = dict(zip(loops, pool.map(count, loops), strict=True))
    return make_table(f"by {counter}, over {messages:,} messages", figures)


def make_table(how: str, figures: dict[str, float | None]) -> str:
    """Instructions per message, by loop; None: they could not be counted."""
    lines = [
        f"### Instructions per message, {how}",
        "",
        "| loop | | instructions | × bare |",
        "|---|---|---:|---:|",
    ]
    for loop, figure in figures.items():
        what, compared_with = COUNTED[loop]
        floor = figures.get(compared_with) if compared_with else None
        shown = "not counted" if figure is None else f"{figure:,.0f}"
        ratio = f"{figure / floor:.2f}" if figure is not None and floor else ""
        lines.append(f"| {loop} | {what} | {shown} | {ratio} |")
    return "\n".join(lines)


def find_counter() -> str | None:
    """perf, callgrind, or None: whichever counts. A virtual machine may lack what perf needs."""
    for counter, command in (("perf", "perf"), ("callgrind", "valgrind")):
        if shutil.which(command) and _count(counter, [sys.executable, "-S", "-c", ""]) is not None:
            return counter
    return None


def count_instructions(counter: str, loop: str, messages: int) -> float | None:
    """Per message of the loop; None if a run failed."""
    many = FEW + messages
    counts = []
    for count in (FEW, many):
        arguments = ["--loop", loop, "--messages", str(count), "--prepare", str(many)]
        counted = _count(counter, [sys.executable, "-m", "tools.bench", "wire", *arguments])
        if counted is None:
            return None
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
    environment = {**os.environ, "PYTHONHASHSEED": "0", "PYTHONPATH": str(ROOT)}
    try:
        done = subprocess.run(
            [*prefix, *command], env=environment, capture_output=True, text=True, timeout=RUN_S_MAX
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(pattern, done.stderr, re.MULTILINE)
    return int(found[1]) if found is not None and done.returncode == 0 else None
