"""Nodes: which nodes are on the bus, what each does and wants, and which have just gone."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from nicegui import ui

import jsonbus
from jsonbus.survey import NodeView

from ..metrics.survey_observer import Gone
from .elements import Cell, Fact, Facts, Row, Rows
from .snapshot import Snapshot
from .texts import clean, count_out, say_ago, show_ago, show_count, show_rate, show_share, show_time

#: Patterns of one node that are shown.
PATTERNS_MAX = 500

_COLUMNS = (
    ("name", "Node"),
    ("host", "Host"),
    ("mode", "Mode"),
    ("sends", "sends/s"),
    ("gets", "gets/s"),
    ("kept", "not sent"),
    ("lost", "lost"),
    ("again", "repaired"),
    ("shares", "shares"),
    ("heard", "heard"),
)


class NodesTab:
    """The tab Nodes."""

    def __init__(self, refresh: Callable[[], None]) -> None:
        self._refresh = refresh
        self._chosen = ""
        with ui.element("div").classes("split") as self._split:
            with ui.element("section").classes("card list"):
                with ui.element("div").classes("toolbar"):
                    self._answers = ui.label("").classes("answers")
                    self._count = ui.label("").classes("count")
                self._rows = Rows(
                    "Nodes",
                    _COLUMNS,
                    empty="There is no node.",
                    on_pick=self._pick,
                    on_scroll=refresh,
                ).classes("nodes")
            with ui.element("section").classes("card detail"):
                with ui.element("div").classes("card-head"):
                    self._title = ui.label("").classes("card-title topic-title")
                    ui.button(icon="close", on_click=lambda: self._pick("")).props(
                        "flat round dense aria-label=Close"
                    ).classes("close")
                with ui.element("div").classes("detail-body"):
                    self._facts = Facts()
                    self._wants_label = ui.label("").classes("label")
                    self._wants = ui.label("").classes("value")
                    self._serves_label = ui.label("Answers requests to").classes("label")
                    self._serves = ui.label("").classes("value")

    def show(self, snapshot: Snapshot) -> None:
        gone, views = snapshot.gone, snapshot.picture.nodes
        total = len(gone) + len(views)
        window = self._rows.window(total)
        rows = [
            _gone_row(gone[number], snapshot)
            if number < len(gone)
            else _node_row(views[number - len(gone)])
            for number in window
        ]
        self._rows.show(total, rows, first=window.start, chosen=self._chosen)
        self._answers.set_text(who_answers([view.info for view in views]))
        here = count_out(len(views), "node")
        self._count.set_text(f"{here}, {len(gone)} gone" if gone else here)
        self._show_detail(snapshot)

    def close(self) -> None: ...

    def _show_detail(self, snapshot: Snapshot) -> None:
        if not self._chosen:
            return
        nodes = snapshot.picture.nodes
        view = next((each for each in nodes if each.info.node == self._chosen), None)
        gone = next((each for each in snapshot.gone if each.info.node == self._chosen), None)
        if view is None and gone is None:
            self._facts.show([("State", "it is not here any more", "soft")])
            return
        info = view.info if view is not None else gone.info if gone is not None else None
        assert info is not None
        self._title.set_text(clean(info.name))
        self._facts.show(_facts(info, view, gone, snapshot))
        wanted, served = info.wants, info.serves
        self._wants_label.set_text(f"Its subscription list: {show_count(len(wanted))}")
        self._wants.set_text(_list(wanted) or "It wants nothing.")
        self._serves.set_text(_list(served))
        self._serves_label.set_visibility(bool(served))
        self._serves.set_visibility(bool(served))

    def _pick(self, node: str) -> None:
        self._chosen = "" if node == self._chosen else node
        self._split.classes(**{"add" if self._chosen else "remove": "has-detail"})
        self._refresh()


def who_answers(infos: Sequence[jsonbus.NodeInfo]) -> str:
    """Who gives the subscription list to nodes that come late, in one sentence."""
    masters = [info for info in infos if info.is_master]
    shares = sorted(
        ((info.totals.shares, info.name) for info in infos if info.totals and info.totals.shares),
        reverse=True,
    )
    told = ", ".join(f"{clean(name)} {show_count(count)}×" for count, name in shares[:5])
    if len(shares) > 5:
        told += f" and {len(shares) - 5} more"
    if masters:
        names = ", ".join(clean(info.name) for info in masters[:3])
        return f"Late joiners are answered by {names}" + (f"; so far {told}" if told else "")
    if told:
        return f"Late joiners were answered by {told}"
    if any(info.mode == "delayed" for info in infos):
        return "No late joiner was answered yet"
    return "Nobody answers late joiners"


def _node_row(view: NodeView) -> Row:
    info, totals = view.info, view.info.totals
    mode = "plain" if info.is_plain else info.mode
    lost: Cell = ("·", "soft") if totals is None else show_count(totals.lost)
    if totals is not None and totals.lost:
        lost = (show_count(totals.lost), "bad")
    return Row(
        info.node,
        (
            clean(info.name) + (" (this gateway)" if info.is_self else ""),
            clean(info.host or ""),
            (f"{mode}, master" if info.is_master else mode, "strong" if info.is_master else ""),
            _rate(view.sent_per_s),
            _rate(view.received_per_s),
            _share(totals),
            lost,
            _count(totals and totals.repaired),
            _count(totals and totals.shares),
            "now" if info.is_self else show_ago(info.heard_s_ago),
        ),
        style="self" if info.is_self else "old" if info.heard_s_ago > 10 else "",
    )


def _gone_row(gone: Gone, snapshot: Snapshot) -> Row:
    info, event = gone
    ago = show_ago(snapshot.at - event.at)
    what = "expired" if event.kind == "expired" else "left"
    return Row(
        info.node,
        (
            clean(info.name),
            clean(info.host or ""),
            (what, "bad" if what == "expired" else "soft"),
            *("" for _ in range(6)),
            (ago, "bad" if what == "expired" else "soft"),
        ),
        style="gone expired" if what == "expired" else "gone",
    )


def _facts(
    info: jsonbus.NodeInfo, view: NodeView | None, gone: Gone | None, snapshot: Snapshot
) -> list[Fact]:
    facts: list[Fact] = []
    if gone is not None and view is None:
        why = "said goodbye" if gone.event.kind == "left" else "fell silent"
        facts.append(("State", f"{why} at {show_time(gone.event.at)}", "bad"))
    started_s_ago = snapshot.at - info.incarnation / 1000
    address = info.address or ("this machine" if info.is_self else "unknown")
    facts += [
        ("Id", info.node, "mono"),
        ("Host", clean(f"{info.host or 'unknown'}, {address}"), ""),
        ("Software", clean(info.version or "unknown"), ""),
        ("Mode", f"{info.mode}{', master' if info.is_master else ''}", ""),
        ("Started", say_ago(started_s_ago) if 0 <= started_s_ago < 4e9 else "", ""),
        ("Channels", "none" if info.channel_port is None else f"port {info.channel_port}", ""),
        ("Heard here", f"{show_count(info.received)} messages, {show_count(info.lost)} lost", ""),
    ]
    totals = info.totals
    if totals is None:
        facts.append(("Own counts", "not reported", "soft"))
        return facts
    published = totals.sent + totals.suppressed
    facts += [
        (
            "Published",
            f"{show_count(published)}, of which {show_count(totals.suppressed)} were not sent",
            "",
        ),
        ("Received", f"{show_count(totals.received)}, {show_count(totals.lost)} lost", ""),
        ("Repaired", f"{show_count(totals.repaired)} messages sent again", ""),
        ("Shared", f"the subscription list {show_count(totals.shares)}×", ""),
    ]
    return facts


def _rate(per_s: float | None) -> Cell:
    return ("·", "soft") if per_s is None else show_rate(per_s)


def _count(count: int | None) -> Cell:
    return ("·", "soft") if count is None else show_count(count)


def _share(totals: jsonbus.Totals | None) -> Cell:
    if totals is None:
        return ("·", "soft")
    published = totals.sent + totals.suppressed
    return show_share(totals.suppressed / published if published else 0.0)


def _list(names: Sequence[str]) -> str:
    text = "\n".join(map(clean, names[:PATTERNS_MAX]))
    return text if len(names) <= PATTERNS_MAX else f"{text}\nand {len(names) - PATTERNS_MAX:,} more"
