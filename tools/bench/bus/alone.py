"""Measure one process of jsonbus: start, suppressed publishes, unwanted messages, memory."""

from __future__ import annotations

import json
import os
import re
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from tools._setup import say
from tools.bench.arena import Arena
from tools.bench.bus.floods import Plan, interleave
from tools.bench.bus.run import Run, RunError, cpu_clock_s, window_for
from tools.bench.bus.spec import TOPIC, TOPIC_NOBODY_WANTS
from tools.bench.measures import Sample

UNWANTED_BYTES = 1600
BURSTS = 5
#: A process whose CPU clock stands still for so long has nothing more to do.
IDLE_S = 0.03
IDLE_S_MAX = 10.0
MEMORY_STEPS = 20

_START = """
import sys, time
begun = time.process_time()
import jsonbus
imported = time.process_time()
bus = jsonbus.Bus(group=sys.argv[1], port=int(sys.argv[2]), interface=sys.argv[3])
opened = time.process_time()
bus.close()
print([begun, imported, opened])
"""


def measure_suppressed(arena: Arena, plan: Plan) -> Iterator[Sample]:
    """Publish what nobody wants; the loop around it is part of the figure."""

    def measure(system: str) -> Iterable[Sample]:
        with Run(arena, system, subscriber_systems=[]) as run:
            done = run.publisher.ask("suppress", count=plan.messages)
        yield Sample("suppressed", system, 1e6 * done["cpu_s"] / done["sent"])

    yield from interleave("suppressed", ("jsonbus", "jsonbus-aio"), plan, measure)


def measure_start(arena: Arena, plan: Plan) -> Iterator[Sample]:
    """In a new process each time, with compiled modules: the first start makes them."""
    with TemporaryDirectory() as compiled:
        # Compiled elsewhere, even where Python is told to compile nothing or may not write.
        environment = {**arena.environment, "PYTHONPYCACHEPREFIX": compiled}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        _start(arena, environment)
        for repetition in range(plan.repetitions):
            say(f"start {repetition + 1}/{plan.repetitions}")
            begun_s, imported_s, opened_s = _start(arena, environment)
            yield Sample("start", "import and open", 1e3 * (opened_s - begun_s))
            yield Sample("start", "import", 1e3 * (imported_s - begun_s))
            yield Sample("start", "with Python itself", 1e3 * opened_s)


def _start(arena: Arena, environment: dict[str, str]) -> list[float]:
    """CPU times of a process: before it imports jsonbus, after that, and with an open bus."""
    arguments = [arena.group, str(arena.next_port()), arena.interface]
    done = subprocess.run(
        [sys.executable, "-c", _START, *arguments],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
    )
    if done.returncode != 0:
        raise RunError(f"opening a bus failed: {done.stderr.strip()}")
    times_s: list[float] = json.loads(done.stdout)
    return times_s


def measure_unwanted(arena: Arena, plan: Plan) -> Iterator[Sample]:
    """A burst is queued while the receivers are stopped; then each works it off, alone.

    So the sender's speed does not matter, and no receiver sleeps between two datagrams. The
    publisher is of mode basic, the only one that sends what nobody wants, and its datagrams hold
    just one message: a batch has no one topic to be refused by.
    """
    burst = window_for(UNWANTED_BYTES, arena.receive_buffer_bytes) // 2
    systems = ["jsonbus", "bare-recv"]
    for repetition in range(plan.repetitions):
        say(f"unwanted {repetition + 1}/{plan.repetitions}")
        with Run(
            arena,
            "jsonbus",
            publisher_system="jsonbus-2000",
            subscriber_systems=systems,
            publisher_options={"mode": "basic", "topic": TOPIC},
            value_bytes=UNWANTED_BYTES,
            topic=TOPIC_NOBODY_WANTS,
        ) as run:
            run.publisher.ask("blast", count=burst)
            time.sleep(2.0)  # past joining, which would cost CPU in between
            figures_s: list[list[float]] = [[], []]
            for _ in range(BURSTS):
                for index, figure_s in enumerate(_work_off(run, burst)):
                    figures_s[index].append(figure_s)
            _, reports = run.close()
        stats = reports[0]["stats"]
        extra = {"received": stats["messages_unwanted"], "sent": (BURSTS + 1) * burst}
        for system, used_s in zip(systems, figures_s, strict=True):
            figure = 1e6 * statistics.median(used_s) / burst
            yield Sample("unwanted", system, figure, extra if system == "jsonbus" else {})


def measure_memory(arena: Arena, plan: Plan) -> Iterator[Sample]:
    """Resident memory of a subscriber with a handler while messages come, in equal steps."""
    count = max(1, plan.memory_messages // MEMORY_STEPS)
    sizes_mb: list[float] = []
    with Run(arena, "jsonbus") as run:
        run.probe()
        (subscriber,) = run.subscribers
        at_first_mb = resident_mb(subscriber.pid)
        received = 0
        for step in range(1, MEMORY_STEPS + 1):
            say(f"memory {step}/{MEMORY_STEPS}")
            received += run.flood(count).deliveries
            sizes_mb.append(resident_mb(subscriber.pid))
            yield Sample("memory-curve", f"{step * count:,}", sizes_mb[-1])
    extra = {"received": received, "sent": MEMORY_STEPS * count}
    yield Sample("memory", "before the first message", at_first_mb)
    yield Sample("memory", "at the end", sizes_mb[-1], extra)
    # The first half fills caches and the allocator's pools.
    yield Sample("memory", "growth", sizes_mb[-1] - sizes_mb[MEMORY_STEPS // 2 - 1])


def resident_mb(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    found = re.search(r"^VmRSS:\s+(\d+) kB", status, re.MULTILINE)
    assert found is not None
    return int(found[1]) * 1024 / 1e6


def _work_off(run: Run, burst: int) -> list[float]:
    """Return the CPU seconds that each subscriber needs for a burst."""
    used_s = []
    pids = [subscriber.pid for subscriber in run.subscribers]
    try:
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        run.publisher.ask("blast", count=burst)
        for pid in pids:
            before_s = cpu_clock_s(pid)
            os.kill(pid, signal.SIGCONT)
            _wait_until_idle(pid)
            used_s.append(cpu_clock_s(pid) - before_s)
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)
    return used_s


def _wait_until_idle(pid: int) -> None:
    deadline = time.monotonic() + IDLE_S_MAX
    before_s = -1.0
    while time.monotonic() < deadline:
        time.sleep(IDLE_S)
        now_s = cpu_clock_s(pid)
        if now_s == before_s:
            return
        before_s = now_s
