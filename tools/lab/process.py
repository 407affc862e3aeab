"""A command on a host: started, watched, stopped or killed."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from typing import IO, Any

POLL_S = 0.02
STOP_TIMEOUT_S = 60
SHOWN_LINES_MAX = 15
INPUT_BYTES = 1 << 20


class Process:
    """A running command.

    Its output goes to files, so it never blocks for lack of a reader, and nothing is lost when it
    dies. The files have no names, so there is nothing to remove. Its input is empty, or with
    `is_fed` what `feed` writes.
    """

    def __init__(
        self,
        label: str,
        argv: Sequence[str],
        environment: Mapping[str, str],
        *,
        is_fed: bool = False,
    ) -> None:
        self.label = label
        self._out = tempfile.TemporaryFile()
        self._err = tempfile.TemporaryFile()
        self._popen = subprocess.Popen(
            argv,
            stdin=subprocess.PIPE if is_fed else subprocess.DEVNULL,
            stdout=self._out,
            stderr=self._err,
            env=environment,
        )
        if self._popen.stdin is not None:
            # Room for what is fed while the process stands still.
            fcntl.fcntl(self._popen.stdin.fileno(), fcntl.F_SETPIPE_SZ, INPUT_BYTES)

    @property
    def returncode(self) -> int | None:
        """None while it runs; the negative signal number if it was killed."""
        return self._popen.poll()

    def lines(self) -> list[str]:
        """Return the complete lines it has printed so far."""
        return self.lines_since(0)[0]

    def lines_since(self, position: int) -> tuple[list[str], int]:
        """Return the complete lines after a position of its output, and where they end."""
        data = _read(self._out, position)
        end = data.rfind(b"\n") + 1
        return data[:end].decode(errors="replace").split("\n")[:-1], position + end

    def objects(self) -> list[dict[str, Any]]:
        """Return these lines as JSON objects."""
        return [json.loads(line) for line in self.lines()]

    def errors(self) -> str:
        """Return everything it has written to stderr so far."""
        return _read(self._err).decode(errors="replace")

    def wait_until(self, condition: Callable[[Process], object], timeout_s: float) -> bool:
        """Wait for the condition; return whether it came true in time, before the process ended."""
        deadline = time.monotonic() + timeout_s
        while not condition(self):
            if self.returncode is not None or time.monotonic() >= deadline:
                return bool(condition(self))
            time.sleep(POLL_S)
        return True

    def wait(self, timeout_s: float) -> int | None:
        """Wait for its end; return the exit code, or None if it still runs then."""
        try:
            return self._popen.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return None

    def feed(self, line: str) -> None:
        """Write a line to its input; raises BrokenPipeError if it has ended."""
        assert self._popen.stdin is not None, "start it with is_fed=True"
        self._popen.stdin.write(line.encode() + b"\n")
        self._popen.stdin.flush()

    def interrupt(self) -> None:
        """Send SIGINT, as Ctrl-C does."""
        self._popen.send_signal(signal.SIGINT)

    def terminate(self) -> None:
        """Send SIGTERM, as a service manager does."""
        self._popen.terminate()

    def kill(self) -> None:
        """Send SIGKILL: the node says no goodbye."""
        self._popen.kill()
        self._popen.wait(STOP_TIMEOUT_S)

    def set_frozen(self, is_frozen: bool) -> None:
        """Stop it, as a debugger or a sleeping machine does, or let it continue."""
        self._popen.send_signal(signal.SIGSTOP if is_frozen else signal.SIGCONT)

    def report(self) -> str:
        """Return its last output, to find out what went wrong."""
        state = "running" if self.returncode is None else f"exit {self.returncode}"
        last = [*self.lines()[-SHOWN_LINES_MAX:], *self.errors().splitlines()[-SHOWN_LINES_MAX:]]
        return "\n".join([f"--- {self.label} ({state})", *last])

    def close(self) -> None:
        """Kill it if it still runs, and close its output files."""
        if self.returncode is None:
            self.kill()
        if self._popen.stdin is not None:
            with contextlib.suppress(BrokenPipeError):  # it ended with lines unread
                self._popen.stdin.close()
        self._out.close()
        self._err.close()


def _read(file: IO[bytes], position: int = 0) -> bytes:
    """Read everything from there on without moving the position at which the process writes."""
    size = os.fstat(file.fileno()).st_size
    return os.pread(file.fileno(), size - position, position)
