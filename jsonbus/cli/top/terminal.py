"""Takes the terminal over as a screen with keys, and gives it back whatever happens.

Only lines that changed are written, so that a slow connection keeps up. Bytes per refresh, median,
80x24 with 30 topics, counted in the process; rich.Live(screen=True) wrote 1,982 for the same lines
in every case. If the silent topics are older than 100 s: none changes 0, 3 change 251, 10 change
352, all change 1,620. If they are younger, AGE changes each of their lines: 1,522 to 1,622. So the
gain is large on a quiet bus and about a fifth on a busy one. rich also reads no keys, and does not
give the terminal back for Ctrl-Z.

Signals set flags and wake `wait`: the work is done by the loop, never in the middle of something
else. Ctrl-C and SIGTERM raise KeyboardInterrupt as everywhere, and leave through `__exit__`.
"""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import sys
import termios
import tty
from collections.abc import Sequence
from time import monotonic
from types import FrameType
from typing import Any

from .keys import KeyReader

#: An ESC that nothing follows within this time is a key. A network may split sequences.
ESCAPE_S = 0.1

# The alternate screen, without cursor; long lines are cut at the margin.
_TAKE = b"\x1b[?1049h\x1b[?25l\x1b[?7l\x1b[2J"
_GIVE_BACK = b"\x1b[0m\x1b[?7h\x1b[?25h\x1b[?1049l"


class TerminalGoneError(Exception):
    """The terminal was closed."""


class Terminal:
    """Standard input and output as a screen with keys, in a with block. Main thread only."""

    def __init__(self) -> None:
        self._out = sys.stdout.fileno()
        self._in = sys.stdin.fileno() if sys.stdin.isatty() else None
        self._before: list[Any] | None = None
        self._shown: list[str] = []
        self._keys = KeyReader()
        self._must_stop = False
        self._handlers: dict[int, Any] = {}
        self._wake_in, self._wake_out = -1, -1

    def __enter__(self) -> Terminal:
        self._wake_in, self._wake_out = os.pipe()
        for end in (self._wake_in, self._wake_out):
            os.set_blocking(end, False)
        self._wakeup_before = signal.set_wakeup_fd(self._wake_out, warn_on_full_buffer=False)
        for number, handler in ((signal.SIGWINCH, self._ignore), (signal.SIGTSTP, self._note_stop)):
            self._handlers[number] = signal.signal(number, handler)
        if self._in is not None:
            self._before = termios.tcgetattr(self._in)
        try:
            self._take()
        except BaseException:
            self._leave()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._leave()
        except KeyboardInterrupt:
            self._leave()  # a second Ctrl-C must not leave an unusable terminal behind
            raise

    @property
    def size(self) -> tuple[int, int]:
        """Columns and lines of the terminal now."""
        try:
            size = os.get_terminal_size(self._out)
        except OSError:
            size = os.terminal_size((0, 0))
        if not (size.columns and size.lines):
            size = shutil.get_terminal_size()
        return size.columns, size.lines

    def paint(self, lines: Sequence[str], *, is_all: bool = False) -> None:
        """Show these lines; only those that changed are written."""
        if is_all or len(lines) != len(self._shown):
            self._shown = []
        data = [] if self._shown else ["\x1b[2J"]
        for number, line in enumerate(lines):
            if not self._shown or self._shown[number] != line:
                # The line is erased first, so blanks at its end need not be sent.
                data.append(f"\x1b[{number + 1};1H\x1b[0m\x1b[2K{line.rstrip(' ')}")
        if data:
            self._write("".join(data).encode("utf-8", "replace"))
        self._shown = list(lines)

    def wait(self, seconds: float) -> list[str]:
        """Return keys as soon as there are any; none when time is up or the size has changed."""
        deadline = monotonic() + seconds
        while True:
            if self._must_stop:
                self._stop()
                return []
            left_s = max(0.0, deadline - monotonic())
            wait_s = min(left_s, ESCAPE_S) if self._keys.is_waiting else left_s
            watched = [self._wake_in] if self._in is None else [self._wake_in, self._in]
            ready, _, _ = select.select(watched, [], [], wait_s)
            if self._wake_in in ready:
                with contextlib.suppress(BlockingIOError):
                    os.read(self._wake_in, 1024)
                if not self._must_stop:
                    return []
            elif self._in in ready:
                if keys := self._keys.feed(self._read()):
                    return keys
            elif self._keys.is_waiting:
                if keys := self._keys.give_up():
                    return keys
            elif monotonic() >= deadline:
                return []

    def _take(self) -> None:
        if self._in is not None:
            tty.setcbreak(self._in)  # no echo, no line buffer; Ctrl-C and Ctrl-Z stay signals
        self._shown = []
        self._write(_TAKE)

    def _give_back(self) -> None:
        try:
            self._write(_GIVE_BACK)
        except TerminalGoneError:
            pass
        finally:
            if self._in is not None and self._before is not None:
                with contextlib.suppress(termios.error):
                    termios.tcsetattr(self._in, termios.TCSADRAIN, self._before)

    def _leave(self) -> None:
        self._give_back()
        if self._wake_in < 0:
            return
        signal.set_wakeup_fd(self._wakeup_before)
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        os.close(self._wake_in)
        os.close(self._wake_out)
        self._wake_in = self._wake_out = -1

    def _stop(self) -> None:
        """Handle Ctrl-Z: give the terminal to the shell; `fg` continues here."""
        self._must_stop = False
        self._give_back()
        signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTSTP)
        signal.signal(signal.SIGTSTP, self._note_stop)
        self._take()

    def _note_stop(self, number: int, frame: FrameType | None) -> None:
        self._must_stop = True

    def _ignore(self, number: int, frame: FrameType | None) -> None:
        """Do nothing: the signal only has to wake `wait`."""

    def _read(self) -> bytes:
        assert self._in is not None
        try:
            data = os.read(self._in, 4096)
        except OSError as error:
            raise TerminalGoneError from error
        if not data:
            raise TerminalGoneError
        return data

    def _write(self, data: bytes) -> None:
        try:
            while data:
                data = data[os.write(self._out, data) :]
        except OSError as error:
            raise TerminalGoneError from error
