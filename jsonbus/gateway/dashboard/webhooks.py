"""Webhooks: what waits for each of them, and what went wrong last."""

from __future__ import annotations

from collections.abc import Callable

from nicegui import ui

from ..services import ViewLike
from .elements import Row, Rows
from .look import Look
from .texts import clean, show_ago, show_count

_COLUMNS = (
    ("name", "Webhook"),
    ("url", "Address"),
    ("topics", "Topics"),
    ("backlog", "waiting"),
    ("delivered", "delivered"),
    ("dropped", "dropped"),
    ("failed", "failed"),
    ("error", "Last error"),
)


class WebhooksTab:
    """See the head of this file."""

    def __init__(self, refresh: Callable[[], None]) -> None:
        with ui.element("section").classes("card list"):
            with ui.element("div").classes("toolbar"):
                ui.label("Webhooks").classes("card-title")
                self._count = ui.label("").classes("count")
            self._rows = Rows(
                "Webhooks",
                _COLUMNS,
                empty="No webhook subscribes. One is made by "
                "/subscribe?topic=TOPIC&subscriberName=NAME&url=ADDRESS",
                on_pick=lambda _: None,
                on_look=refresh,
            ).classes("webhooks")

    def show(self, look: Look) -> None:
        views = sorted(look.subscribers(), key=lambda view: (-view.backlog, view.name))
        window = self._rows.window(len(views))
        rows = [_row(view, look) for view in views[window.start : window.stop]]
        self._rows.show(len(views), rows, first=window.start)
        waiting = sum(view.backlog for view in views)
        self._count.set_text(f"{show_count(len(views))}, {show_count(waiting)} messages wait")

    def close(self) -> None: ...


def _row(view: ViewLike, look: Look) -> Row:
    error, style = "", ""
    if view.last_error is not None:
        ago = "" if view.last_error_at is None else f" ({show_ago(look.at - view.last_error_at)})"
        error = clean(view.last_error) + ago
        if view.retry_at is not None:
            error += f"; next try in {max(0.0, view.retry_at - look.at):.0f} s"
            style = "bad"
    return Row(
        view.name,
        (
            clean(view.name),
            clean(view.url),
            clean(", ".join(view.patterns)),
            (show_count(view.backlog), "strong" if view.backlog else ""),
            show_count(view.delivered),
            (show_count(view.dropped), "bad" if view.dropped else ""),
            show_count(view.attempts_failed),
            (error, style),
        ),
    )
