"""What /metrics says of the bus: nodes, topics, webhooks and bridges, as families of samples.

Plain data; metrics.py writes it in Prometheus' format. The names are a promise, listed in the
gateway's README.md: a name stays, and new ones may be added. Names follow Prometheus: seconds and
bytes, `_total` (added by metrics.py) for counters, instants in seconds since 1970, so that
`time() - …` is an age.

The number of series is bounded here, whatever happens on the bus; see series.py.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import jsonbus
from jsonbus.survey import Picture

from ..webhooks.accounts import SubscriberView
from .bridges import BridgeState
from .series import REST, Series

#: Nodes, topics and webhooks with series of their own.
NODES_MAX = 250
TOPICS_MAX = 250
WEBHOOKS_MAX = 250
#: Groups of a bridge that have series; a bridge lists those furthest behind first.
GROUPS_MAX = 20

MODES = ("basic", "master", "delayed", "plain")

COUNTER, GAUGE = "counter", "gauge"

Labels = tuple[str, ...]
Sample = tuple[Labels, float]


class Family(NamedTuple):
    """One metric, with all its samples: the values of its labels, and the figure."""

    name: str  # a counter's name has no `_total` here
    kind: str
    text: str
    labels: Sequence[str]
    samples: list[Sample]


_NODE_COUNTERS = (
    ("messages_sent", "messages that the node sent, by its own count"),
    ("messages_suppressed", "messages that the node did not send, since nobody wanted them"),
    ("messages_received", "messages of others that the node received, wanted or not"),
    ("messages_lost", "messages of others that never reached the node"),
    ("messages_repaired", "messages that the node sent again for others that had missed them"),
    ("shares", "full subscription lists that the node sent: answers to late joiners"),
    ("messages_heard", "messages of the node that reached this gateway"),
    ("messages_missed", "messages of the node that never reached this gateway"),
)
_TOPIC_COUNTERS = (
    ("messages", "messages of the topic seen since observation began"),
    ("bytes", "bytes of their values as compact JSON; estimated from samples during floods"),
)
_WEBHOOK_COUNTERS = (
    ("messages_delivered", "messages that the webhook took, restarts included"),
    ("attempts_failed", "attempts to reach the webhook that failed"),
    ("messages_dropped", "messages of the bus dropped for lack of room or disk"),
)


class NodeFamilies:
    """`jsonbus_nodes…` and `jsonbus_node_…`."""

    def __init__(self) -> None:
        # A node's figures from before it was first seen are nobody's growth. The first figure is
        # the sum of what a node does; it shows a restart, and is not exposed.
        self._series = Series(1 + len(_NODE_COUNTERS), NODES_MAX, is_new_from_zero=False)

    def collect(self, nodes: Sequence[jsonbus.NodeInfo], wall: float) -> Iterator[Family]:
        """`wall`: seconds since 1970."""
        self._series.update(_figures_of(nodes))
        modes = Counter(info.mode for info in nodes)
        yield Family(
            "jsonbus_nodes",
            GAUGE,
            "nodes known to be on the bus, by mode",
            ("mode",),
            [((mode,), modes[mode]) for mode in MODES],
        )
        yield _aggregated("nodes", self._series)
        own = [info for info in nodes if info.node in self._series.own]
        yield Family(
            "jsonbus_node_info",
            GAUGE,
            "1 for each node: where it runs, its version and mode, and whether it is a master",
            ("node", "name", "host", "version", "mode", "master"),
            [(_describe_node(info), 1) for info in own],
        )
        yield _gauge(
            "jsonbus_node_heard_timestamp_seconds",
            "when the node was last heard by this gateway, in seconds since 1970",
            ("node", "name"),
            [((info.node, info.name), round(wall - info.heard_s_ago, 3)) for info in own],
        )
        yield _gauge(
            "jsonbus_node_patterns",
            "patterns that the node subscribes to, topics that it serves included",
            ("node", "name"),
            [((info.node, info.name), len(info.patterns)) for info in own],
        )
        names = {info.node: info.name for info in own} | {REST: REST}
        yield from _counters(
            "jsonbus_node", ("node", "name"), _NODE_COUNTERS, self._series,
            label=lambda key: (key, names[key]), first=1,
        )  # fmt: skip


class TopicFamilies:
    """`jsonbus_topics…` and `jsonbus_topic_…`: the traffic seen since observation began."""

    def __init__(self) -> None:
        self._series = Series(len(_TOPIC_COUNTERS), TOPICS_MAX, is_new_from_zero=True)

    def collect(self, picture: Picture) -> Iterator[Family]:
        self._series.update({view.topic: (view.messages, view.bytes) for view in picture.topics})
        yield _gauge(
            "jsonbus_topics",
            "topics seen since observation began",
            (),
            [((), len(picture.topics))],
        )
        yield _aggregated("topics", self._series)
        yield Family(
            "jsonbus_topics_forgotten",
            COUNTER,
            "topics forgotten to make room for others since observation began",
            (),
            [((), picture.overview.topics_forgotten)],
        )
        yield _gauge(
            "jsonbus_topic_last_seen_timestamp_seconds",
            "when the last message of the topic came, in seconds since 1970",
            ("topic",),
            [
                ((view.topic,), round(view.last_at, 3))
                for view in picture.topics
                if view.topic in self._series.own
            ],
        )
        yield from _counters("jsonbus_topic", ("topic",), _TOPIC_COUNTERS, self._series)


class WebhookFamilies:
    """`jsonbus_webhook_…`, by subscriber."""

    def __init__(self) -> None:
        # The first figure is the sum of the others: it shows that a webhook was subscribed again.
        self._series = Series(1 + len(_WEBHOOK_COUNTERS), WEBHOOKS_MAX, is_new_from_zero=True)

    def collect(self, views: Sequence[SubscriberView]) -> Iterator[Family]:
        told: dict[str, tuple[int, ...]] = {}
        for view in views:
            counts = view.delivered, view.attempts_failed, view.dropped
            told[view.name] = (sum(counts), *counts)
        self._series.update(told)
        own = [view for view in views if view.name in self._series.own]
        backlogs: list[Sample] = [((view.name,), view.backlog) for view in own]
        rest = sum(view.backlog for view in views) - sum(view.backlog for view in own)
        yield _aggregated("webhooks", self._series)
        yield _gauge(
            "jsonbus_webhook_backlog_messages",
            "messages that wait for the webhook",
            ("subscriber",),
            [*backlogs, ((REST,), rest)],
        )
        yield _gauge(
            "jsonbus_webhook_last_error_timestamp_seconds",
            "when an attempt to reach the webhook last failed, in seconds since 1970",
            ("subscriber",),
            [
                ((view.name,), round(at, 3))
                for view in own
                if (at := view.last_error_at) is not None
            ],
        )
        yield from _counters(
            "jsonbus_webhook", ("subscriber",), _WEBHOOK_COUNTERS, self._series, first=1
        )


#: The figures of a bridge: name, kind, help text, attribute of BridgeState.
_BRIDGE_FIGURES = (
    (
        "rows_recorded",
        COUNTER,
        "messages recorded since the bridge started",
        "rows_recorded",
    ),
    ("rows_unrecorded", COUNTER, "messages that the bridge's disk refused", "rows_unrecorded"),
    ("rows_expired", COUNTER, "rows deleted by retention since the bridge started", "rows_expired"),
    ("rows_waiting", GAUGE, "messages received by the bridge and not on disk yet", "rows_waiting"),
    ("log_rows", GAUGE, "rows in the bridge's log", "rows"),
    ("log_bytes", GAUGE, "bytes of the bridge's log on disk", "bytes"),
    ("partitions", GAUGE, "partitions of the bridge's log", "partitions"),
    ("readers", GAUGE, "connections of Spark to the bridge", "readers"),
    ("groups", GAUGE, "consumer groups that the bridge knows", "groups_known"),
    ("lag_max_rows", GAUGE, "rows that the group furthest behind has not committed", "lag_max"),
    (
        "is_failing",
        GAUGE,
        "1 while the disk refuses rows, or the log is gone",
        "is_failing",
    ),
)


def collect_bridges(
    states: Sequence[BridgeState], left_out: int, now: float, wall: float
) -> Iterator[Family]:
    """`jsonbus_spark_bridge…`; `now`: monotonic seconds; `wall`: seconds since 1970.

    A bridge that left the bus keeps its figures while it is remembered, with `up` at 0.
    """
    labels = ("node", "name")
    yield _gauge(
        "jsonbus_spark_bridges",
        "Spark bridges on the bus",
        (),
        [((), sum(state.is_present for state in states) + left_out)],
    )
    yield _gauge(
        "jsonbus_spark_bridge_up",
        "1 if the bridge is on the bus and answered the last request",
        labels,
        [((each.node, each.name), each.is_present and each.problem is None) for each in states],
    )
    told = [(each, wall - (now - at)) for each in states if (at := each.told_at) is not None]
    yield _gauge(
        "jsonbus_spark_bridge_told_timestamp_seconds",
        "when the bridge reported these figures, in seconds since 1970",
        labels,
        [((each.node, each.name), round(at, 3)) for each, at in told],
    )
    yield _gauge(
        "jsonbus_spark_bridge_last_error_timestamp_seconds",
        "when the bridge last had trouble, in seconds since 1970",
        labels,
        [
            ((each.node, each.name), round(at - ago_s, 3))
            for each, at in told
            if (ago_s := each.last_error_s_ago) is not None
        ],
    )
    for name, kind, text, attribute in _BRIDGE_FIGURES:
        samples: list[Sample] = [
            ((each.node, each.name), float(getattr(each, attribute))) for each, _ in told
        ]
        yield Family(f"jsonbus_spark_bridge_{name}", kind, text, labels, samples)
    yield _gauge(
        "jsonbus_spark_bridge_lag_rows",
        "rows that a consumer group of the bridge has not committed yet",
        (*labels, "group"),
        [
            ((state.node, state.name, each.group), each.lag)
            for state, _ in told
            for each in state.groups[:GROUPS_MAX]
            if each.lag is not None
        ],
    )


def _gauge(name: str, text: str, labels: Sequence[str], samples: Iterable[Sample]) -> Family:
    return Family(name, GAUGE, text, labels, list(samples))


def _aggregated(things: str, series: Series) -> Family:
    text = f"{things} without series of their own, which count under {REST}"
    return _gauge(f"jsonbus_{things}_aggregated", text, (), [((), series.rest_count)])


def _counters(
    prefix: str,
    labels: Labels,
    names: Sequence[tuple[str, str]],
    series: Series,
    *,
    label: Callable[[str], Labels] = lambda key: (key,),
    first: int = 0,
) -> Iterator[Family]:
    """Return a family for each figure of a series, from figure number `first`."""
    labelled = [
        (label(key), figures) for key, figures in [*series.own.items(), (REST, series.rest)]
    ]
    for place, (name, text) in enumerate(names, start=first):
        samples: list[Sample] = [(values, figures[place]) for values, figures in labelled]
        yield Family(f"{prefix}_{name}", COUNTER, text, labels, samples)


def _describe_node(info: jsonbus.NodeInfo) -> Labels:
    master = "true" if info.is_master else "false"
    return info.node, info.name, info.host or "", info.version or "", info.mode, master


def _figures_of(nodes: Sequence[jsonbus.NodeInfo]) -> dict[str, tuple[int, ...]]:
    told: dict[str, tuple[int, ...]] = {}
    for info in nodes:
        totals = info.totals
        if totals is None:
            if not info.is_plain:
                continue  # its totals are on their way
            totals = jsonbus.Totals()
        busy = totals.sent + totals.suppressed + totals.received + info.received
        told[info.node] = (busy, *totals, info.received, info.lost)
    return told
