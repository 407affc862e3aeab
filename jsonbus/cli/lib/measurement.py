"""The common part of `hz` and `bw`: a line per topic and interval.

The lines are a table on a terminal, and JSON in a pipe. Each command says in its own file what it
shows of a topic.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from time import monotonic, time
from typing import Any, NamedTuple

import click

import jsonbus
from jsonbus.config import BusSettings
from jsonbus.survey import IntervalTable, IntervalView

from .. import signals
from ..command import note
from ..exit_codes import TIMED_OUT
from .escaping import clean, fit
from .numbers import counted, percent
from .observer import SILENCE_S, Observer, observer_options, open_observer
from .output import Output
from .parameters import Function, option

#: After this many lines a table on a terminal repeats its headings.
HEADING_EVERY = 20

#: How often to check whether --count messages have come.
ENOUGH_S = 0.05

#: Least width of the topic's column on a terminal.
TOPIC_WIDTH_MIN = 12


class Line(NamedTuple):
    """The figures of one line."""

    topic: str
    view: IntervalView
    #: Messages of this topic since the last line.
    messages: int
    #: Messages of its publishers, whatever their topic, that never came; since the beginning.
    lost: int
    loss: float


class Kind(NamedTuple):
    """The figures that a command shows for each topic."""

    #: Headings and widths of the figures between topic and messages.
    columns: tuple[tuple[str, int], ...]
    show: Callable[[IntervalView], Sequence[str]]
    as_json: Callable[[IntervalView], Mapping[str, Any]]


def measure_options(function: Function) -> Function:
    """Add the options of both commands."""
    for add in (
        option(
            "--window N",
            "Measure over the last N messages of each publisher.",
            1_000,
            bounds=(2, 1_000_000),
        ),
        option("--interval SECONDS", "Time between two lines.", 1.0, bounds=(0.05, 3600)),
        option(
            "-d --duration SECONDS",
            "End after this time; exit code 3 if no message, or fewer than --count, came.",
        ),
        option("-c --count N", "End after N messages of all topics together."),
    ):
        function = add(function)
    return observer_options(function)


class Measurement:
    """One run of `hz` or `bw`."""

    def __init__(
        self,
        kind: Kind,
        settings: BusSettings,
        patterns: Sequence[str],
        *,
        is_subscribing: bool,
        count: int | None,
        window: int,
        interval: float,
        duration: float | None,
    ) -> None:
        self._kind = kind
        self._observe = partial(
            open_observer, settings, patterns, self._take, is_subscribing=is_subscribing
        )
        self._count = count
        self._interval_s = interval
        self._duration_s = duration
        self._output = Output()
        self._topics = IntervalTable(window)
        #: Messages of each topic at the last line.
        self._counted: dict[str, int] = {}
        self._lines = 0

    def run(self) -> None:
        """Print lines until there were enough messages, time is up, or nobody reads."""
        is_endless = self._count is None and self._duration_s is None
        with signals.until_interrupted(is_usual=is_endless), self._observe() as observer:
            try:
                self._print_lines(observer)
            except KeyboardInterrupt:
                self._output.let_go()
                raise
            finally:
                self._report(observer)
        if self._duration_s is None:
            return
        if self._topics.taken < (self._count or 1) and self._output.has_reader():
            note(f"{counted(self._topics.taken, 'message')} within {self._duration_s:g} s")
            raise click.exceptions.Exit(TIMED_OUT)

    def _take(self, messages: list[jsonbus.Message]) -> None:
        self._topics.take(messages, self._count)

    @property
    def _is_enough(self) -> bool:
        return self._count is not None and self._topics.taken >= self._count

    def _print_lines(self, observer: Observer) -> None:
        began_at = monotonic()
        end_at = None if self._duration_s is None else began_at + self._duration_s
        due_at = began_at + self._interval_s
        is_over = False
        while not is_over:
            until = due_at if end_at is None else min(due_at, end_at)
            while not self._is_enough and (left_s := until - monotonic()) > 0:
                signals.pause(min(left_s, ENOUGH_S) if self._count else left_s)
                if not self._output.has_reader():
                    return
            is_over = self._is_enough or until == end_at
            if not self._topics.taken and (is_over or monotonic() - began_at >= SILENCE_S):
                observer.report_silence()
            self._print(observer)
            due_at = max(due_at + self._interval_s, monotonic())

    def _print(self, observer: Observer) -> None:
        here = {info.node: info for info in observer.bus.nodes()}
        lines = [
            self._line(topic, view, here) for topic, view in self._topics.views(time()).items()
        ]
        self._counted = {line.topic: line.view.messages for line in lines}
        if self._output.is_terminal:
            self._print_table(lines)
        else:
            for line in lines:
                self._output.write_result(self._as_json(line))
        self._output.flush()

    def _line(self, topic: str, view: IntervalView, here: Mapping[str, jsonbus.NodeInfo]) -> Line:
        infos = [here[node] for node in view.publishers if node in here]
        received, lost = sum(each.received for each in infos), sum(each.lost for each in infos)
        loss = lost / (received + lost) if lost else 0.0
        return Line(topic, view, view.messages - self._counted.get(topic, 0), lost, loss)

    def _as_json(self, line: Line) -> dict[str, Any]:
        view = line.view
        return {
            "at": round(time(), 3),
            "topic": line.topic,
            **self._kind.as_json(view),
            "messages": line.messages,
            "total": view.messages,
            "publishers": len(view.publishers),
            "lost": line.lost,
            "loss": round(line.loss, 6),
            "late": view.late,
            "duplicates": view.duplicates,
        }

    def _print_table(self, lines: Sequence[Line]) -> None:
        if not lines:
            return
        columns = [*self._kind.columns, ("MESSAGES", 9), ("LOSS", 5)]
        figures = sum(width + 1 for _, width in columns)
        topic_width = max(TOPIC_WIDTH_MIN, self._output.columns - figures)
        if len(lines) > 1 or self._lines % HEADING_EVERY == 0:
            if self._lines and len(lines) > 1:
                self._output.write_line("")
            headings = " ".join(heading.rjust(width) for heading, width in columns)
            self._output.write_line(
                self._output.style(f"{fit('TOPIC', topic_width)} {headings}", "1")
            )
        for line in lines:
            cells = [*self._kind.show(line.view), f"{line.view.messages:,}", percent(line.loss)]
            shown = " ".join(
                cell.rjust(width) for cell, (_, width) in zip(cells, columns, strict=True)
            )
            self._output.write_line(f"{fit(clean(line.topic), topic_width)} {shown}")
        self._lines += len(lines)

    def _report(self, observer: Observer) -> None:
        observer.report_losses()
        if self._topics.forgotten:
            note(f"{self._topics.forgotten:,} topics were dropped for want of room: name fewer")
