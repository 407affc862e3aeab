"""The columns of the two tables of `top`, and their orders."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple

from jsonbus.survey import NodeView, Picture, TopicView

from ..lib.numbers import age, count, percent
from .preview import preview


class Column(NamedTuple):
    """One column. Columns of width 0 share the rest of the line by `weight`."""

    key: str
    heading: str
    width: int
    show: Callable[[Any, int], str]
    #: Key to sort the rows by; None if that is not possible.
    order: Callable[[Any], Any] | None
    is_figure: bool = True
    #: The largest comes first.
    is_descending: bool = True
    #: On a narrow terminal the highest rank is left out first; 0 never is.
    rank: int = 0
    weight: int = 1
    #: Shown only if the terminal has at least this many columns.
    columns_min: int = 0


def _show_value(view: TopicView, width: int) -> str:
    if not view.is_value_kept:
        return f"({count(view.size)} bytes)"
    return preview(view.value, width)


def _figure(
    key: str, heading: str, width: int, figure: Callable[[Any], float | None], **more: Any
) -> Column:
    """Return a column of numbers; None is shown as "-"."""

    def show(view: Any, width: int) -> str:
        number = figure(view)
        return "-" if number is None else count(number)

    return Column(key, heading, width, show, lambda view: figure(view) or 0, **more)


def _total(name: str, heading: str, **more: Any) -> Column:
    """Return a column of what a node counts itself."""
    return _figure(
        name,
        heading,
        max(6, len(heading)),
        lambda view: getattr(view.info.totals, name, None),
        **more,
    )


def _name(view: NodeView) -> str:
    return f"{view.info.name} (this)" if view.info.is_self else view.info.name


def _wanted(view: NodeView) -> str:
    return ", ".join([*view.info.wants, *(f"serves {each}" for each in view.info.serves)])


TOPIC_COLUMNS = (
    Column("topic", "TOPIC", 0, lambda view, _: view.topic, lambda view: view.topic,
           is_figure=False, is_descending=False, weight=4),
    _figure("rate", "RATE/s", 6, lambda view: view.rate),
    _figure("bytes", "BYTES/s", 7, lambda view: view.bytes_per_s, rank=2),
    Column("publishers", "PUB", 3, lambda view, _: str(len(view.publishers)),
           lambda view: len(view.publishers), rank=3),
    Column("subscribers", "SUB", 3, lambda view, _: str(len(view.subscribers)),
           lambda view: len(view.subscribers), rank=4),
    Column("loss", "LOSS", 5, lambda view, _: percent(view.loss), lambda view: view.loss, rank=5),
    Column("age", "AGE", 4, lambda view, _: age(time.time() - view.last_at),
           lambda view: -view.last_at, is_descending=False, rank=6),
    _figure("messages", "MESSAGES", 8, lambda view: view.messages, rank=7, columns_min=120),
    Column("value", "VALUE", 0, _show_value, None, is_figure=False, rank=1, weight=5),
    Column("names", "PUBLISHERS", 0, lambda view, _: ", ".join(view.publishers), None,
           is_figure=False, rank=8, weight=3, columns_min=120),
    Column("wanted", "SUBSCRIBERS", 0, lambda view, _: ", ".join(view.subscribers), None,
           is_figure=False, rank=9, weight=3, columns_min=150),
)  # fmt: skip

NODE_COLUMNS = (
    Column("name", "NODE", 0, lambda view, _: _name(view),
           lambda view: view.info.name, is_figure=False, is_descending=False, weight=4),
    Column("mode", "MODE", 7, lambda view, _: view.info.mode, lambda view: view.info.mode,
           is_figure=False, is_descending=False, rank=4),
    _figure("sent_per_s", "SENT/s", 6, lambda view: view.sent_per_s),
    _figure("received_per_s", "RECV/s", 6, lambda view: view.received_per_s, rank=2),
    _total("sent", "SENT", rank=9, columns_min=110),
    _total("received", "RECEIVED", rank=10, columns_min=110),
    _total("suppressed", "SUPPRESSED", rank=1),
    _total("lost", "LOST", rank=3),
    _total("repaired", "REPAIRED", rank=6),
    _total("shares", "SHARES", rank=7),
    Column("age", "AGE", 4, lambda view, _: age(view.info.heard_s_ago),
           lambda view: view.info.heard_s_ago, rank=5),
    Column("host", "HOST", 12, lambda view, _: view.info.host or "-",
           lambda view: view.info.host or "", is_figure=False, is_descending=False, rank=11,
           columns_min=110),
    Column("version", "VERSION", 7, lambda view, _: view.info.version or "-",
           lambda view: view.info.version or "", is_figure=False, is_descending=False, rank=12,
           columns_min=130),
    Column("wanted", "SUBSCRIBES TO", 0, lambda view, _: _wanted(view), None, is_figure=False,
           rank=13, weight=5, columns_min=140),
)  # fmt: skip


class Table(NamedTuple):
    """One of the tables: how to take its rows from a picture, and recognize them in the next."""

    name: str
    columns: tuple[Column, ...]
    rows: Callable[[Picture], list[Any]]
    identity: Callable[[Any], str]
    #: The text that a filter is applied to.
    words: Callable[[Any], str]
    order: str


TOPICS = Table(
    "topics",
    TOPIC_COLUMNS,
    lambda picture: picture.topics,
    lambda view: view.topic,
    lambda view: view.topic,
    "rate",
)
NODES = Table(
    "nodes",
    NODE_COLUMNS,
    lambda picture: picture.nodes,
    lambda view: view.info.node,
    lambda view: f"{view.info.name} {view.info.node} {view.info.host} {view.info.address}",
    "name",
)
