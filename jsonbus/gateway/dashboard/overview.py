"""Overview: the bus in figures, its rates over the last minutes, the busiest topics, nodes that
joined and left."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator

from nicegui import ui

import jsonbus
from jsonbus.survey import Overview

from .charts import COLOURS, LiveChart, Series
from .elements import Row, Rows, Tiles, block, card, card_head
from .history import RATES_S, to_milliseconds
from .snapshot import Snapshot, Tab, busiest_first
from .texts import (
    clean,
    say_ago,
    shorten,
    show_bytes,
    show_count,
    show_rate,
    show_share,
    show_time,
)

BUSIEST = 8
EVENTS = 50

_EVENT_STYLES = {"joined": "good", "left": "soft", "expired": "bad"}
_MESSAGES = Series("messages/s", COLOURS[0], is_filled=True)
_SUPPRESSED = Series("not sent/s", COLOURS[2])
_BYTES = Series("kB/s", COLOURS[1], axis=1)


class OverviewTab(Tab):
    """The tab Overview."""

    def __init__(self, on_topic: Callable[[str], None], on_nodes: Callable[[], None]) -> None:
        self._tiles = Tiles()
        with card():
            self._chart_note = card_head("Traffic", "")
            self._chart = LiveChart(RATES_S, ("messages/s", "kB/s"))
            with block("legend"):
                for series in (_MESSAGES, _SUPPRESSED, _BYTES):
                    with ui.element("span"):
                        ui.element("i").style(f"background: {series.colour}")
                        ui.label(series.name)
        with block("pair"):
            with card():
                ui.label("Busiest topics").classes("card-title")
                self._busiest = Rows(
                    "Busiest topics",
                    "name: Topic, value: Value, rate: per s",
                    empty="No messages at the moment.",
                    on_pick=on_topic,
                ).classes("busiest is-short")
            with card():
                ui.label("Nodes joining and leaving").classes("card-title")
                self._events = Rows(
                    "Nodes joining and leaving",
                    "name: Node, kind: , when: at",
                    empty="No node has joined or left since observation began.",
                    on_pick=lambda _: on_nodes(),
                ).classes("events is-short")

    def show(self, snapshot: Snapshot) -> None:
        self._tiles.show(_tiles(snapshot))
        points = snapshot.rates.points
        self._chart.show(
            [
                (_MESSAGES, to_milliseconds((at, rate) for at, rate, _, _ in points)),
                (_SUPPRESSED, to_milliseconds((at, rate) for at, _, _, rate in points)),
                (_BYTES, to_milliseconds((at, rate / 1e3) for at, _, rate, _ in points)),
            ],
            snapshot.at,
        )
        time_span = "minute" if self._chart.minutes == 1 else f"{self._chart.minutes} minutes"
        self._chart_note.set_text(f"the last {time_span}, as this gateway hears it")
        busiest = heapq.nsmallest(BUSIEST, snapshot.picture.topics, key=busiest_first)
        rows = [
            Row(view.topic, (clean(view.topic), shorten(view.value, 80), show_rate(view.rate)))
            for view in busiest
            if view.rate > 0
        ]
        self._busiest.show_all(rows)
        self._events.show_all([_event_row(each) for each in snapshot.events[: -EVENTS - 1 : -1]])


def _event_row(event: jsonbus.NodeEvent) -> Row:
    kind = (event.kind, _EVENT_STYLES[event.kind])
    return Row(
        f"{event.node} {event.kind} {event.at}", (clean(event.name), kind, show_time(event.at))
    )


def _tiles(snapshot: Snapshot) -> Iterator[tuple[str, ...]]:
    """Return the tiles: key, label, figure, unit, note, class."""
    overview = snapshot.picture.overview
    gone = next((each for each in snapshot.gone if each.event.kind == "expired"), None)
    note, style = "all are alive", ""
    if gone is not None:
        note = f"{clean(gone.info.name)} expired {say_ago(snapshot.at - gone.event.at)}"
        style = "bad"
    yield "nodes", "Nodes", show_count(overview.nodes), "", note, style
    forgotten = overview.topics_forgotten
    note = f"{show_count(forgotten)} forgotten" if forgotten else "heard so far"
    yield "topics", "Topics", show_count(overview.topics), "", note, ""
    note = f"{show_count(overview.messages)} in all"
    yield "messages", "Messages", show_rate(overview.rate), "/s", note, ""
    figure, unit = show_bytes(overview.bytes_per_s).split(" ")
    yield "bytes", "Traffic", figure, f"{unit}/s", f"{show_bytes(overview.bytes)} in all", ""
    telling = overview.nodes_telling
    note = f"{show_share(overview.suppressed_share)} in all"
    if telling != overview.nodes:
        note = f"reported by {telling} of {overview.nodes} nodes"
    yield "suppressed", "Not sent", show_rate(overview.suppressed_per_s), "/s", note, ""
    style = "bad" if overview.loss > 0.001 or overview.dropped_here else ""
    yield "loss", "Lost", show_count(overview.lost), "in all", _loss_note(overview), style


def _loss_note(overview: Overview) -> str:
    if overview.dropped_here:
        return f"{show_count(overview.dropped_here)} dropped here"
    repaired = f"{show_count(overview.repaired)} repaired"
    return f"{show_share(overview.loss)}; {repaired}" if overview.lost else repaired
