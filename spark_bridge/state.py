"""The state that a bridge reports over the bus.

It serves one topic, `spark-bridge/NODE/state`, NODE being its id on the bus. So a bridge is found
without asking anybody: served topics are in every node's subscription list, as
`jsonbus.request/spark-bridge/NODE/state`. The answer is one JSON object; README.md of this folder
has its keys, which stay.

An answer travels in one datagram, and is asked for every few seconds: what may be long, a thousand
groups or partitions, is bounded here, and beside it stands how much there is. The bridge's own port
and its /metrics have everything.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

#: The most groups that are reported, those furthest behind first, and the bytes they may take.
#: Names have up to 800 bytes.
GROUPS_MAX = 20
GROUPS_BYTES_MAX = 4_096

#: Partitions whose offsets are reported.
PARTITIONS_MAX = 64

#: An error may name a long path.
ERROR_CHARACTERS_MAX = 500


def state_topic(node: str) -> str:
    """Return the topic under which the bridge with this node id answers."""
    return f"spark-bridge/{node}/state"


class Trouble(NamedTuple):
    """Something that went wrong."""

    at: float  # monotonic seconds
    text: str


class Terms(NamedTuple):
    """The facts that do not change while a bridge runs."""

    name: str
    node: str
    version: str
    address: tuple[str, int]
    has_token: bool
    log: str  # its id
    retention_s: float | None
    retention_bytes: int | None
    has_tls: bool = False


def describe_state(
    terms: Terms,
    stats: Mapping[str, Mapping[str, Any]],
    offsets: Sequence[tuple[int, int]],
    trouble: Trouble | None,
    *,
    is_failing: bool,
    now: float,
) -> dict[str, Any]:
    """Make the answer. `stats`: of log, recorder, server and groups; `offsets`: by partition."""
    log, recorder, groups = stats["log"], stats["recorder"], stats["groups"]
    lags = [facts["lag"] for facts in groups.values() if "lag" in facts]
    return {
        "bridge": terms.name,
        "node": terms.node,
        "version": terms.version,
        "host": terms.address[0],
        "port": terms.address[1],
        "token": terms.has_token,
        "tls": terms.has_tls,
        "log": terms.log,
        "rows_recorded": recorder["rows_recorded"],
        "rows_unrecorded": recorder["rows_unrecorded"],
        "rows_waiting": recorder["rows_waiting"],
        "rows_expired": log["rows_expired"],
        "rows": log["rows"],
        "bytes": log["bytes"],
        "partitions": len(offsets),
        "offsets": [list(each) for each in offsets[:PARTITIONS_MAX]],
        "readers": stats["server"]["connections"],
        "groups": _choose_groups(groups),
        "groups_known": len(groups),
        "lag_max": max(lags, default=0),
        "is_failing": is_failing,
        "last_error": None if trouble is None else trouble.text[:ERROR_CHARACTERS_MAX],
        "last_error_s_ago": None if trouble is None else round(now - trouble.at, 3),
        "retention_s": terms.retention_s,
        "retention_bytes": terms.retention_bytes,
    }


def _choose_groups(groups: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Choose the groups that there is room for; those that have not committed yet come last."""
    told: list[dict[str, Any]] = []
    room_bytes = GROUPS_BYTES_MAX
    for name in sorted(groups, key=lambda name: (-groups[name].get("lag", -1), name)):
        facts = groups[name]
        group = {
            "group": name,
            "lag": facts.get("lag"),
            "committed_s_ago": facts.get("committed_s_ago"),
            "misfits": facts["misfits"],
        }
        room_bytes -= len(json.dumps(group, ensure_ascii=False).encode())
        if room_bytes < 0 or len(told) == GROUPS_MAX:
            break
        told.append(group)
    return told
