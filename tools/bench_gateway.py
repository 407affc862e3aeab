"""Measure the gateway: what durability costs a publish, and what a line costs among many clients.

    python3 tools/bench_gateway.py              a minute or two
    python3 tools/bench_gateway.py --quick      once, with little
    python3 tools/bench_gateway.py --json gateway.json

Everything runs on loopback, clients and webhook as processes beside the gateway. What is compared
runs alternately in each repetition; medians of all, ratios within a repetition.

  publish   32 connections, each publishes and waits for the answer: to a topic without a webhook,
            to one with a webhook whose backlog is in memory, and to one with it on disk.
  text      a message to 1,000 text clients, against a bare asyncio server that repeats lines; the
            next one when all have it.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import statistics
import subprocess
import sys
import tempfile
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from _setup import ROOT, set_up

sys.path.insert(0, str(ROOT))

try:
    import fastapi  # noqa: F401 - whether it is there
    from bench_child import cpu_clock_s, end_with_parent
except ModuleNotFoundError:  # run by a Python without the dependencies: fetch them once
    if __name__ != "__main__":
        raise
    sys.exit(subprocess.run([str(set_up(extras=("gateway",))), *sys.argv]).returncode)

LOAD = Path(__file__).parent / "bench_gateway_load.py"
CONNECTIONS = 32
CLIENTS = 1_000
TOPIC = "bench"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="once, with little")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures there")
    options = parser.parse_args()
    repetitions, seconds, messages = (1, 2.0, 20) if options.quick else (5, 5.0, 100)
    results: list[dict[str, Any]] = []
    for number in range(repetitions):
        print(f"repetition {number + 1} of {repetitions}", file=sys.stderr)
        results.append({**measure_publish(seconds), **measure_text(messages)})
    print(make_report(results))
    if options.json:
        options.json.write_text(json.dumps({"results": results}, indent=2) + "\n")
    return 0


def measure_publish(seconds: float) -> dict[str, Any]:
    figures: dict[str, Any] = {}
    for kind in ("no_webhook", "in_memory", "on_disk"):
        with tempfile.TemporaryDirectory(prefix="jsonbus-bench-", dir=".") as folder:
            where = ["--data-dir", folder] if kind == "on_disk" else ["--in-memory"]
            with running_gateway(*where) as gateway, running("receive") as receiver:
                port = _line(receiver)
                if kind != "no_webhook":
                    _ask(
                        gateway.http,
                        "subscribe",
                        topic=TOPIC,
                        subscriberName="bench",
                        url=f"http://127.0.0.1:{port}/",
                    )
                url = f"{gateway.http}/publish?topic={TOPIC}&message=21.5"
                cpu_s = cpu_clock_s(gateway.pid)
                output = subprocess.run(
                    [sys.executable, str(LOAD), "publish", url, str(CONNECTIONS), str(seconds)],
                    capture_output=True,
                    text=True,
                    check=True,
                ).stdout
                cpu_s = cpu_clock_s(gateway.pid) - cpu_s
        load = json.loads(output)
        if not load["acknowledged"] or load["refused"]:
            raise SystemExit(f"publishing failed: {load}")
        figures[kind] = {
            "per_s": load["acknowledged"] / load["seconds"],
            "cpu_us": 1e6 * cpu_s / load["acknowledged"],
            "p50_ms": load["p50_ms"],
            "p99_ms": load["p99_ms"],
        }
    return figures


def measure_text(messages: int) -> dict[str, Any]:
    return {"text": _text_gateway(messages), "text_floor": _text_floor(messages)}


def _text_gateway(messages: int) -> dict[str, float]:
    with running_gateway("--in-memory") as gateway:
        host, port = gateway.text.rsplit(":", 1)
        hello = f"subscribe {TOPIC}\n"
        return _fan_out(gateway.pid, host, int(port), hello, f"publish {TOPIC} 21.5\n", messages)


def _text_floor(messages: int) -> dict[str, float]:
    with running("repeat") as repeater:
        port = int(_line(repeater))
        return _fan_out(repeater.pid, "127.0.0.1", port, "", f"{TOPIC} 21.5\n", messages)


def _fan_out(
    pid: int, host: str, port: int, hello: str, line: str, messages: int
) -> dict[str, float]:
    arguments = (host, str(port), str(CLIENTS), hello, line, str(messages))
    with running("listen", *arguments) as listeners:
        assert _line(listeners) == "ready"
        cpu_s = cpu_clock_s(pid)
        assert listeners.stdin is not None
        print("go", file=listeners.stdin, flush=True)
        assert _line(listeners) == "done"
        cpu_s = cpu_clock_s(pid) - cpu_s
    return {"cpu_us": 1e6 * cpu_s / (messages * CLIENTS)}


class RunningGateway:
    """A gateway, its process and where it is."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.pid = process.pid
        assert process.stderr is not None
        line = ""
        for line in process.stderr:
            if " serves http://" in line:
                break
        else:
            raise SystemExit(f"the gateway did not start: {line}")
        words = line.split()
        self.http = next(word for word in words if word.startswith("http://")).rstrip(",;")
        self.text = words[words.index("text") + 2].rstrip(",;")


@contextmanager
def running_gateway(*options: str) -> Iterator[RunningGateway]:
    limits = ["--backlog", "10000000", "--total-backlog", "10000000"]
    command = [sys.executable, "-m", "jsonbus", "gateway", "0", "--tcp-port", "0", *limits]
    process = subprocess.Popen(
        [*end_with_parent(), *command, "--interface", "lo", "--port", _free_port(), *options],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    try:
        yield RunningGateway(process)
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate()


@contextmanager
def running(what: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [*end_with_parent(), sys.executable, str(LOAD), what, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.communicate()


def _line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def _free_port() -> str:
    import socket

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


def _ask(base: str, path: str, **parameters: str) -> None:
    query = urllib.parse.urlencode(parameters)
    with urllib.request.urlopen(f"{base}/{path}?{query}", timeout=30) as answer:
        answer.read()


def make_report(results: list[dict[str, Any]]) -> str:
    def median(kind: str, name: str) -> float:
        return statistics.median(each[kind][name] for each in results)

    def ratio(kind: str, name: str, to: str) -> float:
        return statistics.median(each[kind][name] / each[to][name] for each in results)

    lines = [
        f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}; "
        f"{len(results)} repetitions, medians",
        "",
        f"publish, {CONNECTIONS} connections   answers/s   CPU µs each   p50 ms   p99 ms",
    ]
    for kind in ("no_webhook", "in_memory", "on_disk"):
        lines.append(
            f"  {kind.replace('_', ' '):<24} {median(kind, 'per_s'):>11,.0f} "
            f"{median(kind, 'cpu_us'):>13.0f} {median(kind, 'p50_ms'):>8.1f} "
            f"{median(kind, 'p99_ms'):>8.1f}"
        )
    lines += [
        f"  on disk / in memory      {ratio('on_disk', 'per_s', 'in_memory'):>11.2f} "
        f"{ratio('on_disk', 'cpu_us', 'in_memory'):>13.2f}",
        "",
        f"text, one line to {CLIENTS:,} clients: CPU µs per client",
        f"  gateway                  {median('text', 'cpu_us'):>11.2f}",
        f"  bare asyncio server      {median('text_floor', 'cpu_us'):>11.2f}",
        f"  ratio                    {ratio('text', 'cpu_us', 'text_floor'):>11.2f}",
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
