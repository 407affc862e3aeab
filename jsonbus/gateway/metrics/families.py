"""What /metrics tells of the bus: nodes, topics, webhooks and bridges, as families of samples.

Plain data: metrics.py writes it down as Prometheus reads it. The names are a promise, listed in
README.md of this folder: what is here stays, more may be added. Names follow Prometheus: seconds
and bytes, `_total` (added by metrics.py) for what only grows, instants as seconds since 1970, from
which `time() - …` makes an age.

How many series there can be is bounded here, whatever happens on the bus; see series.py.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import jsonbus
from jsonbus.survey import Picture

from ..webhooks.accounts import SubscriberView
from .series import REST, Series

#: Nodes, topics and webhooks with series of their own.
NODES_MAX = 250
TOPICS_MAX = 250
WEBHOOKS_MAX = 250

MODES = ("basic", "master", "delayed", "plain")

COUNTER, GAUGE = "counter", "gauge"

Sample = tuple[Sequence[str], float]


class Family(NamedTuple):
    """One name, with all its samples: the values of its labels, and the figure."""

    name: str  # of a counter without the `_total`
    kind: str
    text: str
    labels: Sequence[str]
    samples: list[Sample]


_NODE_COUNTERS = (
    ("messages_sent", "messages that the node sent, as it counts itself"),
    ("messages_suppressed", "messages that the node did not send, as nobody wanted them"),
    ("messages_received", "messages of others that the node received, wanted or not"),
    ("messages_lost", "messages of others that never came to the node"),
    ("messages_repaired", "messages that the node sent again for others that had missed them"),
    ("shares", "full subscription lists that the node sent: answers to late joiners"),
    ("messages_heard", "messages of the node that came to this gateway"),
    ("messages_missed", "messages of the node that never came to this gateway"),
)


class NodeFamilies:
    """`jsonbus_nodes…` and `jsonbus_node_…`."""

    def __init__(self) -> None:
        # What a node told before it was first seen is nobody's growth. The first figure, which says
        # who is busiest, is the sum of what a node does; it is not shown.
        self._series = Series(1 + len(_NODE_COUNTERS), NODES_MAX, is_new_from_zero=False)

    def collect(
        self, nodes: Sequence[jsonbus.NodeInfo], now: float, wall: float
    ) -> Iterator[Family]:
        """`now`: monotonic seconds; `wall`: seconds since 1970."""
        told: dict[str, tuple[int, ...]] = {}
        for info in nodes:
            totals = info.totals
            if totals is None:
                if not info.is_plain:
                    continue  # it tells in a moment
                totals = jsonbus.Totals()
            busy = totals.sent + totals.suppressed + totals.received + info.received
            told[info.node] = (busy, *totals, info.received, info.lost)
        self._series.update(told, now)
        infos = {info.node: info for info in nodes}
        modes = Counter(info.mode for info in nodes)
        yield Family(
            "jsonbus_nodes",
            GAUGE,
            "nodes known to be on the bus, by mode",
            ("mode",),
            [((mode,), modes[mode]) for mode in MODES],
        )
        yield Family(
            "jsonbus_nodes_aggregated",
            GAUGE,
            f"nodes without series of their own, which count under {REST}",
            (),
            [((), self._series.rest_count)],
        )
        own = [(infos[shown.key], shown.figures) for shown in self._series.own()]
        yield Family(
            "jsonbus_node_info",
            GAUGE,
            "1 for each node: where it runs, its version and mode, and whether it is a master",
            ("node", "name", "host", "version", "mode", "master"),
            [
                (
                    (
                        info.node,
                        info.name,
                        info.host or "",
                        info.version or "",
                        info.mode,
                        "true" if info.is_master else "false",
                    ),
                    1,
                )
                for info, _ in own
            ],
        )
        yield Family(
            "jsonbus_node_heard_timestamp_seconds",
            GAUGE,
            "when the node was last heard by this gateway, in seconds since 1970",
            ("node", "name"),
            [((info.node, info.name), round(wall - info.heard_s_ago, 3)) for info, _ in own],
        )
        yield Family(
            "jsonbus_node_patterns",
            GAUGE,
            "patterns that the node subscribes to, topics that it serves included",
            ("node", "name"),
            [((info.node, info.name), len(info.patterns)) for info, _ in own],
        )
        labelled = [((info.node, info.name), figures) for info, figures in own]
        labelled.append(((REST, REST), self._series.rest))
        for place, (name, text) in enumerate(_NODE_COUNTERS, start=1):
            yield Family(
                f"jsonbus_node_{name}",
                COUNTER,
                text,
                ("node", "name"),
                [(labels, figures[place]) for labels, figures in labelled],
            )


class TopicFamilies:
    """`jsonbus_topics…` and `jsonbus_topic_…`: what travels, since somebody looks."""

    def __init__(self) -> None:
        self._series = Series(2, TOPICS_MAX, is_new_from_zero=True)

    def collect(self, picture: Picture) -> Iterator[Family]:
        seen = {view.topic: view.last_at for view in picture.topics}
        self._series.update(
            {view.topic: (view.messages, view.bytes) for view in picture.topics}, picture.at
        )
        own = [((shown.key,), shown.figures) for shown in self._series.own()]
        yield Family(
            "jsonbus_topics",
            GAUGE,
            "topics of which messages were seen since observation began",
            (),
            [((), len(picture.topics))],
        )
        yield Family(
            "jsonbus_topics_aggregated",
            GAUGE,
            f"topics without series of their own, which count under {REST}",
            (),
            [((), self._series.rest_count)],
        )
        yield Family(
            "jsonbus_topics_forgotten",
            COUNTER,
            "topics that had to make room for others since observation began",
            (),
            [((), picture.overview.topics_forgotten)],
        )
        yield Family(
            "jsonbus_topic_last_seen_timestamp_seconds",
            GAUGE,
            "when the last message of the topic came, in seconds since 1970",
            ("topic",),
            [(labels, round(seen[labels[0]], 3)) for labels, _ in own],
        )
        own.append(((REST,), self._series.rest))
        for place, (name, text) in enumerate(
            (
                ("messages", "messages of the topic that travelled, since it is observed"),
                ("bytes", "their values as compact JSON; of floods estimated by samples"),
            )
        ):
            yield Family(
                f"jsonbus_topic_{name}",
                COUNTER,
                text,
                ("topic",),
                [(labels, figures[place]) for labels, figures in own],
            )


class WebhookFamilies:
    """`jsonbus_webhook_…`, by subscriber."""

    def __init__(self) -> None:
        self._series = Series(4, WEBHOOKS_MAX, is_new_from_zero=True)

    def collect(self, views: Sequence[SubscriberView], now: float) -> Iterator[Family]:
        told: dict[str, tuple[int, ...]] = {}
        for view in views:
            counts = view.delivered, view.attempts_failed, view.dropped
            told[view.name] = (sum(counts), *counts)
        self._series.update(told, now)
        is_own = self._series.is_own
        own = [view for view in views if is_own(view.name)]
        backlogs: list[Sample] = [((view.name,), view.backlog) for view in own]
        rest = sum(view.backlog for view in views if not is_own(view.name))
        yield Family(
            "jsonbus_webhooks_aggregated",
            GAUGE,
            f"webhooks without series of their own, which count under {REST}",
            (),
            [((), self._series.rest_count)],
        )
        yield Family(
            "jsonbus_webhook_backlog_messages",
            GAUGE,
            "messages that wait for the webhook",
            ("subscriber",),
            [*backlogs, ((REST,), rest)],
        )
        yield Family(
            "jsonbus_webhook_last_error_timestamp_seconds",
            GAUGE,
            "when an attempt for the webhook failed last, in seconds since 1970",
            ("subscriber",),
            [
                ((view.name,), round(view.last_error_at, 3))
                for view in own
                if view.last_error_at is not None
            ],
        )
        labelled = [((shown.key,), shown.figures) for shown in self._series.own()]
        labelled.append(((REST,), self._series.rest))
        for place, (name, text) in enumerate(
            (
                ("messages_delivered", "messages that the webhook took, restarts included"),
                ("attempts_failed", "attempts to reach the webhook that failed"),
                ("messages_dropped", "messages of the bus without room or disk for them"),
            ),
            start=1,
        ):
            yield Family(
                f"jsonbus_webhook_{name}",
                COUNTER,
                text,
                ("subscriber",),
                [(labels, figures[place]) for labels, figures in labelled],
            )
