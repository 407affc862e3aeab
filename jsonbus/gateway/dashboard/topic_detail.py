"""The chosen topic: its value, its publishers and subscribers, and its numbers as a chart."""

from __future__ import annotations

from collections.abc import Callable

from nicegui import ui

from jsonbus.survey import TopicView

from ..metrics.survey_observer import SurveyObserver
from .charts import COLOURS, LiveChart, Series
from .elements import Chip, Chips, Fact, Facts
from .fields import Path, find_fields, name_field
from .history import FIELD_S, Trace, to_milliseconds
from .snapshot import Snapshot
from .texts import (
    clean,
    say_ago,
    show_bytes,
    show_count,
    show_number,
    show_rate,
    show_share,
    show_time,
    write_out,
)

#: Lines of one chart, and numbers to choose from.
LINES_MAX = len(COLOURS)
CHIPS_MAX = 60

#: The shortest time between two drawings of a chart.
CHART_S = 0.6


class TopicDetail:
    """The right half of the tab Topics."""

    def __init__(
        self, observer: SurveyObserver, refresh: Callable[[], None], on_close: Callable[[], None]
    ) -> None:
        self.topic = ""
        self._observer = observer
        self._refresh = refresh
        self._trace = Trace("")
        self._unfollow: Callable[[], None] = lambda: None
        self._chosen: list[Path] | None = None  # None: the first number in the value
        self._paths: dict[str, Path] = {}
        self._drawn_at = 0.0
        with ui.element("div").classes("card-head"):
            self._title = ui.label("").classes("card-title topic-title")
            ui.button(icon="close", on_click=on_close).props(
                "flat round dense aria-label=Close"
            ).classes("close")
        with ui.element("div").classes("detail-body"):
            self._facts = Facts()
            with ui.element("div").classes("numbers") as self._numbers:
                self._chart = LiveChart(FIELD_S, ("",))
                self._chips = Chips(self._pick)
            ui.label("Value").classes("label")
            self._value = ui.label("").classes("value")

    def choose(self, topic: str) -> None:
        """Show another topic; "" shows none."""
        if topic == self.topic:
            return
        self.close()
        self.topic = topic
        self._chosen = None
        self._drawn_at = 0.0
        self._trace = Trace(topic)
        self._title.set_text(clean(topic))
        if topic:
            self._unfollow = self._observer.follow(topic, self._trace.take)

    def show(self, snapshot: Snapshot) -> None:
        if not self.topic:
            return
        view = snapshot.topics.get(self.topic)
        if view is None:
            self._facts.show([("State", "not heard yet", "soft")])
            self._value.set_text("")
            self._numbers.set_visibility(False)
            return
        self._facts.show(_facts(view, snapshot))
        if view.is_value_kept:
            self._value.set_text(write_out(view.value))
        else:
            self._value.set_text(f"{show_bytes(view.size)}: too large to be kept")
        self._show_numbers(view, snapshot)

    def close(self) -> None:
        """Stop following the topic. Idempotent."""
        self._unfollow()
        self._unfollow = lambda: None

    def _show_numbers(self, view: TopicView, snapshot: Snapshot) -> None:
        fields = find_fields(view.value)
        if self._chosen is None and fields:
            self._chosen = list(fields)[:1]
            self._trace.choose(self._chosen)
            self._trace.take(view.message)  # to have a point at once
        chosen = self._chosen or []
        self._numbers.set_visibility(bool(fields or chosen))
        shown = {**fields, **{path: None for path in chosen if path not in fields}}
        self._paths = {name_field(path): path for path in list(shown)[:CHIPS_MAX]}
        chips: list[Chip] = []
        for name, path in self._paths.items():
            number = fields.get(path)
            colour = COLOURS[chosen.index(path)] if path in chosen else ""
            chips.append((name, clean(name), "" if number is None else show_number(number), colour))
        self._chips.show(chips)
        self._trace.forget(snapshot.at)
        if snapshot.at - self._drawn_at < CHART_S:
            return
        self._drawn_at = snapshot.at
        self._chart.show(
            [
                (
                    Series(clean(name_field(path)), colour=COLOURS[number]),
                    to_milliseconds(self._trace.points(path)),
                )
                for number, path in enumerate(chosen)
            ],
            snapshot.at,
        )

    def _pick(self, key: str) -> None:
        path = self._paths.get(key)
        if path is None:
            return
        chosen = self._chosen or []
        if path in chosen:
            chosen.remove(path)
        elif len(chosen) < LINES_MAX:
            chosen.append(path)
        self._chosen = chosen
        self._trace.choose(chosen)
        self._drawn_at = 0.0
        self._refresh()


def _facts(view: TopicView, snapshot: Snapshot) -> list[Fact]:
    origin = view.message.origin
    facts: list[Fact] = [
        ("Published by", _names(view.publishers) or clean(origin.name or origin.node), ""),
        ("Wanted by", _names(view.subscribers) or "nobody", "" if view.subscribers else "soft"),
        ("Rate", f"{show_rate(view.rate)} /s, {show_bytes(view.bytes_per_s)}/s", ""),
        (
            "Heard",
            f"{show_count(view.messages)} messages, {show_bytes(view.bytes)}; last "
            f"{show_time(view.last_at)} ({say_ago(snapshot.at - view.last_at)})",
            "",
        ),
        ("Size", show_bytes(view.size), ""),
    ]
    if view.loss:
        facts.append(("Lost", f"{show_share(view.loss)} of its publishers' messages", "bad"))
    if view.duplicates or view.late:
        facts.append(
            ("Order", f"{show_count(view.duplicates)} twice, {show_count(view.late)} late", "")
        )
    if origin.is_retained:
        facts.append(("State", "retained: published before observation began", "soft"))
    return facts


def _names(names: tuple[str, ...], shown_max: int = 12) -> str:
    text = ", ".join(map(clean, names[:shown_max]))
    return text if len(names) <= shown_max else f"{text} and {len(names) - shown_max:,} more"
