"""Shows the progress of copying bytes: a line for each direction, on standard error."""

from __future__ import annotations

import math
import threading
from time import monotonic

from rich.console import Console
from rich.filesize import decimal
from rich.progress import (
    BarColumn,
    Progress,
    ProgressColumn,
    Task,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)
from rich.text import Text

from .channel_copy import Meter

#: Copying that ends sooner shows no bar.
SHOWN_AFTER_S = 1.0

#: How often the figures are updated.
RENEWED_EVERY_S = 0.1


class ProgressMeter(Meter):
    """A meter with a progress bar. `total` is the number of bytes to send, if known.

    Two threads count; whichever gets the lock updates the bar, the other continues copying. With
    `gives_way`, received data goes to the same screen, so the bar ends when the first data comes.
    """

    def __init__(
        self, total: int | None, *, at_once: bool = False, gives_way: bool = False
    ) -> None:
        super().__init__()
        self._total = total
        self._gives_way = gives_way
        self._lock = threading.Lock()
        self._shown_at = monotonic() + (0.0 if at_once else SHOWN_AFTER_S)
        self._renewed_at = -math.inf
        # Counted from the beginning, so that the rates are right when the bar appears.
        self._progress = _make_progress()
        self._tasks: dict[str, TaskID] = {}

    def add_sent(self, count: int) -> None:
        self.sent += count
        self._renew()

    def add_received(self, count: int) -> None:
        self.received += count
        if self._gives_way:
            self.stop()
        else:
            self._renew()

    def stop(self) -> None:
        """Show the last figures, if any were shown, and stop."""
        with self._lock:
            if self._is_shown and self._renewed_at < math.inf:
                self._show()
                self._progress.stop()
            self._renewed_at = math.inf

    @property
    def _is_shown(self) -> bool:
        return self._progress.live.is_started

    def _renew(self) -> None:
        if monotonic() < self._renewed_at + RENEWED_EVERY_S:
            return
        if not self._lock.acquire(blocking=False):
            return
        try:
            if self._renewed_at == math.inf:
                return  # it was stopped meanwhile
            self._renewed_at = monotonic()
            self._show()
            if not self._is_shown and self._renewed_at >= self._shown_at:
                self._progress.start()
        finally:
            self._lock.release()

    def _show(self) -> None:
        for name, count, total in (
            ("sent", self.sent, self._total),
            ("received", self.received, None),
        ):
            if not count:
                continue
            if name not in self._tasks:
                self._tasks[name] = self._progress.add_task(name, total=total)
            self._progress.update(self._tasks[name], completed=count)


def _make_progress() -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        _Amount(),
        TransferSpeedColumn(),
        _TimeLeft(compact=True),
        console=Console(stderr=True),
    )


class _Amount(ProgressColumn):
    """The number of bytes copied, and of how many, if known."""

    def render(self, task: Task) -> Text:
        shown = decimal(int(task.completed))
        return Text(shown if task.total is None else f"{shown} of {decimal(int(task.total))}")


class _TimeLeft(TimeRemainingColumn):
    """The remaining time; empty if the total is unknown."""

    def render(self, task: Task) -> Text:
        return Text("") if task.total is None else super().render(task)
