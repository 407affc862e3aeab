"""Start, read and end the processes of the demo, and place its buses on this machine alone.

Each process has its own session, so Ctrl-C reaches the demo alone, which then ends the others in
order. A process is asked to end by closing its standard input; if it does not, it is terminated,
and finally killed with its process group. Each step takes a bounded time.

One thread per process reads its output and passes it on line by line. The thread ends with the
process and everything that process started, since all of them hold the other end of the pipe.
Lines that are no report, such as a traceback, are kept for `Child.complaint`.

As a program, this module runs another module and ends it together with standard input, so that
the bridge never outlives the demo, not even if the demo is killed:

    python -m jsonbus.demo.processes jsonbus bridge 'sensors/**'
"""

from __future__ import annotations

import os
import runpy
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from jsonbus.config import ENVIRONMENT_PREFIX

#: By address, since loopback has different names (lo, lo0). TTL 0: no datagram can leave the
#: machine.
LOOPBACK = "127.0.0.1"
TTL = 0

#: Below the ports that operating systems hand out.
PORTS = range(10_000, 32_000)

#: A process that is asked to end says goodbye to the bus, which takes a moment on a busy machine.
ASKED_S = 5.0
TERMINATED_S = 1.0
#: The children of a killed process end by themselves, a moment later.
SILENT_S = 10.0

#: Lines of a traceback that are kept.
COMPLAINT_LINES_MAX = 50

#: How a command introduces its error; less important lines may follow.
ERROR_PREFIX = "Error: "


class DemoError(Exception):
    """The demo cannot go on; the text is for people."""


class Child:
    """A running Python module. Call its methods from the thread that created it.

    `hear` is called in a thread with each line that the process writes. It returns False for a
    line that is not a report.
    """

    def __init__(
        self,
        name: str,
        arguments: Sequence[str],
        hear: Callable[[str], bool],
        *,
        folder: Path | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self._hear = hear
        self._complaint: deque[str] = deque(maxlen=COMPLAINT_LINES_MAX)
        self._process = process = subprocess.Popen(
            # -P and PYTHONPATH: the same modules as here, whatever the current folder is.
            [sys.executable, "-P", "-m", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            encoding="utf-8",
            errors="replace",
            env={**_environment(), **(environment or {})},
            cwd=folder,
            start_new_session=True,
        )
        assert process.stdin is not None and process.stdout is not None
        self._input, self._output = process.stdin, process.stdout
        self._reader = threading.Thread(target=self._read, name=f"jsonbus-demo-{name}", daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """None while it runs."""
        return self._process.poll()

    @property
    def complaint(self) -> str:
        """Why it failed: the error it reported, or else its last line, as of a traceback."""
        errors = [each for each in self._complaint if each.startswith(ERROR_PREFIX)]
        if errors:
            return errors[-1].removeprefix(ERROR_PREFIX)
        return self._complaint[-1] if self._complaint else f"exit code {self._process.returncode}"

    def write_line(self, line: str) -> None:
        """Write a line to its standard input."""
        with suppress(OSError):  # it has ended, which the stage notices
            self._input.write(line + "\n")
            self._input.flush()

    def ask_to_end(self) -> None:
        with suppress(OSError):  # it has ended already
            self._input.close()

    def terminate(self) -> None:
        self._process.terminate()  # does nothing to a process that has ended

    def kill(self) -> None:
        """Kill it and its process group. Does nothing if it has ended."""
        if self._process.poll() is None:  # else another process may have its id
            os.killpg(self._process.pid, signal.SIGKILL)

    def wait(self, timeout_s: float | None = None) -> None:
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout_s)

    def release(self) -> None:
        """Read its last words and close the pipes, after its end."""
        self.ask_to_end()
        self._reader.join(SILENT_S)
        if not self._reader.is_alive():
            self._output.close()

    def _read(self) -> None:
        for line in self._output:
            if not self._hear(line) and line.strip():
                self._complaint.append(line.strip())


def end_processes(processes: Sequence[Child]) -> None:
    """End all of them in bounded time; Ctrl-C ends them at once. All their output has been read."""
    try:
        for each in processes:
            each.ask_to_end()
        _wait_for_all(processes, ASKED_S)
        for each in processes:
            each.terminate()
        _wait_for_all(processes, TERMINATED_S)
    finally:
        kill_processes(processes)


def kill_processes(processes: Sequence[Child]) -> None:
    """End all of them at once."""
    for each in processes:
        each.kill()
    for each in processes:
        each.wait()
        each.release()


def find_free_port() -> int:
    """Return a UDP port that no socket uses, so that the demo has a bus to itself."""
    start = int.from_bytes(os.urandom(2), "big")
    for step in range(len(PORTS)):
        port = PORTS[(start + step) % len(PORTS)]
        with suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.bind(("", port))  # without SO_REUSEADDR: refused if any socket has it
            return port
    raise DemoError("no UDP port is free")


def _wait_for_all(processes: Sequence[Child], timeout_s: float) -> None:
    deadline = time.monotonic() + timeout_s
    for each in processes:
        each.wait(max(0.0, deadline - time.monotonic()))


def _environment() -> dict[str, str]:
    """Return this process's environment without settings of the bus: the demo has its own."""
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(ENVIRONMENT_PREFIX)
    }
    environment["PYTHONPATH"] = os.pathsep.join(each or os.getcwd() for each in sys.path)
    environment["PYTHONIOENCODING"] = "utf-8"
    return environment


def _terminate_after_input() -> None:
    while os.read(0, 1024):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    threading.Thread(target=_terminate_after_input, daemon=True).start()
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
