"""Workloads at a low rate, where every message comes alone: delay, CPU, wake-ups, system calls."""

from __future__ import annotations

import re
import shutil
import subprocess
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tools._setup import say
from tools.bench.arena import Arena
from tools.bench.bus.floods import Plan, interleave
from tools.bench.bus.run import ANSWER_S, Run, RunError, quantile
from tools.bench.measures import Sample

RATE = 1_000.0
WARM_UP = 200
SHORT_INTERVAL_S = 0.0005
BUSY_CASES: dict[str, tuple[str, float | None]] = {
    "raw": ("raw", None),
    "raw, switch interval 0.5 ms": ("raw", SHORT_INTERVAL_S),
    "jsonbus": ("jsonbus", None),
    "jsonbus, switch interval 0.5 ms": ("jsonbus", SHORT_INTERVAL_S),
}
SYSTEMS = ("raw", "jsonbus", "jsonbus-aio")
#: Messages whose system calls are counted: strace makes each of them slow.
COUNTED_MAX = 1_000
#: How long strace may take to attach to a process, or to leave it.
STRACE_S = 10.0
_CALLS = re.compile(r"^ *[\d.]+ +[\d.]+ +\d+ +(\d+)(?: +\d+)? +(\w+)$", re.MULTILINE)


def measure_latency(arena: Arena, plan: Plan) -> Iterator[Sample]:
    """One way, and the CPU of both sides for a message, in one run."""

    def measure(system: str) -> Iterable[Sample]:
        with Run(arena, system, has_stamps=True) as run:
            run.probe()
            yield from take_delays("latency", system, run, plan.latency_messages)

    yield from interleave("latency", (*SYSTEMS, *plan.peers), plan, measure)


def measure_busy(arena: Arena, plan: Plan) -> Iterator[Sample]:
    """One way into a process whose main thread computes in pure Python."""

    def measure(case: str) -> Iterable[Sample]:
        system, interval_s = BUSY_CASES[case]
        busy = {"has_stamps": True, "is_busy": True, "switch_interval_s": interval_s}
        with Run(arena, system, **busy) as run:
            run.probe()
            yield from list(take_delays("busy", case, run, plan.latency_messages))[:2]

    yield from interleave("busy", tuple(BUSY_CASES), plan, measure)


def measure_calls(arena: Arena, plan: Plan) -> Iterator[Sample]:
    """System calls of a subscriber per message, counted by strace, and the commonest of them."""
    if shutil.which("strace") is None:
        say("no system calls are counted: strace is not installed")
        return

    def measure(system: str) -> Iterable[Sample]:
        with Run(arena, system, has_stamps=True) as run:
            run.probe()
            _tick(run, WARM_UP)
            count = min(COUNTED_MAX, plan.latency_messages)
            with TemporaryDirectory() as folder:
                table = Path(folder) / "calls"
                strace = _attach(run.subscribers[0].pid, table)
                _tick(run, count)
                strace.terminate()
                strace.wait(STRACE_S)
                calls = {name: int(times) for times, name in _CALLS.findall(table.read_text())}
        calls.pop("total", None)
        commonest = sorted(calls, key=lambda name: -calls[name])[:4]
        shown = ", ".join(f"{name} {calls[name] / count:.1f}" for name in commonest)
        yield Sample("calls", system, sum(calls.values()) / count, {"commonest": shown})

    yield from interleave("calls", (*SYSTEMS, *plan.peers), plan, measure)


def take_delays(measure: str, row: str, run: Run, count: int) -> Iterator[Sample]:
    _tick(run, WARM_UP)
    switches = _count_switches(run.subscribers[0].pid)
    published, report = _tick(run, count)
    switches = _count_switches(run.subscribers[0].pid) - switches
    delays_us = [delay_ns / 1000 for delay_ns in report["delays_ns"]]
    extra = {"received": report["received"], "sent": count}
    yield Sample(f"{measure}-p50", row, quantile(delays_us, 0.50), extra)
    yield Sample(f"{measure}-p99", row, quantile(delays_us, 0.99), extra)
    publisher_us = 1e6 * published["cpu_s"] / count
    subscriber_us = 1e6 * report["cpu_s"] / count
    sides = {"publisher_us": publisher_us, "subscriber_us": subscriber_us}
    more = {**sides, "switches": switches / count}
    yield Sample("calm", row, publisher_us + subscriber_us, more)


def _tick(run: Run, count: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """Publish at a low rate; the publisher's figures and the subscriber's report."""
    run.begin(count)
    timeout_s = ANSWER_S + 10 * count / RATE
    published = run.publisher.ask("tick", timeout_s, count=count, rate=RATE)
    (report,) = run.settle(count)
    return published, report


def _count_switches(pid: int) -> int:
    """How often the threads of a process have waited so far."""
    tasks = Path(f"/proc/{pid}/task").glob("*/status")
    texts = [each.read_text() for each in tasks]
    found = (re.search(r"^voluntary_ctxt_switches:\s+(\d+)", each, re.MULTILINE) for each in texts)
    return sum(int(each[1]) for each in found if each)


def _attach(pid: int, table: Path) -> subprocess.Popen[bytes]:
    """Count the system calls of a process, all threads, until this one is terminated."""
    command = ["strace", "-f", "-c", "-q", "-p", str(pid), "-o", str(table)]
    strace = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + STRACE_S
    while f"TracerPid:\t{strace.pid}\n" not in Path(f"/proc/{pid}/status").read_text():
        if strace.poll() is not None or time.monotonic() > deadline:
            strace.kill()
            raise RunError("strace cannot attach to a subscriber: run as root")
        time.sleep(0.01)
    return strace
