"""Survey: takes messages, gives pictures.

Threads: `take` is called by whatever brings messages, `picture` by whoever looks, any number of
them; a lock keeps them apart. Taking holds it for one batch, a look for as long as it takes to copy
the figures: a few microseconds per topic, during which messages wait where they came from.

Everything is bounded: topics, publishers of a topic, and the room for large values. What finds no
room takes that of what was silent longest, and is counted.
"""

from __future__ import annotations

import heapq
import threading
from collections.abc import Mapping, Sequence

import jsonbus

from .nodes import NodeRates, loss_of
from .samples import WINDOW_S, Samples, per_second
from .subscribers import Subscribers
from .topic import Publisher, Topic, size_of, without_value
from .views import NodeView, Overview, Picture, TopicView

__all__ = ["PUBLISHERS_MAX", "TOPICS_MAX", "VALUES_BYTES_MAX", "WINDOW_S", "Survey"]

#: The most topics that a survey remembers by default: some 20 MB.
TOPICS_MAX = 10_000

#: The most publishers that are remembered per topic. Thousands may report under one name; people
#: look at a few, and the counts are not affected.
PUBLISHERS_MAX = 64

#: Publishers of all topics together, on average; the first publisher of a topic always finds room.
PUBLISHERS_PER_TOPIC = 4

#: Values up to this size, as JSON, are always kept,
SMALL_BYTES = 1024
#: the others as long as they do not exceed this together.
VALUES_BYTES_MAX = 64 << 20

#: If a topic has more than this per second, only one message in STRIDE is measured: measuring takes
#: about 1 ms per MB. A prime, so that alternating values do not mislead.
MEASURED_MESSAGES_PER_S = 1_000
MEASURED_BYTES_PER_S = 1 << 20
STRIDE = 7

Counts = dict[Topic, tuple[int, int]]


