"""Start a process of a benchmark and ask it questions, as lines of JSON; see worker.py."""

from __future__ import annotations

import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from typing import Any

ANSWER_S = 60.0


class RunError(Exception):
    """A process failed or did not answer; the text has its last output."""


class Child:
    """A process that answers questions. It ends when its standard input is closed.

    A `prefix` is a command that runs another one somewhere else, and ends it with this process.
    """

    def __init__(
        self,
        label: str,
        module: str,
        arguments: Sequence[str],
        environment: dict[str, str],
        pass_fds: Sequence[int] = (),
        prefix: Sequence[str] = (),
    ) -> None:
        self.label = label
        self._errors = tempfile.TemporaryFile()
        self._waiting = b""
        self._process = subprocess.Popen(
            [*(prefix or end_with_parent()), sys.executable, "-m", module, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            pass_fds=pass_fds,
            env=environment,
            start_new_session=True,  # Ctrl-C is for the parent, which ends the others
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    def tell(self, ask: str, **arguments: Any) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps({"ask": ask, **arguments}).encode() + b"\n")
            self._process.stdin.flush()
        except OSError as error:
            raise RunError(f"{self.label} is gone: {self._last_words()}") from error

    def hear(self, timeout_s: float = ANSWER_S) -> dict[str, Any]:
        """Return the next answer. Raises RunError if none comes, or if the process failed."""
        assert self._process.stdout is not None
        deadline = time.monotonic() + timeout_s
        fd = self._process.stdout.fileno()
        while b"\n" not in self._waiting:
            readable, _, _ = select.select([fd], [], [], max(0.0, deadline - time.monotonic()))
            more = os.read(fd, 1 << 16) if readable else b""
            if not more:
                what = "ended" if readable else f"did not answer within {timeout_s:.0f} s"
                raise RunError(f"{self.label} {what}: {self._last_words()}")
            self._waiting += more
        line, _, self._waiting = self._waiting.partition(b"\n")
        answer: dict[str, Any] = json.loads(line)
        if "failed" in answer:
            raise RunError(f"{self.label}: {answer['failed']}")
        return answer

    def ask(self, ask: str, timeout_s: float = ANSWER_S, **arguments: Any) -> dict[str, Any]:
        self.tell(ask, **arguments)
        return self.hear(timeout_s)

    def end(self) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(2.0)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
        self._errors.close()

    def _last_words(self) -> str:
        self._errors.seek(0)
        return self._errors.read().decode(errors="replace").strip()[-2000:] or "it said nothing"


def end_with_parent(signal: str = "KILL") -> list[str]:
    """Return a prefix for commands that are to get a signal when this process ends.

    The end of standard input ends a child too, but not one that is stopped by a signal.
    """
    return ["setpriv", "--pdeathsig", signal, "--"] if shutil.which("setpriv") else []


def cpu_clock_s(pid: int) -> float:
    """Return the CPU time of a process, all threads, to the nanosecond (Linux)."""
    return time.clock_gettime((~pid << 3) | 2)  # what clock_getcpuclockid(3) computes
