"""Commands as real processes, on loopback and a port of the test's own."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import jsonbus
from tests.helpers import find_free_port, heeding_hangup, wait_until

ROOT = Path(__file__).parents[2]

#: The command line, for a shell.
JSONBUS = f"{shlex.quote(sys.executable)} -m jsonbus"


class Process:
    """A running command; what it prints is read while it runs."""

    def __init__(
        self,
        args: Sequence[str],
        port: int,
        *,
        stdin: int = subprocess.DEVNULL,
        stdout: int = subprocess.PIPE,
    ) -> None:
        with heeding_hangup():
            self._popen = subprocess.Popen(
                args,
                cwd=ROOT,
                env={**os.environ, "JSONBUS_PORT": str(port), "JSONBUS_INTERFACE": "lo"},
                stdin=stdin,
                stdout=stdout,
                stderr=subprocess.PIPE,
                text=True,
                start_new_session=True,
            )
        self.lines: list[str] = []
        self.complaints: list[str] = []
        streams = [(self._popen.stdout, self.lines), (self._popen.stderr, self.complaints)]
        self._readers = [
            _start_reading(stream, lines) for stream, lines in streams if stream is not None
        ]

    @property
    def pid(self) -> int:
        return self._popen.pid

    @property
    def stdin(self) -> IO[str]:
        assert self._popen.stdin is not None
        return self._popen.stdin

    @property
    def results(self) -> list[Any]:
        """What it printed so far, as JSON."""
        return [json.loads(line) for line in self.lines]

    @property
    def has_ended(self) -> bool:
        return self._popen.poll() is not None

    def send_signal(self, number: int) -> None:
        self._popen.send_signal(number)

    def wait(self, timeout_s: float = 60.0) -> int:
        """Wait for its end and return the exit code; `lines` and `complaints` are complete."""
        code = self._popen.wait(timeout_s)
        for reader in self._readers:
            reader.join(timeout_s)
        return code

    def expect_exit(self, code: int) -> None:
        """Wait for its end, which must be this one."""
        assert self.wait() == code, self.complaints

    def end(self) -> None:
        """Kill it and the processes that it started."""
        if self._popen.stdin is not None:
            self._popen.stdin.close()
        try:
            os.killpg(self._popen.pid, signal.SIGKILL)  # it leads a group of its own
        except ProcessLookupError:
            pass
        self._popen.wait()
        for reader in self._readers:
            reader.join()


class Desk:
    """A place to start commands that can hear each other, and nobody else."""

    def __init__(self) -> None:
        self.port = find_free_port()
        self._processes: list[Process] = []
        self._observer: jsonbus.Bus | None = None

    @property
    def observer(self) -> jsonbus.Bus:
        """A node in this process that knows the others; it joins at the first use."""
        if self._observer is None:
            self._observer = jsonbus.Bus(name="observer", port=self.port, interface="lo")
        return self._observer

    def start(self, *args: str, port: int | None = None, **streams: int) -> Process:
        """Start `jsonbus` with these arguments."""
        command = [sys.executable, "-m", "jsonbus", *args]
        return self._started(Process(command, port or self.port, **streams))

    def start_python(self, script: str) -> Process:
        return self._started(Process([sys.executable, "-c", script], self.port))

    def start_command(self, args: Sequence[str], **streams: int) -> Process:
        """Start any program."""
        return self._started(Process(args, self.port, **streams))

    def start_shell(self, script: str, port: int | None = None) -> Process:
        """Start a shell; in the script, `jsonbus` is the command line."""
        # A function would be another shell in a pipeline, between us and the command's signals.
        return self._started(
            Process(["bash", "-c", script.replace("jsonbus ", f"{JSONBUS} ")], port or self.port)
        )

    def run(self, *args: str) -> Process:
        """Run `jsonbus` with these arguments to its end; it must succeed."""
        process = self.start(*args)
        process.expect_exit(0)
        return process

    def subscribe(self, *args: str) -> Process:
        """Start `jsonbus sub` and wait until others know of it."""
        name = f"subscriber-{len(self._processes)}"
        process = self.start("sub", "--name", name, *args)
        self.wait_for_node(name)
        return process

    def names(self) -> list[str]:
        """Return the names of the nodes on the bus, without the observer."""
        return [info.name for info in self.observer.nodes() if not info.is_self]

    def wait_for_node(self, name: str) -> None:
        """Wait until a node of this name is on the bus, with its subscriptions."""
        observer = self.observer
        self.wait_until(
            lambda: any(info.name == name and info.patterns for info in observer.nodes())
        )

    def wait_until(self, condition: Callable[[], object]) -> None:
        """Processes take their time to start on a busy machine; so this waits long."""
        assert wait_until(condition, timeout_s=120), [each.complaints for each in self._processes]

    def close(self) -> None:
        if self._observer is not None:
            self._observer.close()
        for process in self._processes:
            process.end()

    def _started(self, process: Process) -> Process:
        self._processes.append(process)
        return process


@contextmanager
def desk() -> Iterator[Desk]:
    opened = Desk()
    try:
        yield opened
    finally:
        opened.close()


def _start_reading(stream: IO[str], lines: list[str]) -> threading.Thread:
    def read() -> None:
        with stream:
            for line in stream:
                lines.append(line.rstrip("\n"))

    thread = threading.Thread(target=read, name="test-reader")
    thread.start()
    return thread