class Survey:
    """Everything that happens on the bus: takes messages, nodes and the time, and gives
    pictures.
    """

    def __init__(self, topics_max: int = TOPICS_MAX) -> None:
        self._lock = threading.Lock()
        self._topics_max = topics_max
        self._topics: dict[str, Topic] = {}
        self._messages = 0
        self._bytes = 0
        self._duplicates = 0
        self._late = 0
        self._large_bytes = 0
        self._topics_forgotten = 0
        self._publishers = 0
        self._publishers_forgotten = 0
        #: (messages, bytes) of everything and of each topic; messages heard of each node.
        self._samples: Samples[tuple[int, int, Counts]] = Samples()
        self._heard: Samples[dict[tuple[str, int], int]] = Samples()
        self._rates = NodeRates()
        self._subscribers = Subscribers()

    def take(self, messages: Sequence[jsonbus.Message]) -> None:
        """Count messages, in the order in which they came. The hot path."""
        topics = self._topics
        origin = None
        with self._lock:
            sample = self._samples.number
            for message in messages:
                if message.origin is not origin:
                    origin = message.origin
                    node = origin.node
                    incarnation = origin.incarnation
                    is_retained = origin.is_retained
                topic = topics.get(message.topic)
                if topic is None:
                    topic = self._add_topic(message)
                publisher = topic.publishers.get(node)
                if publisher is None:
                    publisher = self._add_publisher(topic, origin)
                if is_retained:
                    self._take_retained(topic, message)
                    continue
                if publisher.incarnation != incarnation:
                    publisher.start(incarnation)
                sequence = message.sequence
                is_newest = True
                if sequence is not None:
                    if sequence > publisher.sequence:
                        publisher.sequence = sequence
                    elif sequence in publisher.recent:
                        topic.duplicates += 1
                        self._duplicates += 1
                        continue
                    else:
                        topic.late += 1
                        self._late += 1
                        is_newest = False
                    publisher.recent.append(sequence)
                publisher.heard_in = sample
                topic.messages += 1
                self._messages += 1
                if is_newest:
                    topic.message = message
                topic.unmeasured += 1
                if topic.unmeasured >= topic.stride:
                    size = size_of(message.value)
                    self._bytes += size * topic.unmeasured
                    topic.bytes += size * topic.unmeasured
                    topic.unmeasured = 0
                    if is_newest:
                        topic.size = size
                    if size > SMALL_BYTES or topic.held:
                        self._hold(topic)
                elif topic.held < 0:
                    topic.message = without_value(topic.message)

    def picture(
        self, now: float, nodes: Sequence[jsonbus.NodeInfo], stats: Mapping[str, int]
    ) -> Picture:
        """Return the bus at this moment; takes `now` in monotonic seconds, bus.nodes() and
        bus.stats().

        Rates are over the last WINDOW_S seconds, or since anybody last looked if that is longer;
        those of the first picture are 0. Several observers may call it, each as often as it likes.
        """
        with self._lock:
            self._subscribers.update(nodes)
            self._rates.update(now, nodes)
            topics = self._view_topics(now, nodes)
            views = self._view_nodes(now, nodes)
            overview = self._view_all(now, views, stats)
        return Picture(now, topics, views, overview)

    def _view_topics(self, now: float, nodes: Sequence[jsonbus.NodeInfo]) -> list[TopicView]:
        base, is_new = self._samples.look(now, self._count)
        span_s = now - base.at
        counted = base.counts[2].get
        here = {info.node: info for info in nodes}
        subscribers = self._subscribers
        views = []
        for topic in self._topics.values():
            if topic.generation != subscribers.generation:
                topic.generation = subscribers.generation
                topic.subscribers = subscribers.of(topic.name)
            messages, size = counted(topic, (0, 0))
            rate = per_second(topic.messages - messages, span_s)
            bytes_per_s = per_second(topic.bytes - size, span_s)
            if is_new:
                is_much = rate > MEASURED_MESSAGES_PER_S or bytes_per_s > MEASURED_BYTES_PER_S
                topic.stride = STRIDE if is_much else 1
            names = []
            received = lost = 0
            for node, publisher in topic.publishers.items():
                info = here.get(node)
                if info is not None:
                    publisher.name = info.name
                    received += info.received
                    lost += info.lost
                elif publisher.heard_in < base.number - publisher.grace:
                    continue  # it has gone
                names.append(publisher.name)
            message = topic.message
            views.append(
                TopicView(
                    topic.name,
                    message.value,
                    message,
                    topic.messages,
                    rate,
                    bytes_per_s,
                    topic.bytes,
                    tuple(names),
                    topic.subscribers,
                    loss_of(received, lost),
                    message.origin.received_at,
                    topic.size,
                    topic.held >= 0,
                    topic.duplicates,
                    topic.late,
                )
            )
        return views

    def _view_nodes(self, now: float, nodes: Sequence[jsonbus.NodeInfo]) -> list[NodeView]:
        received = {(info.node, info.incarnation): info.received for info in nodes}
        base, _ = self._heard.look(now, lambda: received)
        span_s = now - base.at
        views = []
        for info in nodes:
            before = base.counts.get((info.node, info.incarnation), 0)
            heard_per_s = per_second(info.received - before, span_s)
            loss = loss_of(info.received, info.lost)
            views.append(NodeView(info, heard_per_s, loss, *self._rates.of(now, info)))
        return views

    def _view_all(self, now: float, nodes: list[NodeView], stats: Mapping[str, int]) -> Overview:
        base, _ = self._samples.look(now, self._count)
        span_s = now - base.at
        messages_before, bytes_before, _ = base.counts
        told = [view.info.totals for view in nodes if view.info.totals is not None]
        total = jsonbus.Totals(*map(sum, zip(*told, strict=True)))
        lost_here = sum(view.info.lost for view in nodes)
        return Overview(
            nodes=len(nodes),
            nodes_telling=len(told),
            topics=len(self._topics),
            rate=per_second(self._messages - messages_before, span_s),
            bytes_per_s=per_second(self._bytes - bytes_before, span_s),
            messages=self._messages,
            bytes=self._bytes,
            **total._asdict(),
            suppressed_share=loss_of(total.sent, total.suppressed),
            loss=loss_of(total.received, total.lost),
            sent_per_s=sum(view.sent_per_s or 0.0 for view in nodes),
            suppressed_per_s=sum(view.suppressed_per_s or 0.0 for view in nodes),
            lost_here=lost_here,
            loss_here=loss_of(sum(view.info.received for view in nodes), lost_here),
            dropped_here=stats.get("messages_dropped", 0),
            topics_forgotten=self._topics_forgotten,
            publishers_forgotten=self._publishers_forgotten,
            duplicates=self._duplicates,
            late=self._late,
        )

    def _count(self) -> tuple[int, int, Counts]:
        counts = {topic: (topic.messages, topic.bytes) for topic in self._topics.values()}
        return self._messages, self._bytes, counts

    def _add_topic(self, message: jsonbus.Message) -> Topic:
        if len(self._topics) >= self._topics_max:
            self._forget_topics()
        topic = self._topics[message.topic] = Topic(message.topic, message)
        return topic

    def _forget_topics(self) -> None:
        """Make room: forget the topics that were silent longest; several at once, because
        finding them takes a while.
        """
        oldest = heapq.nsmallest(
            max(1, self._topics_max // 32),
            self._topics.values(),
            key=lambda topic: topic.message.origin.received_at,
        )
        for topic in oldest:
            del self._topics[topic.name]
            self._publishers -= len(topic.publishers)
            self._large_bytes -= max(0, topic.held)
        self._topics_forgotten += len(oldest)

    def _add_publisher(self, topic: Topic, origin: jsonbus.Origin) -> Publisher:
        has_room = self._publishers < PUBLISHERS_PER_TOPIC * self._topics_max
        if topic.publishers and (len(topic.publishers) >= PUBLISHERS_MAX or not has_room):
            silent = min(topic.publishers.values(), key=lambda each: each.heard_in)
            del topic.publishers[silent.node]
            self._publishers -= 1
            self._publishers_forgotten += 1
        publisher = Publisher(origin.node, origin.name, origin.incarnation)
        topic.publishers[origin.node] = publisher
        self._publishers += 1
        return publisher

    def _take_retained(self, topic: Topic, message: jsonbus.Message) -> None:
        """Take a retained value: worth showing while there is no current one."""
        if not topic.messages:
            topic.message = message
            topic.size = size_of(message.value)
            self._hold(topic)

    def _hold(self, topic: Topic) -> None:
        """Account for a large value; if there is no room for it, keep the message without it."""
        self._large_bytes -= max(0, topic.held)
        size = topic.size if topic.size > SMALL_BYTES else 0
        if self._large_bytes + size > VALUES_BYTES_MAX:
            topic.held = -1
            topic.message = without_value(topic.message)
        else:
            topic.held = size
            self._large_bytes += size
