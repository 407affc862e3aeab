"""The loop of the screen: a picture a few times a second, and keys."""

from __future__ import annotations

import logging
import os
import sys
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic

from jsonbus.survey import Picture

from .. import signals
from ..lib.observer import SILENCE_S, Observer
from .layout import Frame, Paint, lay_out
from .state import State
from .terminal import Terminal, TerminalGoneError

#: Lines of the log that are kept, and written when the screen has ended.
LOG_LINES_MAX = 20

#: How long a line of the log is shown.
LOG_SHOWN_S = 10.0


def show_screen(
    observer: Observer,
    state: State,
    look: Callable[[], Picture],
    interval_s: float,
    duration_s: float | None,
) -> None:
    """Show the bus until `q` or the end of the time."""
    paint = Paint(has_colours=not os.environ.get("NO_COLOR"))
    began_at = monotonic()
    end_at = None if duration_s is None else began_at + duration_s
    try:
        with _log_kept() as log, Terminal() as terminal:
            picture = look()
            due_at = began_at + min(interval_s, 1.0)
            while not state.is_done and (end_at is None or monotonic() < end_at):
                state.look(picture)
                is_silent = monotonic() - began_at >= SILENCE_S
                frame = Frame(
                    observer.address,
                    observer.is_subscribing,
                    observer.silence if is_silent else "",
                    log.newest(monotonic()),
                )
                lines = lay_out(picture, state, frame, terminal.size, paint)
                terminal.paint(lines, is_all=state.is_stale)
                state.is_stale = False
                until = due_at if end_at is None else min(due_at, end_at)
                for key in terminal.wait(min(signals.CHECK_S, max(0.0, until - monotonic()))):
                    state.press(key)
                    state.look(picture)
                signals.check()
                if monotonic() >= due_at:
                    # A machine too slow for the interval does not try to catch up.
                    due_at = max(due_at + interval_s, monotonic())
                    if not state.is_paused:
                        picture = look()
    except TerminalGoneError:
        pass  # a usual end, too


class _KeptLog(logging.Handler):
    """Keeps the last lines of the log, which would otherwise disturb the screen."""

    def __init__(self) -> None:
        super().__init__()
        self.records: deque[logging.LogRecord] = deque(maxlen=LOG_LINES_MAX)
        self._newest_at = -LOG_SHOWN_S

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)
        self._newest_at = monotonic()

    def newest(self, now: float) -> str:
        """Return the last line while it is new."""
        if not self.records or now - self._newest_at >= LOG_SHOWN_S:
            return ""
        return self.records[-1].getMessage()


@contextmanager
def _log_kept() -> Iterator[_KeptLog]:
    """Keep log lines while the screen is shown, and log them afterwards."""
    kept = _KeptLog()
    if not sys.stderr.isatty():
        yield kept
        return
    log = logging.getLogger("jsonbus")
    before = log.handlers[:]
    log.handlers[:] = [kept]
    try:
        yield kept
    finally:
        log.handlers[:] = before
        for record in kept.records:
            log.handle(record)
