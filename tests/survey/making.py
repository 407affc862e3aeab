"""Messages and nodes as a bus would give them."""

from __future__ import annotations

from typing import Any, NamedTuple

import jsonbus


class FakeTotals(NamedTuple):
    """What a node tells of itself."""

    sent: int = 0
    suppressed: int = 0
    received: int = 0
    lost: int = 0
    repaired: int = 0
    shares: int = 0


def make_message(
    topic: str = "a",
    value: Any = 1,
    sequence: int | None = None,
    *,
    node: str = "n1",
    incarnation: int = 1,
    sent_at: float = 100.0,
    received_at: float | None = None,
    is_retained: bool = False,
) -> jsonbus.Message:
    message = jsonbus.Message()
    message.topic = topic
    message.value = value
    message.sequence = sequence
    message.origin = jsonbus.Origin(
        node,
        f"name of {node}",
        incarnation,
        sent_at,
        sent_at if received_at is None else received_at,
        is_retained,
    )
    return message


def make_node(node: str = "n1", *patterns: str, **facts: Any) -> jsonbus.NodeInfo:
    given = {
        "node": node,
        "name": f"name of {node}",
        "host": None,
        "version": None,
        "channel_port": None,
        "incarnation": 1,
        "entry_version": 1,
        "mode": "delayed",
        "is_master": False,
        "patterns": patterns,
        "heard_s_ago": 0.0,
        "address": None,
        "received": 0,
        "lost": 0,
        "is_self": False,
        "is_plain": False,
        **facts,
    }
    totals = given.pop("totals", None)
    if "totals" in jsonbus.NodeInfo.__dataclass_fields__:
        given["totals"] = totals
        return jsonbus.NodeInfo(**given)
    return _TellingNode(jsonbus.NodeInfo(**given), totals)  # type: ignore[return-value]


class _TellingNode:
    def __init__(self, info: jsonbus.NodeInfo, totals: FakeTotals | None) -> None:
        self._info = info
        self.totals = totals

    def __getattr__(self, name: str) -> Any:
        return getattr(self._info, name)
