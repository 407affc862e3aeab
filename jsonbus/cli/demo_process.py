"""A process of the demo: started, heard and, whatever happens, ended.

Each has a session of its own, so that Ctrl-C reaches the demo alone, which then ends the others in
order. A process is asked to end by closing its standard input; one that does not is terminated, and
killed at last, each after a bounded time and by its own process id.

One thread per process reads what it tells and puts it into a queue that all of them share; it ends
with the process. What is no report, the last words of a process that failed, is kept as complaint.
"""

from __future__ import annotations

import os
import queue
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Sequence

from jsonbus.config import ENVIRONMENT_PREFIX

from .demo_report import Part, Report

#: A process that is asked to end says goodbye to the bus, which takes a moment on a busy machine.
ASKED_S = 5.0
TERMINATED_S = 1.0

#: Lines of a traceback that are kept.
COMPLAINT_LINES_MAX = 50

Inbox = queue.SimpleQueue[tuple["DemoProcess", Report]]


class DemoProcess:
    """One running node. Methods are for the thread that made it."""

    def __init__(self, part: Part, inbox: Inbox) -> None:
        self.name = part.name
        self.part = part
        self._inbox = inbox
        self._complaint: deque[str] = deque(maxlen=COMPLAINT_LINES_MAX)
        self._process = subprocess.Popen(
            # -P and the path: the same modules as here, wherever this was started from.
            [sys.executable, "-P", "-m", f"{__package__}.demo_node", part.to_line()],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            encoding="utf-8",
            errors="replace",
            env=_environment(),
            start_new_session=True,
        )
        self._reader = threading.Thread(
            target=self._read, name=f"jsonbus-demo-{part.name}", daemon=True
        )
        self._reader.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def has_ended(self) -> bool:
        return self._process.poll() is not None

    @property
    def complaint(self) -> str:
        """The last line that it wrote about itself; a traceback's is the error."""
        return self._complaint[-1] if self._complaint else f"exit code {self._process.returncode}"

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            try:
                self._inbox.put((self, Report.from_line(line)))
            except ValueError:
                if line.strip():
                    self._complaint.append(line.strip())

    def ask_to_end(self) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.close()
        except OSError:
            pass  # it has ended already

    def terminate(self) -> None:
        self._process.terminate()  # does nothing to a process that has ended

    def kill(self) -> None:
        self._process.kill()

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
        self._reader.join()  # the pipe has ended with the process
        self._process.stdout.close()


def end_processes(processes: Sequence[DemoProcess]) -> None:
    """End them all, in bounded time; Ctrl-C makes it quicker.

    What they told last is in the inbox afterwards.
    """
    try:
        for each in processes:
            each.ask_to_end()
        _wait_for_all(processes, ASKED_S)
        for each in processes:
            each.terminate()
        _wait_for_all(processes, TERMINATED_S)
    finally:
        for each in processes:
            each.kill()
        for each in processes:
            each.wait()
            each.forget()


def _wait_for_all(processes: Sequence[DemoProcess], timeout_s: float) -> None:
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
