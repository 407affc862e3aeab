"""`jsonbus_spark_bridge…` of /metrics: what the bridges of the bus told last.

Names and bounds as in families.py. A bridge that left the bus has figures for as long as it is
remembered (bridges.py), with `up` at 0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from .bridge_state import BridgeState
from .families import COUNTER, GAUGE, Family

#: Groups of a bridge that have series; a bridge tells those furthest behind first.
GROUPS_MAX = 20

_Figure = tuple[str, str, str, Callable[[BridgeState], float]]

_FIGURES: tuple[_Figure, ...] = (
    (
        "rows_recorded",
        COUNTER,
        "messages that the bridge recorded since it started",
        lambda state: state.rows_recorded,
    ),
    (
        "rows_unrecorded",
        COUNTER,
        "messages that the bridge's disk did not take",
        lambda state: state.rows_unrecorded,
    ),
    (
        "rows_expired",
        COUNTER,
        "rows that retention deleted since the bridge started",
        lambda state: state.rows_expired,
    ),
    (
        "rows_waiting",
        GAUGE,
        "messages that the bridge received and has not on disk yet",
        lambda state: state.rows_waiting,
    ),
    ("log_rows", GAUGE, "rows in the bridge's log", lambda state: state.rows),
    ("log_bytes", GAUGE, "bytes of the bridge's log on disk", lambda state: state.bytes),
    ("partitions", GAUGE, "partitions of the bridge's log", lambda state: state.partitions),
    ("readers", GAUGE, "connections of Spark to the bridge", lambda state: state.readers),
    (
        "groups",
        GAUGE,
        "consumer groups that the bridge knows",
        lambda state: state.groups_known,
    ),
    (
        "lag_max_rows",
        GAUGE,
        "rows that the group furthest behind has not committed",
        lambda state: state.lag_max,
    ),
    (
        "is_failing",
        GAUGE,
        "1 while the bridge's disk refuses rows, or its log is gone",
        lambda state: state.is_failing,
    ),
)


def collect_bridges(
    states: Sequence[BridgeState], left_out: int, now: float, wall: float
) -> Iterator[Family]:
    """`now`: monotonic seconds; `wall`: seconds since 1970."""
    labels = ("node", "name")
    yield Family(
        "jsonbus_spark_bridges",
        GAUGE,
        "Spark bridges on the bus",
        (),
        [((), sum(state.is_present for state in states) + left_out)],
    )
    yield Family(
        "jsonbus_spark_bridge_up",
        GAUGE,
        "1 if the bridge is on the bus and answered when it was asked last",
        labels,
        [
            ((state.node, state.name), float(state.is_present and state.problem is None))
            for state in states
        ],
    )
    told = [(state, at) for state in states if (at := state.told_at) is not None]
    yield Family(
        "jsonbus_spark_bridge_told_timestamp_seconds",
        GAUGE,
        "when the bridge told these figures, in seconds since 1970",
        labels,
        [((state.node, state.name), round(wall - (now - at), 3)) for state, at in told],
    )
    yield Family(
        "jsonbus_spark_bridge_last_error_timestamp_seconds",
        GAUGE,
        "when the bridge's last trouble was, in seconds since 1970",
        labels,
        [
            ((state.node, state.name), round(wall - (now - at) - state.last_error_s_ago, 3))
            for state, at in told
            if state.last_error_s_ago is not None
        ],
    )
    for name, kind, text, read in _FIGURES:
        yield Family(
            f"jsonbus_spark_bridge_{name}",
            kind,
            text,
            labels,
            [((state.node, state.name), read(state)) for state, _ in told],
        )
    yield Family(
        "jsonbus_spark_bridge_lag_rows",
        GAUGE,
        "rows that a consumer group of the bridge has not committed yet",
        (*labels, "group"),
        [
            ((state.node, state.name, each.group), each.lag)
            for state, _ in told
            for each in state.groups[:GROUPS_MAX]
            if each.lag is not None
        ],
    )
