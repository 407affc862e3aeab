"""Overview: the bus in figures, its rates over the last minutes, the busiest topics, nodes that
joined and left."""

from __future__ import annotations

import heapq
from collections.abc import Callable

from nicegui import ui

from jsonbus.survey import Overview

from .charts import COLOURS, LiveChart, Series
from .elements import Row, Rows, Tile, Tiles
from .history import RATES_S, to_milliseconds
from .snapshot import Snapshot, busiest_first
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
_MESSAGES = Series("messages/s", colour=COLOURS[0], is_filled=True)
_SUPPRESSED = Series("not sent/s", colour=COLOURS[2])
_BYTES = Series("kB/s", colour=COLOURS[1], axis=1)


class OverviewTab:
    """The tab Overview."""

    def __init__(self, on_topic: Callable[[str], None], on_nodes: Callable[[], None]) -> None:
        self._tiles = Tiles()
        with ui.element("section").classes("card"):
            with ui.element("div").classes("card-head"):
                ui.label("Traffic").classes("card-title")
                ui.label("the last five minutes, as this gateway hears it").classes("card-note")
            self._chart = LiveChart(RATES_S, ("messages/s", "kB/s"))
            with ui.element("div").classes("legend"):
                for series in (_MESSAGES, _SUPPRESSED, _BYTES):
                    with ui.element("span"):
                        ui.element("i").style(f"background: {series.colour}")
                        ui.label(series.name)
        with ui.element("div").classes("pair"):
            with ui.element("section").classes("card"):
                ui.label("Busiest topics").classes("card-title")
                self._busiest = Rows(
                    "Busiest topics",
                    (("name", "Topic"), ("value", "Value"), ("rate", "per s")),
                    empty="No messages at the moment.",
                    on_pick=on_topic,
                    on_scroll=lambda: None,
                ).classes("busiest is-short")
            with ui.element("section").classes("card"):
                ui.label("Nodes joining and leaving").classes("card-title")
                self._events = Rows(
                    "Nodes joining and leaving",
                    (("name", "Node"), ("kind", ""), ("when", "at")),
                    empty="No node has joined or left since observation began.",
                    on_pick=lambda _: on_nodes(),
                    on_scroll=lambda: None,
                ).classes("events is-short")

    def show(self, snapshot: Snapshot) -> None:
        self._tiles.show(_tiles(snapshot.picture.overview, snapshot))
        self._show_chart(snapshot)
        busiest = heapq.nsmallest(BUSIEST, snapshot.picture.topics, key=busiest_first)
        rows = [
            Row(view.topic, (clean(view.topic), shorten(view.value, 80), show_rate(view.rate)))
            for view in busiest
            if view.rate > 0
        ]
        self._busiest.show(len(rows), rows, first=0)
        events = list(snapshot.events)[: -EVENTS - 1 : -1]
        rows = [
            Row(
                f"{event.node} {event.kind} {event.at}",
                (clean(event.name), (event.kind, _EVENT_STYLES[event.kind]), show_time(event.at)),
            )
            for event in events
        ]
        self._events.show(len(rows), rows, first=0)

    def close(self) -> None: ...

    def _show_chart(self, snapshot: Snapshot) -> None:
        points = list(snapshot.rates.points)
        self._chart.show(
            [
                (_MESSAGES, to_milliseconds([(at, rate) for at, rate, _, _ in points])),
                (_SUPPRESSED, to_milliseconds([(at, rate) for at, _, _, rate in points])),
                (_BYTES, to_milliseconds([(at, rate / 1e3) for at, _, rate, _ in points])),
            ],
            snapshot.at,
        )


def _tiles(overview: Overview, snapshot: Snapshot) -> list[Tile]:
    telling = overview.nodes_telling
    of_all = "" if telling == overview.nodes else f"reported by {telling} of {overview.nodes} nodes"
    bytes_per_s, unit = show_bytes(overview.bytes_per_s).split(" ")
    forgotten = overview.topics_forgotten
    just_gone = [gone for gone in snapshot.gone if gone.event.kind == "expired"]
    gone_note = (
        f"{clean(just_gone[0].info.name)} expired {say_ago(snapshot.at - just_gone[0].event.at)}"
        if just_gone
        else "all are alive"
    )
    return [
        ("nodes", "Nodes", show_count(overview.nodes), "", gone_note, "bad" if just_gone else ""),
        (
            "topics",
            "Topics",
            show_count(overview.topics),
            "",
            f"{show_count(forgotten)} forgotten" if forgotten else "heard so far",
            "",
        ),
        (
            "messages",
            "Messages",
            show_rate(overview.rate),
            "/s",
            f"{show_count(overview.messages)} in all",
            "",
        ),
        ("bytes", "Traffic", bytes_per_s, f"{unit}/s", f"{show_bytes(overview.bytes)} in all", ""),
        (
            "suppressed",
            "Not sent",
            show_share(overview.suppressed_share).removesuffix(" %"),
            "%",
            of_all or "nobody wanted it",
            "",
        ),
        (
            "loss",
            "Lost",
            show_share(overview.loss).removesuffix(" %"),
            "%",
            _loss_note(overview),
            "bad" if overview.loss > 0.001 or overview.dropped_here else "",
        ),
        (
            "repaired",
            "Repaired",
            show_count(overview.repaired),
            "",
            "sent again",
            "",
        ),
    ]


def _loss_note(overview: Overview) -> str:
    if overview.dropped_here:
        return f"{show_count(overview.dropped_here)} dropped here"
    if overview.lost:
        return f"{show_count(overview.lost)} missed by nodes"
    return "nothing"
