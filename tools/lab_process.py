"""A command on a host: started, watched, stopped or killed."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

POLL_S = 0.02
STOP_TIMEOUT_S = 60
SHOWN_LINES_MAX = 15


class Process:
    """Its output goes to files: nothing blocks when nobody reads, nothing is lost when it dies."""

    def __init__(
        self, label: str, argv: Sequence[str], environment: Mapping[str, str], folder: Path
    ) -> None:
        self.label = label
        self._out = folder / f"{label}.out"
        self._err = folder / f"{label}.err"
        with self._out.open("wb") as out, self._err.open("wb") as err:
            self._popen = subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, stdout=out, stderr=err, env=environment
            )

    @property
    def returncode(self) -> int | None:
        """None while it runs; the negative signal number if it was killed."""
        return self._popen.poll()

    def lines(self) -> list[str]:
        """The whole lines it has printed so far."""
        text = self._out.read_bytes().decode(errors="replace")
        return text.split("\n")[:-1]

    def objects(self) -> list[dict[str, Any]]:
        """The same as JSON objects."""
        return [json.loads(line) for line in self.lines()]

    def errors(self) -> str:
        """What it has written to stderr so far."""
        return self._err.read_bytes().decode(errors="replace")

    def wait_until(self, condition: Callable[[Process], object], timeout_s: float) -> bool:
        """Whether the condition came true in time, before the process ended."""
        deadline = time.monotonic() + timeout_s
        while not condition(self):
            if self.returncode is not None or time.monotonic() >= deadline:
                return bool(condition(self))
            time.sleep(POLL_S)
        return True

    def wait(self, timeout_s: float) -> int | None:
        """Its exit code, or None if it still runs then."""
        try:
            return self._popen.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return None

    def interrupt(self) -> None:
        """Ctrl-C."""
        self._popen.send_signal(signal.SIGINT)

    def kill(self) -> None:
        """kill -9: no goodbye."""
        self._popen.kill()
        self._popen.wait(STOP_TIMEOUT_S)

    def report(self) -> str:
        """What it said last, for whoever has to find out what went wrong."""
        state = "running" if self.returncode is None else f"exit {self.returncode}"
        last = [*self.lines()[-SHOWN_LINES_MAX:], *self.errors().splitlines()[-SHOWN_LINES_MAX:]]
        return "\n".join([f"--- {self.label} ({state})", *last])
