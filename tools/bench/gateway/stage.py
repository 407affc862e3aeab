"""The processes of the benchmark of the gateway: a gateway and those around it."""

from __future__ import annotations

import json
import os
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
from tools.bench.child import Child, RunError, cpu_clock_s, end_with_parent

LOAD = "tools.bench.gateway.clients"
NODES = "tools.bench.gateway.nodes"
HTTP = "tools.bench.gateway.http_alone"

ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT)}

#: A count that does not change for so long is the last one.
QUIET_S = 0.4
QUIET_S_MAX = 60.0


class Helper(Child):
    """A process beside the gateway; `greeting` is what it said when it was ready."""

    def __init__(self, module: str, *arguments: object) -> None:
        super().__init__(module.rpartition(".")[2], module, [*map(str, arguments)], ENVIRONMENT)
        self.greeting: str = str(self.hear()["ready"])

    @property
    def cpu_s(self) -> float:
        return cpu_clock_s(self.pid)

    def count(self) -> int:
        """How much it has got so far."""
        return int(self.ask("count")["count"])

    def settle(self) -> int:
        """How much it has got when nothing more comes."""
        deadline = time.monotonic() + QUIET_S_MAX
        count, changed_at = self.count(), time.monotonic()
        while (now := time.monotonic()) < changed_at + QUIET_S and now < deadline:
            time.sleep(QUIET_S / 8)
            if (found := self.count()) != count:
                count, changed_at = found, time.monotonic()
        return count


@contextmanager
def running(module: str, *arguments: object) -> Iterator[Helper]:
    """A helper, until the block ends."""
    helper = Helper(module, *arguments)
    try:
        yield helper
    finally:
        helper.end()


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
            raise RunError(f"the gateway did not start: {line}")
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
        raise RunError(f"publishing failed: {load}")
    return load


def free_port() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
