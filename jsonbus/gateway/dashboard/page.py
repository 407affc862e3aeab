"""One open page: its header and its tabs, of which only the one in front is updated."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

from nicegui import Client, events, ui
from starlette.requests import Request

from ..hub import Hub
from ..metrics.survey_observer import SurveyObserver
from .elements import ASSETS, Shell, block
from .nodes import NodesTab
from .overview import OverviewTab
from .publish import Draft, PublishTab
from .sessions import Session
from .snapshot import Snapshot, Tab
from .texts import clean
from .topics import TopicsTab
from .webhooks import WebhooksTab

#: A page that is hidden for longer stops observing until it is visible again.
HIDDEN_S_MAX = 300.0

_STYLE = (ASSETS / "style.css").read_text(encoding="utf-8")


class Page:
    """The page of one browser window. Made inside the NiceGUI client that asks for it."""

    def __init__(
        self,
        client: Client,
        request: Request,
        *,
        session: Session,
        observer: SurveyObserver,
        hub: Hub,
        node: str,
        has_logout: bool,
        last_snapshot: Callable[[], Snapshot | None],
    ) -> None:
        self.client = client
        self.session = session
        self._observer = observer
        self._last_snapshot = last_snapshot
        self.is_observing = False
        self.was_connected = False
        self._draft = Draft()
        self._hidden_at: float | None = None
        self._topic = request.query_params.get("topic", "")
        self._makers = self._make_tabs(hub, node)
        name = request.query_params.get("tab", "")
        self._name = name if name in self._makers else "overview"
        self._tab: Tab | None = None
        client.on_connect(self._begin)
        client.on_disconnect(self._pause)
        client.on_delete(self.close)
        ui.add_css(_STYLE)
        client.title = f"{clean(node)} · jsonbus"
        self._build_header(node, hub.sealed, has_logout)
        self._body = ui.element("main").classes("body")
        self._open(self._name)

    @property
    def is_due(self) -> bool:
        """True while the page is visible."""
        return self.is_observing and self._hidden_at is None

    @property
    def shows_bridges(self) -> bool:
        return self.is_due and self._name == "webhooks"

    def show(self, snapshot: Snapshot) -> None:
        """Update the tab in front."""
        if self._tab is not None:
            self._tab.show(snapshot)

    def check(self, now: float) -> None:
        """Stop observing if the page was hidden for long; reload it if its session is over."""
        if self._hidden_at is not None and now - self._hidden_at > HIDDEN_S_MAX:
            self._observe(False)
        if self.session.is_over:
            self.client.run_javascript("window.location.reload()")
            self._observe(False)
        elif self.is_due:
            self.session.use()

    def close(self) -> None:
        """Stop observing. Idempotent."""
        self._observe(False)
        if self._tab is not None:
            self._tab.close()
            self._tab = None

    def _make_tabs(self, hub: Hub, node: str) -> dict[str, Callable[[], Tab]]:
        makers: dict[str, Callable[[], Tab]] = {
            "overview": lambda: OverviewTab(self._to_topic, lambda: self._go("nodes")),
            "topics": lambda: TopicsTab(
                self._observer, self._topic, self._refresh, self._note_topic
            ),
            "nodes": lambda: NodesTab(self._refresh),
            "webhooks": lambda: WebhooksTab(self._refresh),
            "publish": lambda: PublishTab(
                hub, self._may_publish, node, self._draft.offer(self._topic)
            ),
        }
        if "admin" not in self.session.rights:
            del makers["webhooks"]  # as with /subscribers
        return makers

    def _build_header(self, node: str, sealed: str | None, has_logout: bool) -> None:
        with ui.element("header").classes("top"):
            with block("brand"):
                ui.element("span").classes("logo")
                ui.label("jsonbus").classes("brand-name")
                seal = "" if sealed is None else f" · sealed ({sealed})"
                ui.label(clean(node + seal)).classes("brand-node")
            with ui.tabs().props("no-caps dense outside-arrows mobile-arrows shrink") as self._tabs:
                for name in self._makers:
                    ui.tab(name, label=name.capitalize())
            self._tabs.classes("nav").set_value(self._name)
            self._tabs.on_value_change(self._turn)
            with block("tools"):
                Shell(self._note_visible)
                if has_logout:
                    form = ui.element("form").props("method=post action=/logout")
                    with form, ui.element("button").props("type=submit").classes("logout"):
                        ui.label("Log out")

    def _open(self, name: str) -> None:
        if self._tab is not None:
            self._tab.close()
        self._name = name
        self._body.clear()
        with self._body, block(f"tab tab-{name}"):
            self._tab = self._makers[name]()
        self._refresh()

    def _turn(self, event: events.ValueChangeEventArguments[Any]) -> None:
        name = str(event.value)
        if name in self._makers and name != self._name:
            self._open(name)
            self._note_place()

    def _go(self, name: str) -> None:
        self._tabs.set_value(name)  # which calls _turn

    def _to_topic(self, topic: str) -> None:
        self._topic = topic
        self._go("topics")

    def _note_topic(self, topic: str) -> None:
        if topic != self._topic:
            self._topic = topic
            self._note_place()

    def _note_place(self) -> None:
        """Note the tab and the topic in the address, so that a reload shows the same."""
        place = f"/?tab={self._name}"
        if self._topic and self._name in ("topics", "publish"):
            place += f"&topic={quote(self._topic, safe='/')}"
        ui.navigate.history.replace(place)

    def _may_publish(self) -> bool:
        return "publish" in self.session.rights and not self.session.is_over

    def _refresh(self) -> None:
        snapshot = self._last_snapshot()
        # A browser whose session is over may keep its page open, but it sees nothing new.
        if snapshot is not None and self._tab is not None and not self.session.is_over:
            self._tab.show(snapshot)

    def _note_visible(self, is_visible: bool) -> None:
        self._hidden_at = None if is_visible else time.monotonic()
        if is_visible:
            self._observe(True)
            self._refresh()

    def _begin(self) -> None:
        self.was_connected = True
        self._observe(True)

    def _pause(self) -> None:
        if not self.client.has_socket_connection:
            self._observe(False)

    def _observe(self, is_observing: bool) -> None:
        if is_observing == self.is_observing or (is_observing and self.client.is_deleted):
            return
        self.is_observing = is_observing
        if is_observing:
            self._observer.acquire()
        else:
            self._observer.release()
