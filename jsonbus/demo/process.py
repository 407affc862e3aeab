"""A process of the demo: started, heard and, whatever happens, ended.

Each has a session of its own, so that Ctrl-C reaches the demo alone, which then ends the others in
order. A process is asked to end by closing its standard input; one that does not is terminated, and
killed at last with its group, each after a bounded time and by its own process id.

One thread per process reads what it tells and hands it on line by line; it ends with the process
and whatever that has started, since all of them hold the other end of the pipe. What is no report,
the last words of a process that failed, is kept as complaint.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from jsonbus.config import ENVIRONMENT_PREFIX

#: A process that is asked to end says goodbye to the bus, which takes a moment on a busy machine.
ASKED_S = 5.0
TERMINATED_S = 1.0
#: What a killed process has started ends by itself, a moment later.
SILENT_S = 10.0

#: Lines of a traceback that are kept.
COMPLAINT_LINES_MAX = 50

#: How commands tell what they fail of; it may be followed by less important words.
ERROR_PREFIX = "Error: "


class Child:
    """One running process: a module of ours. Methods are for the thread that made it.

    `hear` is called for each line that it writes, in a thread, and returns False for a line that is
    no report.
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
        self._process = subprocess.Popen(
            # -P and the path: the same modules as here, wherever this was started from.
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
        self._reader = threading.Thread(target=self._read, name=f"jsonbus-demo-{name}", daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def has_ended(self) -> bool:
        return self._process.poll() is not None

    @property
    def exit_code(self) -> int | None:
        return self._process.poll()

    @property
    def complaint(self) -> str:
        """What it wrote about its failure: an error, or its last line, as of a traceback."""
        told = [each for each in self._complaint if each.startswith(ERROR_PREFIX)]
        if told:
            return told[-1].removeprefix(ERROR_PREFIX)
        return self._complaint[-1] if self._complaint else f"exit code {self._process.returncode}"

    def tell(self, line: str) -> None:
        """Write a line to its standard input."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(line + "\n")
            self._process.stdin.flush()
        except OSError:
            pass  # it has ended, which is noticed elsewhere

    def ask_to_end(self) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.close()
        except OSError:
            pass  # it has ended already

    def terminate(self) -> None:
        self._process.terminate()  # does nothing to a process that has ended

    def kill(self) -> None:
        """With all processes of its group; nothing if it has ended."""
        if self._process.poll() is None:  # else its number may be somebody else's
            os.killpg(self._process.pid, signal.SIGKILL)

    def wait(self, timeout_s: float | None = None) -> bool:
        """Whether it ended in time."""
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return False
        return True

    def forget(self) -> None:
        """After its end: nothing of it stays here."""
        assert self._process.stdout is not None
        self._reader.join(SILENT_S)
        if not self._reader.is_alive():
            self._process.stdout.close()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if not self._hear(line) and line.strip():
                self._complaint.append(line.strip())


def end_processes(processes: Sequence[Child]) -> None:
    """End them all, in bounded time; Ctrl-C makes it quicker.

    What they told last has been heard afterwards.
    """
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
    """End them all at once."""
    for each in processes:
        each.kill()
    for each in processes:
        each.wait()
        each.forget()


def _wait_for_all(processes: Sequence[Child], timeout_s: float) -> None:
    deadline = time.monotonic() + timeout_s
    for each in processes:
        each.wait(max(0.0, deadline - time.monotonic()))


def _environment() -> dict[str, str]:
    """This process's, without settings of the bus: the demo is the same for everybody."""
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(ENVIRONMENT_PREFIX)
    }
    environment["PYTHONPATH"] = os.pathsep.join(each or os.getcwd() for each in sys.path)
    environment["PYTHONIOENCODING"] = "utf-8"
    return environment
