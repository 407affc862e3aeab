"""Turns a picture into JSON for programs. Keys are only ever added."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from jsonbus.survey import NodeView, Picture, TopicView

#: A larger value, as JSON, is left out: `value` is null, `is_value_kept` false.
VALUE_BYTES_MAX = 4096


def picture_to_json(
    picture: Picture, topics: Iterable[TopicView], at: float, sealed: str | None
) -> dict[str, Any]:
    """Return one object; `at` is in seconds since 1970, `topics` are in the order wanted.

    `sealed` is the name of a sealed bus.
    """
    return {
        "at": round(at, 3),
        "sealed": sealed,
        "overview": {name: _rounded(each) for name, each in picture.overview._asdict().items()},
        "topics": [_topic(each) for each in topics],
        "nodes": [_node(each) for each in picture.nodes],
    }


def _topic(view: TopicView) -> dict[str, Any]:
    is_kept = view.is_value_kept and view.size <= VALUE_BYTES_MAX
    return {
        "topic": view.topic,
        "value": view.value if is_kept else None,
        "is_value_kept": is_kept,
        **_pick(view, "size messages rate bytes bytes_per_s publishers subscribers"),
        **_pick(view, "loss late duplicates"),
        "last_at": view.last_at,
        **_pick(view.message, "node sequence retained"),
    }


def _node(view: NodeView) -> dict[str, Any]:
    info = view.info
    return {
        **_pick(info, "node name host address mode version is_self is_master is_plain heard_s_ago"),
        "patterns": info.wants,
        "serves": info.serves,
        "received_here": info.received,
        "lost_here": info.lost,
        "loss_here": _rounded(view.loss),
        "heard_per_s": _rounded(view.heard_per_s),
        "totals": None if info.totals is None else info.totals._asdict(),
        **_pick(view, "sent_per_s received_per_s suppressed_per_s lost_per_s repaired_per_s"),
    }


def _pick(facts: object, names: str) -> dict[str, Any]:
    """Return these attributes, rounded, under their own names."""
    return {name: _rounded(getattr(facts, name)) for name in names.split()}


def _rounded(value: Any) -> Any:
    return round(value, 6) if isinstance(value, float) else value
