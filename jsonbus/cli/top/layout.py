"""Lays out a picture and the state of the keys as lines for a terminal.

Text from the network neither controls the terminal nor moves the columns: see lib/escaping.py.
Since terminals disagree about the width of some characters, the cursor is positioned again after
each cell that is not plain ASCII.

The tables are not rich's: they leave out columns by rank where it is narrow, and must end up as
lines of text that the terminal can compare with the last ones (see terminal.py).
"""

from __future__ import annotations

import json
import textwrap
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import jsonbus
from jsonbus.survey import NodeView, Overview, Picture, TopicView

from ..lib.escaping import clean, fit
from ..lib.numbers import age, count, percent
from .columns import Column
from .preview import preview
from .state import State

#: Space between columns.
GAP = 1

#: Least useful width of a column of text.
TEXT_WIDTH_MIN = 12

#: Longest value that is shown in full.
DETAIL_LENGTH_MAX = 200_000

HELP = """\
Tab           topics or nodes
Up Down j k   move; PgUp, PgDn, Home, End move farther
Enter         everything about the row; Enter or Esc goes back
/             filter: a part of the name, or a pattern with *; Esc ends it
r b t         sort by rate, bytes, topic; in nodes: n name, r sent, p suppressed
p s l a       sort by publishers, subscribers, loss, age
< >           sort by the column to the left or right; so do the arrows
i             reverse the order; so does the same key again
Space         freeze the picture; counting goes on
Ctrl-L        draw everything again
q             quit

RATE/s and BYTES/s cover the last few seconds; sizes are those of JSON.
LOSS: fraction of its publishers' messages, of any topic, that never came here.
SENT to SHARES: what a node reports of itself, since it started.
SUPPRESSED: published, but not sent, because nobody wanted it.
LOST: never arrived at that node. REPAIRED: sent again for nodes that missed it.
SHARES: how often it sent subscription lists to a late joiner."""


class Frame(NamedTuple):
    """The texts around the tables."""

    #: Group and port, and whether it is sealed.
    bus: str
    #: More is seen than what is sent for others.
    is_subscribing: bool
    #: Why there may be nothing to see; "" while it is too early to say.
    silence: str = ""
    #: The last line of the log.
    log: str = ""


class Paint(NamedTuple):
    """Styles text as far as the terminal can."""

    has_colours: bool = False
    #: No attributes such as bold, and no moves of the cursor.
    is_plain: bool = False

    def __call__(self, text: str, code: str) -> str:
        if self.is_plain or (code.startswith("3") and not self.has_colours):
            return text
        return f"\x1b[{code}m{text}\x1b[0m"


def lay_out(
    picture: Picture, state: State, frame: Frame, size: tuple[int, int], paint: Paint
) -> list[str]:
    """Return the lines of a screen of this size (columns, lines)."""
    columns, height = max(1, size[0]), max(1, size[1])
    title, totals = summarize(picture.overview, frame)
    overview = picture.overview
    has_losses = overview.lost or overview.lost_here or overview.dropped_here
    totals = fit(totals, columns)
    head = [paint(fit(title, columns), "1"), paint(totals, "33") if has_losses else totals]
    if height < 8:
        head = head[: max(0, height - 4)]
    foot = [paint(fit(_hint(state, frame), columns), "2")] if height > 2 else []
    room = height - len(head) - len(foot)
    if state.is_help_shown:
        body = [fit(each, columns) for each in HELP.splitlines()][:room]
    elif state.is_detail_shown and state.rows:
        body = _detail(state, columns, room, paint)
    else:
        body = _table(state, frame, columns, room, paint)
    return [*head, *body, *[""] * (room - len(body)), *foot]


def summarize(overview: Overview, frame: Frame) -> tuple[str, str]:
    """Return the bus in two lines."""
    title = (
        f"jsonbus {frame.bus}  {_several(overview.nodes, 'node')}  "
        f"{_several(overview.topics, 'topic')}  "
        f"{count(overview.rate)} messages/s  {count(overview.bytes_per_s)} bytes/s"
    )
    totals = [
        f"sent {count(overview.sent)}",
        f"suppressed {count(overview.suppressed)} ({percent(overview.suppressed_share)})",
        f"lost {count(overview.lost)} ({percent(overview.loss)})",
        f"repaired {count(overview.repaired)}",
    ]
    if frame.is_subscribing:
        totals.append("subscribed")
    for number, text in (
        (overview.nodes - overview.nodes_telling, "without totals"),
        (overview.dropped_here, "not counted here"),
        (overview.topics_forgotten, "topics forgotten"),
    ):
        if number:
            totals.append(f"{count(number)} {text}")
    return title, "  ".join(totals)


def lay_out_rows(
    columns: Sequence[Column],
    rows: Sequence[Any],
    width: int,
    paint: Paint,
    *,
    order: str = "",
    is_reversed: bool = False,
    chosen: int = -1,
) -> list[str]:
    """Return a heading, and a line for each row."""
    widths = _column_widths(columns, width)
    shown = [(column, widths[column.key]) for column in columns if column.key in widths]
    heading = ""
    for column, room in shown:
        text = column.heading
        if column.key == order:
            arrow = "▼" if column.is_descending is not is_reversed else "▲"
            text = arrow + text if column.is_figure else text + arrow
        if column.is_figure and len(text) > room:
            heading = heading[:-GAP]  # the arrow takes the gap
            room = len(text)
        heading += _align(text, room, column) + " " * GAP
    lines = [paint(heading[:-GAP], "1;4" if order else "1")]
    for number, row in enumerate(rows):
        cells = [(clean(column.show(row, room)), room, column) for column, room in shown]
        lines.append(_join(cells, paint, is_chosen=number == chosen))
    return lines


