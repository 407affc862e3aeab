"""Nodes: which nodes are on the bus, what each does and wants, and which have just gone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from nicegui import ui

import jsonbus
from jsonbus.survey import NodeView

from ..metrics.survey_observer import Gone
from .elements import Cell, Fact, Facts, Row, Rows, block, card, detail_head
from .snapshot import Snapshot, Tab
from .texts import clean, count_out, say_ago, show_ago, show_count, show_rate, show_share, show_time

#: Patterns of one node that are shown.
PATTERNS_MAX = 500

_COLUMNS = (
    "name: Node, host: Host, mode: Mode, sends: sends/s, gets: gets/s, kept: not sent, lost: lost, "
    "again: repaired, shares: shares, heard: heard"
)
_UNKNOWN = ("·", "soft")


class NodesTab(Tab):
    """The tab Nodes."""

    def __init__(self, refresh: Callable[[], None]) -> None:
        self._refresh = refresh
        self._chosen = ""
        with block("split") as self._split:
            with card("list"):
                with block("toolbar"):
                    self._answers = ui.label("").classes("answers")
                    self._count = ui.label("").classes("count")
                self._rows = Rows(
                    "Nodes",
                    _COLUMNS,
                    empty="There is no node.",
                    on_pick=self._pick,
                    on_scroll=refresh,
                ).classes("nodes")
            with card("detail"):
                self._title = detail_head(on_close=lambda: self._pick(""))
                with block("detail-body"):
                    self._facts = Facts()
                    self._wants_label = ui.label("").classes("label")
                    self._wants = ui.label("").classes("value")
                    self._serves_label = ui.label("Answers requests to").classes("label")
                    self._serves = ui.label("").classes("value")

    def show(self, snapshot: Snapshot) -> None:
        gone, views = snapshot.gone, snapshot.picture.nodes
        shown: list[Gone | NodeView] = [*gone, *views]
        self._rows.show(
            shown,
            lambda each: _gone_row(each, snapshot) if isinstance(each, Gone) else _node_row(each),
            chosen=self._chosen,
        )
        self._answers.set_text(who_answers([view.info for view in views]))
        here = count_out(len(views), "node")
        self._count.set_text(f"{here}, {len(gone)} gone" if gone else here)
        if self._chosen:
            self._show_detail(snapshot)

    def _show_detail(self, snapshot: Snapshot) -> None:
        known: list[NodeView | Gone] = [*snapshot.picture.nodes, *snapshot.gone]
        found = next((each for each in known if each.info.node == self._chosen), None)
        if found is None:
            self._facts.show([("State", "it is not here any more", "soft")])
            return
        info = found.info
        self._title.set_text(clean(info.name))
        gone = found.event if isinstance(found, Gone) else None
        self._facts.show(_facts(info, gone, snapshot.at))
        self._wants_label.set_text(f"Its subscription list: {show_count(len(info.wants))}")
        self._wants.set_text(_list(info.wants) or "It wants nothing.")
        self._serves.set_text(_list(info.serves))
        for label in (self._serves_label, self._serves):
            label.set_visibility(bool(info.serves))

    def _pick(self, node: str) -> None:
        self._chosen = "" if node == self._chosen else node
        self._split.classes(**{"add" if self._chosen else "remove": "has-detail"})
        self._refresh()


def who_answers(infos: Sequence[jsonbus.NodeInfo]) -> str:
    """Return a sentence that names the nodes that give late joiners the subscription list."""
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
    counts: tuple[Cell, ...] = (_UNKNOWN,) * 4
    if totals is not None:
        published = totals.sent + totals.suppressed
        counts = (
            show_share(totals.suppressed / published if published else 0.0),
            (show_count(totals.lost), "bad" if totals.lost else ""),
            show_count(totals.repaired),
            show_count(totals.shares),
        )
    return Row(
        info.node,
        (
            clean(info.name) + (" (this gateway)" if info.is_self else ""),
            clean(info.host or ""),
            (f"{mode}, master" if info.is_master else mode, "strong" if info.is_master else ""),
            _rate(view.sent_per_s),
            _rate(view.received_per_s),
            *counts,
            "now" if info.is_self else show_ago(info.heard_s_ago),
        ),
        style="self" if info.is_self else "old" if info.heard_s_ago > 10 else "",
    )


def _gone_row(gone: Gone, snapshot: Snapshot) -> Row:
    info, event = gone
    what, style, row_style = "left", "soft", "gone"
    if event.kind == "expired":
        what, style, row_style = "expired", "bad", "gone expired"
    ago = show_ago(snapshot.at - event.at)
    cells: tuple[Cell, ...] = (
        clean(info.name),
        clean(info.host or ""),
        (what, style),
        *[""] * 6,
        (ago, style),
    )
    return Row(info.node, cells, style=row_style)


def _facts(info: jsonbus.NodeInfo, gone: jsonbus.NodeEvent | None, now: float) -> Iterator[Fact]:
    if gone is not None:
        why = "said goodbye" if gone.kind == "left" else "fell silent"
        yield "State", f"{why} at {show_time(gone.at)}", "bad"
    started_s_ago = now - info.incarnation / 1000
    address = info.address or ("this machine" if info.is_self else "unknown")
    yield "Id", info.node, "mono"
    yield "Host", clean(f"{info.host or 'unknown'}, {address}"), ""
    yield "Software", clean(info.version or "unknown"), ""
    yield "Mode", f"{info.mode}{', master' if info.is_master else ''}", ""
    yield "Started", say_ago(started_s_ago) if 0 <= started_s_ago < 4e9 else "", ""
    yield "Channels", "none" if info.channel_port is None else f"port {info.channel_port}", ""
    yield "Heard here", f"{show_count(info.received)} messages, {show_count(info.lost)} lost", ""
    totals = info.totals
    if totals is None:
        yield "Own counts", "not reported", "soft"
        return
    published, unsent = show_count(totals.sent + totals.suppressed), show_count(totals.suppressed)
    yield "Published", f"{published}, of which {unsent} were not sent", ""
    yield "Received", f"{show_count(totals.received)}, {show_count(totals.lost)} lost", ""
    yield "Repaired", f"{show_count(totals.repaired)} messages sent again", ""
    yield "Shared", f"the subscription list {show_count(totals.shares)}×", ""


def _rate(per_s: float | None) -> Cell:
    return _UNKNOWN if per_s is None else show_rate(per_s)


def _list(names: Sequence[str]) -> str:
    text = "\n".join(map(clean, names[:PATTERNS_MAX]))
    return text if len(names) <= PATTERNS_MAX else f"{text}\nand {len(names) - PATTERNS_MAX:,} more"
