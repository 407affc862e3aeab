"""The processes of the benchmark of the gateway: a gateway and those around it."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from tools._setup import ROOT
from tools.bench.child import ANSWER_S, cpu_clock_s, end_with_parent

LOAD = "tools.bench.gateway.clients"
NODES = "tools.bench.gateway.nodes"
HTTP = "tools.bench.gateway.http_alone"

ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT)}

#: A count that does not change for so long is the last one.
QUIET_S = 0.4
QUIET_S_MAX = 60.0


class Helper:
    """A process that says a line when it is ready, and answers lines with lines."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.greeting = self._hear()

    @property
    def cpu_s(self) -> float:
        return cpu_clock_s(self._process.pid)

    def ask(self, line: object = "") -> str:
        assert self._process.stdin is not None
        print(line, file=self._process.stdin, flush=True)
        return self._hear()

    def settle(self) -> int:
        """What it has got when nothing more comes."""
        deadline = time.monotonic() + QUIET_S_MAX
        count, changed_at = int(self.ask()), time.monotonic()
        while (now := time.monotonic()) < changed_at + QUIET_S and now < deadline:
            time.sleep(QUIET_S / 8)
            if (found := int(self.ask())) != count:
                count, changed_at = found, time.monotonic()
        return count

    def _hear(self) -> str:
        """The next line; it says one at a time, so none waits unread in a buffer of ours."""
        assert self._process.stdout is not None
        readable, _, _ = select.select([self._process.stdout], [], [], ANSWER_S)
        line = self._process.stdout.readline() if readable else ""
        if not line:
            what = "ended" if readable else f"did not answer within {ANSWER_S:.0f} s"
            self._process.kill()
            raise SystemExit(f"a process of the benchmark {what}: {self._process.args!r}")
        return line.strip()


@contextmanager
def running(module: str, *arguments: object) -> Iterator[Helper]:
    """A helper, until its standard input ends with the block."""
    process = subprocess.Popen(
        [*end_with_parent(), sys.executable, "-m", module, *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=ENVIRONMENT,
    )
    try:
        yield Helper(process)
    finally:
        process.communicate()


class RunningGateway:
    """A gateway: where it is, and what it has used of the processor."""

    def __init__(self, process: subprocess.Popen[str], bus_port: int) -> None:
        self._pid = process.pid
        self.bus_port = bus_port
        assert process.stderr is not None
        line = ""
        for line in process.stderr:
            if " serves http://" in line:
                break
        else:
            raise SystemExit(f"the gateway did not start: {line}")
        words = line.split()
        url = next(word for word in words if word.startswith("http://"))
        self.http = url.removeprefix("http://").rstrip(",;")
        self.text = words[words.index("text") + 2].rstrip(",;")

    @property
    def cpu_s(self) -> float:
        return cpu_clock_s(self._pid)

    def ask(self, path: str, **parameters: str) -> None:
        query = urllib.parse.urlencode(parameters)
        with urllib.request.urlopen(f"http://{self.http}/{path}?{query}", timeout=30) as answer:
            answer.read()


@contextmanager
def running_gateway(*options: str) -> Iterator[RunningGateway]:
    bus_port = free_port()
    limits = ["--backlog", "10000000", "--total-backlog", "10000000"]
    command = [sys.executable, "-m", "jsonbus", "gateway", "0", "--tcp-port", "0", *limits]
    process = subprocess.Popen(
        [*end_with_parent(), *command, "--interface", "lo", "--port", str(bus_port), *options],
        stderr=subprocess.PIPE,
        text=True,
        env=ENVIRONMENT,
    )
    try:
        yield RunningGateway(process, bus_port)
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate()


def publish(address: str, kind: str, connections: int, seconds: float) -> dict[str, float]:
    """Have requests sent for so long, and all of them answered with 200."""
    arguments: Sequence[object] = ("publish", address, kind, connections, seconds)
    output = subprocess.run(
        [sys.executable, "-m", LOAD, *map(str, arguments)],
        env=ENVIRONMENT,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    ).stdout
    load: dict[str, float] = json.loads(output)
    if not load["acknowledged"] or load["refused"]:
        raise SystemExit(f"publishing failed: {load}")
    return load


def free_port() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