def _table(state: State, frame: Frame, columns: int, room: int, paint: Paint) -> list[str]:
    place = state.place
    rows = state.scroll(room - 1)
    lines = lay_out_rows(
        place.table.columns,
        rows,
        columns,
        paint,
        order=place.order,
        is_reversed=place.is_reversed,
        chosen=place.index - place.first,
    )
    if not rows and room > 2:
        empty = f"nothing matches {place.pattern}" if place.pattern else frame.silence
        lines += ["", *(fit(each, columns) for each in textwrap.wrap(clean(empty), columns))]
    return lines[:room]


def _detail(state: State, columns: int, room: int, paint: Paint) -> list[str]:
    row = state.rows[state.place.index]
    facts = _topic_facts(row) if isinstance(row, TopicView) else _node_facts(row)
    width = max(len(name) for name, _ in facts) + 2
    lines = []
    for name, text in facts:
        lines.append(paint(fit(name, width), "1") + fit(clean(text), max(0, columns - width)))
    if isinstance(row, TopicView):
        lines += [fit(clean(each), columns) for each in _value_lines(row)]
    state.detail_first = max(0, min(state.detail_first, len(lines) - room))
    state.page = max(1, room - 1)
    return lines[state.detail_first : state.detail_first + room]


def _topic_facts(view: TopicView) -> list[tuple[str, str]]:
    message = view.message
    return [
        ("topic", view.topic),
        ("publishers", ", ".join(view.publishers) or "none that is still here"),
        ("subscribers", ", ".join(view.subscribers) or "none"),
        ("messages", f"{view.messages:,} ({count(view.rate)} per second)"),
        ("bytes", f"{view.bytes:,} ({count(view.bytes_per_s)} per second)"),
        ("loss", f"{percent(view.loss)} of all messages of its publishers"),
        ("last", f"{age(time.time() - view.last_at)} ago, from {message.name} ({message.node})"),
        ("value", f"{view.size:,} bytes" + (", retained" if message.retained else "")),
    ]


def _value_lines(view: TopicView) -> list[str]:
    if not view.is_value_kept:
        return ["  (too large to be kept here)"]
    if view.size > DETAIL_LENGTH_MAX:
        text = preview(view.value, DETAIL_LENGTH_MAX)
        return [f"  {text[at : at + 200]}" for at in range(0, len(text), 200)]
    text = json.dumps(view.value, ensure_ascii=False, indent=2, default=str)
    return [f"  {each}" for each in text.split("\n")]


def _node_facts(view: NodeView) -> list[tuple[str, str]]:
    info = view.info
    facts = [
        ("name", info.name),
        ("id", info.node),
        ("host", f"{info.host or '-'} {info.address or ''}"),
        ("mode", f"{info.mode}{', answers as a master' if info.is_master else ''}"),
        ("version", info.version or "-"),
        ("started", time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(info.incarnation / 1000))),
        ("heard", f"{age(info.heard_s_ago)} ago"),
        ("here", f"{info.received:,} messages came, {info.lost:,} lost ({percent(view.loss)})"),
    ]
    if isinstance(info.totals, jsonbus.Totals):
        facts += [(name, f"{number:,}") for name, number in info.totals._asdict().items()]
    facts += [("subscribes", each) for each in info.wants or ["-"]]
    return facts + [("serves", each) for each in info.serves]


def _hint(state: State, frame: Frame) -> str:
    place = state.place
    if state.typed is not None:
        return f"filter: {clean(state.typed)}_   Enter keeps it, Esc ends it"
    parts = []
    if state.is_paused:
        parts.append("PAUSED")
    if place.pattern:
        parts.append(f"filter {clean(place.pattern)}")
    if state.rows and not (state.is_help_shown or state.is_detail_shown):
        parts.append(f"{place.index + 1}/{len(state.rows)}")
    if frame.log:
        parts.append(clean(frame.log))
    elif state.is_help_shown:
        parts.append("any key goes back")
    elif state.is_detail_shown:
        parts.append("Esc back  arrows scroll  Tab other table  q end")
    else:
        other = state.places[1].table.name
        parts.append(
            f"Tab {other}  Enter all  / filter  <> sort  i reverse  Space pause  ? help  q"
        )
    return "  ".join(parts)


def _several(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _column_widths(columns: Sequence[Column], width: int) -> dict[str, int]:
    """Return the width of each column; those without room are left out, by rank."""
    shown = [each for each in columns if width >= each.columns_min]
    while True:
        texts = [each for each in shown if not each.width]
        fixed = sum(each.width for each in shown) + GAP * (len(shown) - 1)
        rest = width - fixed
        spare = [each for each in shown if each.rank]
        if rest >= TEXT_WIDTH_MIN * len(texts) or not spare:
            break
        shown.remove(max(spare, key=lambda each: each.rank))
    rest = max(rest, len(texts))
    widths = {each.key: each.width for each in shown}
    weights = sum(each.weight for each in texts)
    for each in texts:
        widths[each.key] = max(1, rest * each.weight // weights)
    if texts:
        widths[texts[-1].key] += max(0, rest - sum(widths[each.key] for each in texts))
    return widths


def _join(cells: list[tuple[str, int, Column]], paint: Paint, *, is_chosen: bool) -> str:
    parts = []
    at = 1
    for text, width, column in cells:
        if at > 1:
            parts.append(" " * GAP)
        shown = _align(text, width, column)
        parts.append(shown)
        at += width + GAP
        if not shown.isascii() and not paint.is_plain:
            parts.append(f"\x1b[{at - GAP}G")
    line = "".join(parts)
    return paint(line, "7") if is_chosen else line


def _align(text: str, width: int, column: Column) -> str:
    if column.is_figure:
        return text.rjust(width)[:width] if text.isascii() else fit(text, width)
    return fit(text, width)
