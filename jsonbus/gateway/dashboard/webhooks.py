"""Webhooks and Spark bridges: what waits for each, and the last error."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from ..metrics.bridges import BridgeReport, BridgeState
from ..webhooks.accounts import SubscriberView
from .elements import Fact, Facts, Row, Rows, block, card, count_head, detail_head
from .snapshot import Snapshot, Tab
from .texts import clean, count_out, say_ago, show_bytes, show_count

_COLUMNS = (
    "name: Webhook, url: Address, topics: Topics, backlog: waiting, delivered: delivered, "
    "dropped: dropped, failed: failed, error: Last error"
)
_BRIDGE_COLUMNS = (
    "name: Bridge, url: Address, rows: recorded, waiting: waiting, kept: kept, bytes: on disk, "
    "readers: readers, lag: behind, error: State"
)


class WebhooksTab(Tab):
    """The tab Webhooks."""

    def __init__(self, refresh: Callable[[], None]) -> None:
        self._refresh = refresh
        self._chosen = ""
        with block("split") as self._split:
            with card("list"):
                self._count = count_head("Webhooks")
                self._rows = Rows(
                    "Webhooks",
                    _COLUMNS,
                    empty="There is no webhook. Create one with "
                    "/subscribe?topic=TOPIC&subscriberName=NAME&url=ADDRESS",
                    on_pick=self._pick,
                    on_scroll=refresh,
                ).classes("webhooks")
            with card("detail"):
                self._title = detail_head(on_close=lambda: self._pick(""))
                with block("detail-body"):
                    self._facts = Facts()
        with card("list"):
            self._bridge_count = count_head("Spark bridges")
            self._bridges = Rows(
                "Spark bridges",
                _BRIDGE_COLUMNS,
                empty="There is no Spark bridge on the bus. Start one with: jsonbus bridge",
                on_scroll=refresh,
            ).classes("bridges")

    def show(self, snapshot: Snapshot) -> None:
        views = sorted(snapshot.subscribers(), key=lambda view: (-view.backlog, view.name))
        self._rows.show(views, lambda view: _row(view, snapshot.at), chosen=self._chosen)
        if self._chosen:
            found = next((view for view in views if view.name == self._chosen), None)
            self._title.set_text(clean(self._chosen))
            self._facts.show(_facts(found, snapshot.at))
        waiting = sum(view.backlog for view in views)
        self._count.set_text(count_out(waiting, "message waits", "messages wait") if views else "")
        states, now = snapshot.bridges(), time.monotonic()
        self._bridges.show(states, lambda state: _bridge_row(state, now))
        self._bridge_count.set_text(show_count(len(states)) if states else "")

    def _pick(self, name: str) -> None:
        self._chosen = "" if name == self._chosen else name
        self._split.classes(**{"add" if self._chosen else "remove": "has-detail"})
        self._refresh()


def _facts(view: SubscriberView | None, now: float) -> Iterator[Fact]:
    if view is None:
        yield "State", "it is not subscribed any more", "soft"
        return
    error, style = _error(view, now)
    yield "Address", clean(view.url), ""
    yield "Topics", clean(", ".join(view.patterns)), ""
    yield "Waiting", show_count(view.backlog), ""
    yield "Delivered", show_count(view.delivered), ""
    yield "Dropped", show_count(view.dropped), "bad" if view.dropped else ""
    yield "Failed", count_out(view.attempts_failed, "attempt"), ""
    yield "Last error", error or "none", style


def _error(view: SubscriberView, now: float) -> tuple[str, str]:
    """Return the last error of a webhook and its class."""
    if view.last_error is None:
        return "", ""
    error = clean(view.last_error)
    if view.last_error_at is not None:
        error += f" ({say_ago(now - view.last_error_at)})"
    if view.retry_at is None:
        return error, ""
    return f"{error}; next try in {max(0.0, view.retry_at - now):.0f} s", "bad"


def _row(view: SubscriberView, now: float) -> Row:
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
            _error(view, now),
        ),
    )


def _bridge_row(state: BridgeState, now: float) -> Row:
    report = state.report
    address = state.machine or ""
    if report is None:
        figures = ("·",) * 6
        what = state.problem or "asked just now", "soft"
    else:
        figures = (
            show_count(report.rows_recorded),
            show_count(report.rows_waiting),
            show_count(report.rows),
            show_bytes(report.bytes),
            show_count(report.readers),
            show_count(report.lag_max),
        )
        what = _bridge_state(state.problem, report, now - state.told_at)
        if report.port:
            address = f"{report.host}:{report.port}"
    return Row(
        state.node,
        (clean(state.name), clean(address), *figures, (clean(what[0]), what[1])),
        style="" if state.is_present else "gone",
    )


def _bridge_state(problem: str | None, report: BridgeReport, age_s: float) -> tuple[str, str]:
    if problem is not None:
        return f"{problem}; told {say_ago(age_s)}", "bad"
    if report.is_failing:
        return report.last_error or "it cannot write", "bad"
    if report.rows_unrecorded:
        many = count_out(report.rows_unrecorded, "row was", "rows were")
        return f"{many} not recorded", "bad"
    return "records", "good"
