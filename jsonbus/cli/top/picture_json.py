"""Turns a picture into JSON for programs. Keys are only ever added."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from jsonbus.survey import NodeView, Overview, Picture, TopicView

#: A larger value, as JSON, is left out: `value` is null, `is_value_kept` false.
VALUE_BYTES_MAX = 4096


def picture_to_json(picture: Picture, topics: Iterable[TopicView], at: float) -> dict[str, Any]:
    """Return one object; `at` is in seconds since 1970, `topics` are in the order wanted."""
    return {
        "at": round(at, 3),
        "overview": _overview(picture.overview),
        "topics": [_topic(each) for each in topics],
        "nodes": [_node(each) for each in picture.nodes],
    }


def _overview(overview: Overview) -> dict[str, Any]:
    return {name: _rounded(value) for name, value in overview._asdict().items()}


def _topic(view: TopicView) -> dict[str, Any]:
    is_kept = view.is_value_kept and view.size <= VALUE_BYTES_MAX
    return {
        "topic": view.topic,
        "value": view.value if is_kept else None,
        "is_value_kept": is_kept,
        "size": view.size,
        "messages": view.messages,
        "rate": _rounded(view.rate),
        "bytes": view.bytes,
        "bytes_per_s": _rounded(view.bytes_per_s),
        "publishers": view.publishers,
        "subscribers": view.subscribers,
        "loss": _rounded(view.loss),
        "late": view.late,
        "duplicates": view.duplicates,
        "last_at": view.last_at,
        "node": view.message.node,
        "sequence": view.message.sequence,
        "retained": view.message.retained,
    }


def _node(view: NodeView) -> dict[str, Any]:
    info = view.info
    wanted, served = info.wants, info.serves
    return {
        "node": info.node,
        "name": info.name,
        "host": info.host,
        "address": info.address,
        "mode": info.mode,
        "version": info.version,
        "is_self": info.is_self,
        "is_master": info.is_master,
        "is_plain": info.is_plain,
        "heard_s_ago": _rounded(info.heard_s_ago),
        "patterns": wanted,
        "serves": served,
        "received_here": info.received,
        "lost_here": info.lost,
        "loss_here": _rounded(view.loss),
        "heard_per_s": _rounded(view.heard_per_s),
        "totals": None if info.totals is None else info.totals._asdict(),
        "sent_per_s": _rounded(view.sent_per_s),
        "received_per_s": _rounded(view.received_per_s),
        "suppressed_per_s": _rounded(view.suppressed_per_s),
        "lost_per_s": _rounded(view.lost_per_s),
        "repaired_per_s": _rounded(view.repaired_per_s),
    }


def _rounded(number: float | None) -> float | None:
    return round(number, 6) if isinstance(number, float) else number
