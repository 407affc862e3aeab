"""Show the demo to people: a screen that changes in place, or plain lines in a pipe or a log.

Both say the same in the same words. A show describes itself as a `Scene`; the stage fills it in,
and the view only reads it.
"""

from __future__ import annotations

import io
import sys
from collections import deque
from dataclasses import dataclass, field
from typing import ClassVar

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from .sensor import Report

#: Events that a screen can show.
EVENTS_KEPT = 20

#: No line of the demo is longer, and in a pipe none is wrapped.
PLAIN_COLUMNS = 200


@dataclass(slots=True)
class Scene:
    """The state of a show while it runs."""

    #: Seconds between two status lines in a pipe.
    STATUS_S: ClassVar[float] = 1.0

    seconds: float
    is_forever: bool = False
    #: Seconds since the first process started, and since the show began, once all were ready.
    elapsed_s: float = 0.0
    shown_s: float = 0.0
    #: (elapsed seconds, text) of recent events.
    events: deque[tuple[float, str]] = field(default_factory=lambda: deque(maxlen=EVENTS_KEPT))
    #: By the name of a node: its last report, and the id of its process.
    reports: dict[str, Report] = field(default_factory=dict)
    pids: dict[str, int] = field(default_factory=dict)

    def draw(self, height: int) -> Group:
        """Return the screen, for a terminal with `height` lines."""
        raise NotImplementedError

    def status(self) -> str:
        """Return the figures so far, in one line."""
        raise NotImplementedError


class View:
    """Shows scenes on standard output, one after the other, and prints what goes around them.

    Writing raises BrokenPipeError when the reader of a pipe has gone.
    """

    def __init__(self, console: Console | None = None) -> None:
        if console is None:
            is_terminal = sys.stdout.isatty()
            if isinstance(sys.stdout, io.TextIOWrapper):
                sys.stdout.reconfigure(errors="backslashreplace")  # no locale is a reason to fail
            width = None if is_terminal else PLAIN_COLUMNS
            console = Console(highlight=False, force_terminal=is_terminal, width=width)
        self.console = console
        self._is_live = console.is_terminal and not console.is_dumb_terminal
        self._live: Live | None = None
        self._status_at_s = 0.0

    def print(self, *lines: RenderableType, style: str = "") -> None:
        """Print lines or tables."""
        if self._is_live:
            for line in lines:
                self.console.print(line, style=style)
            return
        with self.console.capture() as text:
            for line in lines:
                self.console.print(line, soft_wrap=isinstance(line, str))
        # Not by the console itself: rich would end the process when the reader of a pipe has gone.
        self.console.file.write(text.get())
        self.console.file.flush()

    def show(self, scene: Scene) -> None:
        """Show the scene as it is now; called several times a second."""
        if not self._is_live:
            if not self._status_at_s:
                self._status_at_s = scene.STATUS_S
            if scene.elapsed_s >= self._status_at_s:
                self._status_at_s = scene.elapsed_s + scene.STATUS_S
                self.log(scene, scene.status())
            return
        if self._live is None:
            self._live = Live(console=self.console, auto_refresh=False)
            self._live.start()
        self._live.update(scene.draw(self.console.height), refresh=True)

    def tell(self, scene: Scene, text: str) -> None:
        """Report an event."""
        scene.events.append((scene.elapsed_s, text))
        if self._is_live:
            self.show(scene)
        else:
            self.log(scene, text)

    def log(self, scene: Scene, text: str) -> None:
        """Print a line that the screen shows in another way."""
        if not self._is_live:
            self.print(at(scene.elapsed_s, text))

    def end(self, scene: Scene) -> None:
        """Show the scene for the last time; a screen stays as it is."""
        if not self._is_live:
            self.log(scene, scene.status())
            self._status_at_s = 0.0
        elif self._live is not None:
            self.show(scene)
            self._live.stop()
            self._live = None


def at(seconds: float, text: str) -> str:
    """Return a line of the log."""
    return f"{seconds:6.1f} s  {text}"


def draw_progress(scene: Scene, text: str = "", width: int = 32) -> Text:
    """Return a bar of the time that has passed, and what is being done."""
    line = Text(f"{int(scene.elapsed_s) // 60}:{int(scene.elapsed_s) % 60:02d} ", "bold")
    if not scene.is_forever:
        done = min(width, int(width * scene.shown_s / scene.seconds))
        line.append("━" * done, "cyan").append("━" * (width - done), "bright_black")
    return line.append(f" {text}", "italic cyan")


def draw_events(scene: Scene, count: int, *, is_cut: bool) -> list[Text]:
    """Return the last events; with `is_cut` none takes more than a line."""
    return [
        Text(at(*event), "dim", no_wrap=is_cut, overflow="ellipsis" if is_cut else None)
        for event in list(scene.events)[-count:]
    ]


def make_table(first: str, figures: tuple[str, ...], min_width: int = 6) -> Table:
    """Return an empty table: a column of names, then columns of figures."""
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold dim")
    table.add_column(first, style="cyan", no_wrap=True, min_width=8)
    for heading in figures:
        table.add_column(heading, justify="right", no_wrap=True, min_width=min_width)
    return table


def figure(count: int, style: str) -> Text:
    """Return a count; zero is dim."""
    return Text(f"{count:,}", style if count else "dim")
