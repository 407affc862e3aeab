"""Measure the cost of recording and the precision of a replay, on loopback.

    python3 -m tools.bench recording --quick

Recording: one process floods the bus, another records it (`jsonbus record`), or only counts the
messages in a handler with in_batches. CPU is of the process that receives, from the kernel's own
accounts, less that of one that receives ten messages.

Replaying: values are published at 1,000 a second and recorded, replayed, and recorded again.
"At the publisher" is how late `publish` was called; "at a subscriber" is by how much the second
recording differs from the first, both counted from their first messages. Beside it, on the same
machine at the same time of day, a loop that does nothing but sleep.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import jsonbus
from jsonbus.recording import Player, open_recording

PORT = 24_169
SUFFIXES = ("jsonl", "jsonl.gz", "mcap")
VALUE = {"temp": 21.5, "unit": "C", "name": "kitchen sensor", "ok": True, "seq": 0}

COUNTER = """
import sys, threading, jsonbus
wanted, got, done = int(sys.argv[1]), 0, threading.Event()
def take(messages):
    global got
    got += len(messages)
    if got >= wanted:
        done.set()
with jsonbus.Bus() as bus:
    bus.subscribe("**", take, in_batches=True, overflow="block", maxsize=10_000)
    assert done.wait(120)
"""


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python3 -m tools.bench recording", description=__doc__.partition("\n")[0]
    )
    parser.add_argument("--quick", action="store_true", help="a tenth of the messages, once")
    is_quick = parser.parse_args(arguments).quick
    os.environ.update(JSONBUS_PORT=str(PORT), JSONBUS_INTERFACE="lo")
    with tempfile.TemporaryDirectory() as folder:
        measure_recording(Path(folder), 100_000 if is_quick else 1_000_000, 1 if is_quick else 3)
        measure_replaying(Path(folder), 2_000 if is_quick else 10_000, 1 if is_quick else 3)
    return 0


def measure_recording(folder: Path, count: int, repetitions: int) -> None:
    print("| receiver | messages/s | CPU per message | of which recording | bytes per message |")
    print("|---|---:|---:|---:|---:|")
    for _ in range(repetitions):
        bare_us = 0.0
        for name in ("handler that counts", *SUFFIXES):
            path = None if name not in SUFFIXES else folder / f"run.{name}"
            few_s, _ = run_receiver(path, 10)
            many_s, rate = run_receiver(path, count)
            cpu_us = (many_s - few_s) / count * 1e6
            bare_us = bare_us or cpu_us
            size = "" if path is None else f"{path.stat().st_size / count:.0f}"
            print(
                f"| {name} | {rate:,.0f} | {cpu_us:.2f} µs | {cpu_us - bare_us:.2f} µs | {size} |"
            )


def run_receiver(path: Path | None, count: int) -> tuple[float, float]:
    """Return the CPU seconds of the receiver, and messages per second."""
    if path is None:
        command = ["-c", COUNTER, str(count)]
    else:
        command = ["-m", "jsonbus", "record", "-q", "--force", "--count", str(count), str(path)]
    receiver = subprocess.Popen([sys.executable, *command])
    with jsonbus.Bus() as bus:
        assert bus.wait_for_subscribers("s/0", timeout=30)
        topics = [f"s/{each}" for each in range(10)]
        began_at = time.monotonic()
        for number in range(count):
            VALUE["seq"] = number
            bus.publish(topics[number % 10], VALUE)
        assert bus.flush(timeout=60)
        _, status, usage = os.wait4(receiver.pid, 0)
        seconds = time.monotonic() - began_at
    receiver.returncode = status
    assert status == 0, "messages are missing"
    return usage.ru_utime + usage.ru_stime, count / seconds


def measure_replaying(folder: Path, count: int, repetitions: int) -> None:
    first, second = folder / "first.jsonl", folder / "second.jsonl"
    recorder = start_recorder(first, count)
    with jsonbus.Bus() as bus:
        assert bus.wait_for_subscribers("s/0", timeout=30)
        sleep_through(count, lambda number: bus.publish(f"s/{number % 10}", VALUE))
    assert recorder.wait(60) == 0
    print("\n| error at 1,000 messages/s | median | 99 % | 99.9 % | largest | CPU |")
    print("|---|---:|---:|---:|---:|---:|")
    for _ in range(repetitions):
        recorder = start_recorder(second, count)
        lags, cpu_share = replay(first)
        assert recorder.wait(60) == 0
        show("at the publisher", lags, cpu_share)
        show("at a subscriber", differences(first, second))
        show("a loop that only sleeps", sleep_through(count, lambda number: None))


def replay(path: Path) -> tuple[list[float], float]:
    """Return how late each message was published, and the part of a core that took."""
    lags: list[float] = []

    def publish(topic: str, value: object, *, retain: bool = False) -> bool:
        lags.append(player.lag_s)
        return bus.publish(topic, value, retain=retain)

    with jsonbus.Bus() as bus:
        assert bus.wait_for_subscribers("s/0", timeout=30)
        player = Player(publish)
        cpu_s, began_at = time.process_time(), time.monotonic()
        player.play(open_recording(path).timed())
        return lags, (time.process_time() - cpu_s) / (time.monotonic() - began_at)


def start_recorder(path: Path, count: int) -> subprocess.Popen[bytes]:
    command = ["-m", "jsonbus", "record", "-q", "--force", "--count", str(count), str(path)]
    return subprocess.Popen([sys.executable, *command])


def differences(first: Path, second: Path) -> list[float]:
    before, after = list(open_recording(first)), list(open_recording(second))
    assert [each.value for each in before] == [each.value for each in after]
    return [
        abs((late.received_at - after[0].received_at) - (early.received_at - before[0].received_at))
        for early, late in zip(before, after, strict=True)
    ]


def sleep_through(count: int, act) -> list[float]:  # type: ignore[no-untyped-def]
    """Do something 1,000 times a second; returns by how much each was late."""
    began_at, lags = time.monotonic(), []
    for number in range(count):
        while (wait_s := began_at + number / 1000 - time.monotonic()) > 0:
            time.sleep(wait_s)
        lags.append(time.monotonic() - began_at - number / 1000)
        act(number)
    return lags


def show(name: str, errors: Sequence[float], cpu_share: float | None = None) -> None:
    ordered = sorted(errors)
    cells = [f"{ordered[int(len(ordered) * each)] * 1e3:.2f} ms" for each in (0.5, 0.99, 0.999)]
    cells.append(f"{ordered[-1] * 1e3:.2f} ms")
    cpu = "" if cpu_share is None else f"{cpu_share:.1%} of a core"
    print(f"| {name} | {' | '.join(cells)} | {cpu} |")
