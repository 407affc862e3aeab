"""The families of /metrics about the bus: nodes, topics, webhooks and bridges.

The names are a promise, listed in the gateway's README.md: a name stays, and new ones may be added.
Names follow Prometheus: seconds and bytes, instants in seconds since 1970, so that `time() - …` is
an age; the library adds `_total` to the names of counters.

The number of series is bounded here, whatever happens on the bus; see series.py.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

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

Labels = tuple[str, ...]
Sample = tuple[Labels, float]

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


#: The figures of a bridge: name, attribute of BridgeReport, help text.
_BRIDGE_COUNTERS = (
    ("rows_recorded", "rows_recorded", "messages recorded since the bridge started"),
    ("rows_unrecorded", "rows_unrecorded", "messages that the bridge's disk refused"),
    ("rows_expired", "rows_expired", "rows deleted by retention since the bridge started"),
)
_BRIDGE_GAUGES = (
    ("rows_waiting", "rows_waiting", "messages received by the bridge and not on disk yet"),
    ("log_rows", "rows", "rows in the bridge's log"),
    ("log_bytes", "bytes", "bytes of the bridge's log on disk"),
    ("partitions", "partitions", "partitions of the bridge's log"),
    ("readers", "readers", "connections of Spark to the bridge"),
    ("groups", "groups_known", "consumer groups that the bridge knows"),
    ("lag_max_rows", "lag_max", "rows that the group furthest behind has not committed"),
    ("is_failing", "is_failing", "1 while the disk refuses rows, or the log is gone"),
)


class Families:
    """Makes the families; keeps the counters of nodes, topics and webhooks between scrapes."""

    def __init__(self) -> None:
        # A node's figures from before it was first seen are nobody's growth. The first figure is
        # the sum of what a node does; it shows a restart, and is not exposed.
        self._nodes = Series(1 + len(_NODE_COUNTERS), NODES_MAX, is_new_from_zero=False)
        self._topics = Series(len(_TOPIC_COUNTERS), TOPICS_MAX, is_new_from_zero=True)
        # The first figure is the sum of the others: it shows that a webhook was subscribed again.
        self._webhooks = Series(1 + len(_WEBHOOK_COUNTERS), WEBHOOKS_MAX, is_new_from_zero=True)

    def of_nodes(self, nodes: Sequence[jsonbus.NodeInfo], wall: float) -> Iterator[Metric]:
        """`jsonbus_nodes…` and `jsonbus_node_…`. `wall`: seconds since 1970."""
        self._nodes.update(_figures_of(nodes))
        modes = Counter(info.mode for info in nodes)
        yield _gauge(
            "jsonbus_nodes",
            "nodes known to be on the bus, by mode",
            ("mode",),
            [((mode,), modes[mode]) for mode in MODES],
        )
        yield _aggregated("nodes", self._nodes)
        own = [info for info in nodes if info.node in self._nodes.own]
        yield _gauge(
            "jsonbus_node_info",
            "1 for each node: where it runs, its version and mode, and whether it is a master",
            ("node", "name", "host", "version", "mode", "master"),
            [(_describe_node(info), 1) for info in own],
        )
        labels = ("node", "name")
        yield _gauge(
            "jsonbus_node_heard_timestamp_seconds",
            "when the node was last heard by this gateway, in seconds since 1970",
            labels,
            [((info.node, info.name), round(wall - info.heard_s_ago, 3)) for info in own],
        )
        yield _gauge(
            "jsonbus_node_patterns",
            "patterns that the node subscribes to, topics that it serves included",
            labels,
            [((info.node, info.name), len(info.patterns)) for info in own],
        )
        names = {info.node: info.name for info in own} | {REST: REST}
        yield from _counters(
            "jsonbus_node", labels, _NODE_COUNTERS, self._nodes, lambda key: (key, names[key])
        )

    def of_topics(self, picture: Picture) -> Iterator[Metric]:
        """`jsonbus_topics…` and `jsonbus_topic_…`: the traffic seen since observation began."""
        topics, forgotten = picture.topics, picture.overview.topics_forgotten
        self._topics.update({view.topic: (view.messages, view.bytes) for view in topics})
        own = [view for view in topics if view.topic in self._topics.own]
        text = "topics seen since observation began"
        yield GaugeMetricFamily("jsonbus_topics", text, len(topics))
        yield _aggregated("topics", self._topics)
        text = "topics forgotten to make room for others since observation began"
        yield CounterMetricFamily("jsonbus_topics_forgotten", text, forgotten)
        yield _gauge(
            "jsonbus_topic_last_seen_timestamp_seconds",
            "when the last message of the topic came, in seconds since 1970",
            ("topic",),
            [((view.topic,), round(view.last_at, 3)) for view in own],
        )
        yield from _counters("jsonbus_topic", ("topic",), _TOPIC_COUNTERS, self._topics)

    def of_webhooks(self, views: Sequence[SubscriberView]) -> Iterator[Metric]:
        """`jsonbus_webhook_…`, by subscriber."""
        told: dict[str, tuple[int, ...]] = {}
        for view in views:
            counts = view.delivered, view.attempts_failed, view.dropped
            told[view.name] = (sum(counts), *counts)
        self._webhooks.update(told)
        own = [view for view in views if view.name in self._webhooks.own]
        rest = sum(view.backlog for view in views) - sum(view.backlog for view in own)
        labels = ("subscriber",)
        yield _aggregated("webhooks", self._webhooks)
        yield _gauge(
            "jsonbus_webhook_backlog_messages",
            "messages that wait for the webhook",
            labels,
            [*(((view.name,), view.backlog) for view in own), ((REST,), rest)],
        )
        yield _gauge(
            "jsonbus_webhook_last_error_timestamp_seconds",
            "when an attempt to reach the webhook last failed, in seconds since 1970",
            labels,
            [
                ((view.name,), round(at, 3))
                for view in own
                if (at := view.last_error_at) is not None
            ],
        )
        yield from _counters("jsonbus_webhook", labels, _WEBHOOK_COUNTERS, self._webhooks)


def collect_bridges(
    states: Sequence[BridgeState], left_out: int, now: float, wall: float
) -> Iterator[Metric]:
    """`jsonbus_spark_bridge…`; `now`: monotonic seconds; `wall`: seconds since 1970.

    A bridge that left the bus keeps its figures while it is remembered, with `up` at 0.
    """
    prefix, labels = "jsonbus_spark_bridge", ("node", "name")
    present = sum(state.is_present for state in states) + left_out
    yield GaugeMetricFamily("jsonbus_spark_bridges", "Spark bridges on the bus", present)
    yield _gauge(
        f"{prefix}_up",
        "1 if the bridge is on the bus and answered the last request",
        labels,
        [((each.node, each.name), each.is_present and each.problem is None) for each in states],
    )
    told = [
        ((each.node, each.name), each.report, wall - (now - each.told_at))
        for each in states
        if each.report is not None
    ]
    yield _gauge(
        f"{prefix}_told_timestamp_seconds",
        "when the bridge reported these figures, in seconds since 1970",
        labels,
        [(key, round(at, 3)) for key, _, at in told],
    )
    yield _gauge(
        f"{prefix}_last_error_timestamp_seconds",
        "when the bridge last had trouble, in seconds since 1970",
        labels,
        [
            (key, round(at - ago_s, 3))
            for key, report, at in told
            if (ago_s := report.last_error_s_ago) is not None
        ],
    )
    for make, table in ((_counter, _BRIDGE_COUNTERS), (_gauge, _BRIDGE_GAUGES)):
        for name, attribute, text in table:
            samples = [(key, float(getattr(report, attribute))) for key, report, _ in told]
            yield make(f"{prefix}_{name}", text, labels, samples)
    yield _gauge(
        f"{prefix}_lag_rows",
        "rows that a consumer group of the bridge has not committed yet",
        (*labels, "group"),
        [
            ((*key, each.group), each.lag)
            for key, report, _ in told
            for each in report.groups[:GROUPS_MAX]
            if each.lag is not None
        ],
    )


def _gauge(name: str, text: str, labels: Labels, samples: Iterable[Sample]) -> Metric:
    return _fill(GaugeMetricFamily(name, text, labels=labels), samples)


def _counter(name: str, text: str, labels: Labels, samples: Iterable[Sample]) -> Metric:
    return _fill(CounterMetricFamily(name, text, labels=labels), samples)


def _fill(
    family: GaugeMetricFamily | CounterMetricFamily, samples: Iterable[Sample]
) -> GaugeMetricFamily | CounterMetricFamily:
    for labels, value in samples:
        family.add_metric([_clean(label) for label in labels], value)
    return family


def _clean(label: str) -> str:
    """Return a label as valid UTF-8: names of nodes, topics and subscribers may be anything."""
    return label if label.isascii() else label.encode(errors="replace").decode()


def _aggregated(things: str, series: Series) -> Metric:
    text = f"{things} without series of their own, which count under {REST}"
    return GaugeMetricFamily(f"jsonbus_{things}_aggregated", text, series.rest_count)


def _counters(
    prefix: str,
    labels: Labels,
    names: Sequence[tuple[str, str]],
    series: Series,
    label: Callable[[str], Labels] = lambda key: (key,),
) -> Iterator[Metric]:
    """Return a family for each of the last figures of a series."""
    labelled = [
        (label(key), figures) for key, figures in [*series.own.items(), (REST, series.rest)]
    ]
    for place, (name, text) in enumerate(names, start=-len(names)):
        samples = [(values, figures[place]) for values, figures in labelled]
        yield _counter(f"{prefix}_{name}", text, labels, samples)


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
