"""The chosen topic: its value, its publishers and subscribers, and its numbers as a chart."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from nicegui import ui

from jsonbus.survey import TopicView

from ..metrics.survey_observer import SurveyObserver
from .charts import COLOURS, LiveChart, Series
from .elements import Chips, Fact, Facts, block, detail_head
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
        self._trace = Trace()
        self._unfollow: Callable[[], None] = lambda: None
        self._chosen: list[Path] | None = None  # None: the first number in the value
        self._paths: dict[str, Path] = {}
        self._drawn_at = 0.0
        self._title = detail_head(on_close)
        with block("detail-body"):
            self._facts = Facts()
            with block("numbers") as self._numbers:
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
        self._trace = Trace()
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
        self._facts.show(_facts(view, snapshot.at))
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
            first = next(iter(fields))
            self._chosen = [first]
            self._trace.begin(first, snapshot.samples.points(self.topic, first))
            self._trace.take(view.message)
        chosen = self._chosen or []
        self._numbers.set_visibility(bool(fields or chosen))
        shown = list(dict.fromkeys([*fields, *chosen]))
        self._paths = {name_field(path): path for path in shown[:CHIPS_MAX]}
        colours = dict(zip(chosen, COLOURS, strict=False))
        self._chips.show(
            (name, clean(name), show_number(fields.get(path)), colours.get(path, ""))
            for name, path in self._paths.items()
        )
        self._trace.forget(snapshot.at)
        if snapshot.at - self._drawn_at < CHART_S:
            return
        self._drawn_at = snapshot.at
        drawn = [
            (
                Series(clean(name_field(path)), colour),
                to_milliseconds(self._trace.line(path, snapshot.at)),
            )
            for path, colour in colours.items()
        ]
        self._chart.show(drawn, snapshot.at)

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


def _facts(view: TopicView, now: float) -> Iterator[Fact]:
    origin = view.message.origin
    yield "Published by", _names(view.publishers) or clean(origin.name or origin.node), ""
    yield "Wanted by", _names(view.subscribers) or "nobody", "" if view.subscribers else "soft"
    yield "Rate", f"{show_rate(view.rate)} /s, {show_bytes(view.bytes_per_s)}/s", ""
    last = f"{show_time(view.last_at)} ({say_ago(now - view.last_at)})"
    heard = f"{show_count(view.messages)} messages, {show_bytes(view.bytes)}"
    yield "Heard", f"{heard}; last {last}", ""
    yield "Size", show_bytes(view.size), ""
    if view.loss:
        yield "Lost", f"{show_share(view.loss)} of its publishers' messages", "bad"
    if view.duplicates or view.late:
        yield "Order", f"{show_count(view.duplicates)} twice, {show_count(view.late)} late", ""
    if origin.is_retained:
        yield "State", "retained: published before observation began", "soft"


def _names(names: tuple[str, ...], shown_max: int = 12) -> str:
    text = ", ".join(map(clean, names[:shown_max]))
    return text if len(names) <= shown_max else f"{text} and {len(names) - shown_max:,} more"
