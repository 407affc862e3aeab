"""Messages and nodes as a bus would give them."""

from __future__ import annotations

from typing import Any

import jsonbus


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
    given: dict[str, Any] = {
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
        "totals": None,
        **facts,
    }
    return jsonbus.NodeInfo(**given)
