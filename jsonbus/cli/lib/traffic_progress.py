"""Shows the progress of recording or replaying: one line on standard error, updated in place.

A thread of rich fetches the figures, so that recording and replaying never wait for the screen.
"""

from __future__ import annotations

import sys
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from time import monotonic
from typing import TYPE_CHECKING

from ..command import is_quiet

if TYPE_CHECKING:
    from rich.console import RenderableType

#: Work that ends sooner shows no bar.
SHOWN_AFTER_S = 1.0

#: The rate is taken over these seconds.
RATE_S = 3.0

RENEWED_PER_S = 5


@dataclass(slots=True)
class Figures:
    """The figures to show."""

    messages: int = 0
    size: int | None = None  # bytes written
    fraction: float | None = None  # that is done, 0 to 1; None if unknown
    facts: list[str] = field(default_factory=list)
    troubles: list[str] = field(default_factory=list)


class TrafficProgress:
    """Shows figures within a with block, if standard error is a terminal; not with -q."""

    def __init__(self, title: str, figures: Callable[[], Figures]) -> None:
        self._title = title
        self._figures = figures
        self._samples: deque[tuple[float, int]] = deque()
        self._timer: threading.Timer | None = None

    def __enter__(self) -> TrafficProgress:
        if sys.stderr.isatty() and not is_quiet():
            # Imported only if it is shown: it takes as long as all other imports together. And
            # now, not while messages are due.
            from rich.console import Console
            from rich.live import Live

            self._live = Live(
                get_renderable=self.render,
                console=Console(stderr=True),
                refresh_per_second=RENEWED_PER_S,
                transient=True,
            )
            self._timer = threading.Timer(SHOWN_AFTER_S, self._live.start, (True,))
            self._timer.daemon = True
            self._timer.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer.join()
            self._live.stop()

    def render(self) -> RenderableType:
        """Return the line as it is now."""
        from rich.filesize import decimal
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        figures = self._figures()
        now = monotonic()
        fraction = figures.fraction
        bar = ProgressBar(
            total=None if fraction is None else 1.0, completed=fraction or 0.0, width=16
        )
        cells = [f"{figures.messages:,} messages", f"{self._rate(now, figures.messages):,.0f}/s"]
        if figures.size is not None:
            cells.append(decimal(figures.size))
        cells += figures.facts
        line = Table.grid(padding=(0, 1))
        line.add_row(
            Text(self._title),
            bar,
            *(Text(each, no_wrap=True) for each in cells),
            *(Text(each, "red", no_wrap=True) for each in figures.troubles),
        )
        return line

    def _rate(self, now: float, messages: int) -> float:
        samples = self._samples
        samples.append((now, messages))
        while len(samples) > 2 and samples[1][0] < now - RATE_S:
            samples.popleft()
        passed_s = now - samples[0][0]
        return (messages - samples[0][1]) / passed_s if passed_s > 0 else 0.0


def show_seconds(seconds: float) -> str:
    """Return 1:02, or with hours 1:02:03."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
