"""One run of `top`: a screen with keys, one picture, or one picture per interval."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from math import inf
from time import monotonic, time

from jsonbus.config import BusSettings
from jsonbus.survey import Picture, Survey, TopicView

from .. import signals
from ..command import wait_until_sure
from ..commands.top import LINES_S, ONCE_S, SCREEN_S
from ..lib.observer import SILENCE_S, Observer, open_observer
from ..lib.output import Output
from .state import State

#: Nodes report their totals when asked, and answer within milliseconds.
ASK_S = 0.2


class Session:
    """One run of the command."""

    def __init__(
        self,
        settings: BusSettings,
        patterns: Sequence[str],
        *,
        is_subscribing: bool,
        order: str,
        duration_s: float | None,
    ) -> None:
        self._duration_s = duration_s
        self._state = State(order)
        self._survey = Survey()
        self._observe = partial(
            open_observer, settings, patterns, self._survey.take, is_subscribing=is_subscribing
        )
        self._output = Output()

    def print_once(self, *, is_json: bool) -> None:
        """Collect for a while, and print one picture."""
        duration_s = ONCE_S if self._duration_s is None else self._duration_s
        with self._open() as observer:
            wait_until_sure(observer.bus)
            # Asked at the beginning and the end, so that nodes that report rarely have rates, too.
            observer.bus.ping(timeout=ASK_S)
            self._look(observer)
            began_at = monotonic()
            while (left_s := began_at + duration_s - monotonic()) > 0:
                signals.pause(left_s)
            observer.bus.ping(timeout=ASK_S)
            picture = self._look(observer)
            self._print(observer, picture, is_json=is_json)

    def run(self, interval_s: float | None, *, is_json: bool) -> None:
        """Show pictures until Ctrl-C, `q`, the end of the time, or until nobody reads."""
        has_screen = not is_json and self._has_screen()
        if has_screen:
            from .screen import show_screen  # before joining: an interrupt of an import is lost

        with signals.until_interrupted(is_usual=self._duration_s is None), self._open() as observer:
            if has_screen:
                look = partial(self._look, observer)
                show_screen(observer, self._state, look, interval_s or SCREEN_S, self._duration_s)
                return
            try:
                self._print_pictures(observer, interval_s or LINES_S, is_json=is_json)
            except KeyboardInterrupt:
                self._output.let_go()
                raise

    def _print_pictures(self, observer: Observer, interval_s: float, *, is_json: bool) -> None:
        wait_until_sure(observer.bus)
        self._look(observer)
        began_at = monotonic()
        end_at = inf if self._duration_s is None else began_at + self._duration_s
        due_at = began_at + interval_s
        while True:
            until = min(due_at, end_at)
            while (left_s := until - monotonic()) > 0:
                signals.pause(left_s)
                if not self._output.has_reader():
                    return
            if until < due_at:
                return
            self._print(observer, self._look(observer), is_json=is_json)
            due_at += interval_s
            if monotonic() >= end_at:
                return

    def _print(self, observer: Observer, picture: Picture, *, is_json: bool) -> None:
        if not picture.topics and monotonic() - self._opened_at >= SILENCE_S:
            observer.report_silence()
        if is_json or not self._output.is_terminal:
            from .picture_json import picture_to_json

            self._state.look(picture)
            topics: list[TopicView] = self._state.rows
            found = picture_to_json(picture, topics, time(), observer.bus.sealed)
            self._output.write_result(found)
        else:
            for line in self._table_lines(observer, picture):
                self._output.write_line(line)
        self._output.flush()

    def _table_lines(self, observer: Observer, picture: Picture) -> Iterator[str]:
        """Yield both tables as on the screen, in full length."""
        from .layout import Frame, Paint, lay_out_rows, summarize

        frame = Frame(observer.address, observer.is_subscribing)
        yield from summarize(picture.overview, frame)
        paint = Paint(is_plain=True)
        for place in self._state.places:
            rows = place.select(picture)
            yield ""
            for line in lay_out_rows(place.table.columns, rows, self._output.columns, paint):
                yield line.rstrip()

    def _look(self, observer: Observer) -> Picture:
        return self._survey.picture(monotonic(), observer.nodes(), observer.bus.stats())

    @contextmanager
    def _open(self) -> Iterator[Observer]:
        self._opened_at = monotonic()
        with self._observe() as observer:
            try:
                yield observer
            finally:
                observer.report_losses()

    def _has_screen(self) -> bool:
        """Return True if a table can change in place."""
        is_dumb = os.environ.get("TERM", "dumb") in ("dumb", "unknown")
        return self._output.is_terminal and not is_dumb
