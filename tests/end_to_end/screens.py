"""A command on a terminal, with what its screen shows."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import threading
from typing import Any

from tests.end_to_end.processes import ROOT
from tests.helpers import heeding_hangup, wait_until

#: The alternate screen is entered and left; in between, whole lines are written.
ENTER = b"\x1b[?1049h"
LEAVE = b"\x1b[?1049l"
_LINE = re.compile(rb"\x1b\[(\d+);1H\x1b\[0m\x1b\[2K|\x1b\[2J")
_STYLE = re.compile(rb"\x1b\[\d+(;\d+)*[mG]")


class ScreenProcess:
    """A Python program on a terminal of its own, which is its only way to talk."""

    def __init__(self, port: int, *args: str, size: tuple[int, int] = (80, 24), **env: str) -> None:
        self._near, far = pty.openpty()
        self._far = far
        self.resize(*size, is_told=False)
        self.modes_before = self.modes
        with heeding_hangup():
            self.process = subprocess.Popen(
                [sys.executable, *args],
                cwd=ROOT,
                env={
                    **os.environ,
                    "JSONBUS_PORT": str(port),
                    "JSONBUS_INTERFACE": "lo",
                    "TERM": "xterm",
                    **env,
                },
                stdin=far,
                stdout=far,
                stderr=far,
                start_new_session=True,
                preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0) and None,
            )
        self.written = b""
        self._reader = threading.Thread(target=self._read, name="test-screen")
        self._reader.start()

    @property
    def modes(self) -> list[Any]:
        """How the terminal treats what is typed."""
        return termios.tcgetattr(self._far)

    @property
    def lines(self) -> list[str]:
        """What the screen shows, or showed when it was left."""
        _, _, written = self.written.rpartition(ENTER)
        written, _, _ = written.partition(LEAVE)
        rows: dict[int, str] = {}
        parts = _LINE.split(written)
        for number, text in zip(parts[1::2], parts[2::2], strict=True):
            if number is None:
                rows.clear()
            else:
                rows[int(number)] = _STYLE.sub(b"", text).decode(errors="replace").rstrip()
        return [rows.get(number, "") for number in range(1, max(rows, default=0) + 1)]

    def shows(self, text: str) -> bool:
        return any(text in line for line in self.lines)

    def expect(self, text: str) -> None:
        """Wait until the screen shows it."""
        assert wait_until(lambda: self.shows(text), 120), (text, self.lines, self.written[-2000:])

    def press(self, keys: bytes) -> None:
        os.write(self._near, keys)

    def resize(self, columns: int, lines: int, *, is_told: bool = True) -> None:
        fcntl.ioctl(self._far, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        if is_told:
            os.kill(self.process.pid, signal.SIGWINCH)

    def wait(self) -> int:
        """Wait for its end and return the exit code; its last output may still be on the way."""
        return self.process.wait(120)

    def end(self) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        os.close(self._far)
        self._reader.join()
        os.close(self._near)

    def _read(self) -> None:
        while True:
            try:
                chunk = os.read(self._near, 65_536)
            except OSError:
                return  # how Linux tells that nobody has the far end any more
            if not chunk:
                return
            self.written += chunk
