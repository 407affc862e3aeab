"""Publish: a topic, a JSON value, and the results."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from nicegui import ui

import jsonbus
from jsonbus.errors import JsonBusError

from ..hub import Hub, Published
from ..values import parse_json
from .elements import Row, Rows, block, card, card_head
from .snapshot import Snapshot, Tab
from .texts import clean, count_out, shorten, show_time

#: Results that are shown.
RESULTS_MAX = 20

#: As much as a person types or pastes; larger values go by HTTP.
VALUE_CHARACTERS_MAX = 200_000


@dataclass
class Draft:
    """What the tab Publish holds while another one is in front."""

    topic: str = ""
    value: str = ""
    retain: bool = False
    reliable: bool = False
    results: list[Row] = field(default_factory=list)
    count: int = 0
    _offered: str = ""

    def offer(self, topic: str) -> Draft:
        """Take the topic that was chosen in another tab, unless it is the one of last time."""
        if topic != self._offered:
            self.topic = self._offered = topic
        return self


class PublishTab(Tab):
    """The tab Publish."""

    def __init__(self, hub: Hub, may_publish: Callable[[], bool], node: str, draft: Draft) -> None:
        """`may_publish` is called every time, since the session may be over."""
        self._hub = hub
        self._may_publish = may_publish
        self._draft = draft
        with card("publish"):
            card_head("Publish", f"as {clean(node)}")
            self._topic = ui.input(
                "Topic",
                value=draft.topic,
                placeholder="plant/line-1/valve",
                validation=_wrong_topic,
            ).props("outlined dense stack-label debounce=250 maxlength=128 hide-bottom-space")
            self._topic.classes("field").without_auto_validation()
            self._value = ui.textarea(
                "Value, as JSON",
                value=draft.value,
                placeholder='21.5, "open", {"x": 1}',
                validation=_wrong_value,
            ).props("outlined dense stack-label autogrow debounce=250 hide-bottom-space")
            self._value.props(f"maxlength={VALUE_CHARACTERS_MAX} input-style='min-height: 96px'")
            self._value.classes("field")
            with block("options"):
                self._retain = ui.switch("Retain", value=draft.retain).props("dense")
                ui.label("kept by this gateway for nodes that come later").classes("hint")
                self._reliable = ui.switch("Reliable", value=draft.reliable).props("dense")
                ui.label("sent again to nodes that miss it").classes("hint")
            self._button = ui.button("Publish", on_click=self._publish).props("no-caps unelevated")
            if not may_publish():
                self._button.disable()
                ui.label("Your token does not carry the right to publish.").classes("hint bad")
        with card("list"):
            ui.label("Results").classes("card-title")
            self._rows = Rows(
                "Results",
                "name: Topic, value: Value, result: Result, when: at",
                empty="Nothing was published here yet.",
            ).classes("results")

    def show(self, snapshot: Snapshot) -> None:
        self._rows.show_all(self._draft.results)

    def close(self) -> None:
        draft = self._draft
        draft.topic, draft.value = str(self._topic.value or ""), str(self._value.value or "")
        draft.retain, draft.reliable = bool(self._retain.value), bool(self._reliable.value)

    async def _publish(self) -> None:
        topic = str(self._topic.value or "").strip()
        text = str(self._value.value or "")
        if not (self._topic.validate() & self._value.validate()):
            return
        self._button.disable()
        try:
            result, style = await self._send(topic, text)
        finally:
            self._button.enable()
        draft = self._draft
        draft.count += 1
        value = (shorten(parse_json(text), 80), "mono")
        cells = (clean(topic), value, (result, style), show_time(time.time()))
        draft.results = [Row(str(draft.count), cells), *draft.results[: RESULTS_MAX - 1]]
        self._rows.show_all(draft.results)

    async def _send(self, topic: str, text: str) -> tuple[str, str]:
        if not self._may_publish():
            return "your session is over, or your token does not allow it", "bad"
        retain = bool(self._retain.value)
        try:
            published = await self._hub.publish(
                topic, parse_json(text), retain=retain, reliable=bool(self._reliable.value) or None
            )
        except JsonBusError as error:
            return clean(str(error)), "bad"
        return _describe(published, retain), "good" if published.is_sent else "soft"


def _describe(published: Published, retain: bool) -> str:
    text = "kept: nobody wants it yet" if retain else "not sent: nobody wants it"
    if published.is_sent:
        text = "sent"
    if published.webhooks:
        text += f", stored for {count_out(published.webhooks, 'webhook')}"
    return text


def _wrong_topic(topic: str | None) -> str | None:
    try:
        jsonbus.check_topic((topic or "").strip())
    except ValueError as error:
        return clean(str(error))
    return None


def _wrong_value(text: str | None) -> str | None:
    try:
        parse_json(text or "")
    except ValueError as error:
        return clean(str(error))
    return None
