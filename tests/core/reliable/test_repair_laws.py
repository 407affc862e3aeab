"""History and streams against each other: whatever a network does, exactly once and in order."""

from __future__ import annotations

import heapq
import random
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jsonbus.core.limits import HISTORY_KEEP_MIN_S
from jsonbus.core.reliable.history import History
from jsonbus.core.reliable.streams import IN_TURN, Streams
from tests.core.generated import unhurried
from tests.core.reliable.stream_receiver import find_or_open

START = 1000.0
Ranges = list[tuple[int, int]]


class Subscriber:
    """What one node makes of the streams of one publisher."""

    def __init__(self, rng: random.Random, count: int, topics: list[str]) -> None:
        self.streams: Streams[tuple[str, int]] = Streams(lambda: count, rng)
        self.delivered: dict[str, list[int]] = {topic: [] for topic in topics}
        self.given_up: dict[str, list[int]] = {topic: [] for topic in topics}
        for topic in topics:
            self.streams.open(("p", 1, topic), 1, START)

    def receive(self, topic: str, sequence: int, now: float) -> None:
        stream = find_or_open(self.streams, ("p", 1, topic), sequence, now)
        if self.streams.receive(stream, sequence, (topic, sequence), 1, now) is IN_TURN:
            self.delivered[topic].append(sequence)
        self.collect()

    def collect(self) -> None:
        for topic, sequence in self.streams.take_ready():
            self.delivered[topic].append(sequence)
        for gap in self.streams.take_lost():
            self.given_up[gap.topic] += range(gap.first, gap.last + 1)


class World:
    """One publisher and its subscribers on a network that loses, repeats and delays."""

    def __init__(self, seed: int, subscribers: int, topics: int, loss: float, repeats: float):
        self.rng = random.Random(seed)
        self.loss = loss
        self.repeats = repeats
        self.now = START
        self.history = History()
        self.topics = [f"t{number}" for number in range(topics)]
        self.subscribers = [
            Subscriber(random.Random(self.rng.random()), subscribers, self.topics)
            for _ in range(subscribers)
        ]
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._serial = 0

    def later(self, at: float, act: Callable[[], None]) -> None:
        self._serial += 1
        heapq.heappush(self._events, (at, self._serial, act))

    def reach(self, act: Callable[..., None], *arguments: Any) -> None:
        while self.rng.random() >= self.loss:
            delay_s = self.rng.choice((0.0001, 0.001, 0.02)) * self.rng.random()
            self.later(self.now + delay_s, partial(act, *arguments))
            if self.rng.random() >= self.repeats:
                break

    def publish(self, topic: str) -> None:
        sequence = self.history.keep(topic, (b"1",), 1, self.now)
        self.send(topic, sequence)

    def send(self, topic: str, sequence: int) -> None:
        for subscriber in self.subscribers:
            self.reach(self.receive, subscriber, topic, sequence)

    def receive(self, subscriber: Subscriber, topic: str, sequence: int) -> None:
        subscriber.receive(topic, sequence, self.now)

    def hear_nak(self, subscriber: Subscriber, topic: str, ranges: Ranges) -> None:
        subscriber.streams.hear_nak(("p", 1, topic), ranges, self.now)

    def hear_beat(self, subscriber: Subscriber, topic: str, last: int, first: int) -> None:
        stream = find_or_open(subscriber.streams, ("p", 1, topic), last + 1, self.now)
        subscriber.streams.hear_beat(stream, last, first, self.now)

    def repair(self, topic: str, ranges: Ranges) -> None:
        for record in self.history.take_nak(topic, ranges, self.now):
            self.send(record.topic, record.sequence)

    def tick(self) -> None:
        """All timers."""
        for record in self.history.repairs(self.now):
            self.send(record.topic, record.sequence)
        for beat in self.history.beats(self.now):
            for subscriber in self.subscribers:
                self.reach(self.hear_beat, subscriber, *beat)
        for subscriber in self.subscribers:
            for nak in subscriber.streams.handle_timer(self.now):
                for topic, ranges, _ in nak.topics:
                    self.reach(self.repair, topic, ranges)
                    for other in self.subscribers:
                        if other is not subscriber:
                            self.reach(self.hear_nak, other, topic, ranges)
            subscriber.collect()

    def run(self, seconds: float) -> None:
        end = self.now + seconds
        while True:
            timers = [each.streams.timer_at() for each in self.subscribers]
            timer_at = min(*timers, self.history.timer_at())
            event_at = self._events[0][0] if self._events else end + 1
            if min(timer_at, event_at) > end:
                break
            self.now = max(self.now, min(timer_at, event_at))
            if event_at <= timer_at:
                heapq.heappop(self._events)[2]()
            else:
                self.tick()
        self.now = end

    def check_exactly_once_and_in_order(self) -> None:
        for subscriber in self.subscribers:
            for topic in self.topics:
                delivered = subscriber.delivered[topic]
                assert delivered == sorted(set(delivered))
                told = sorted(delivered + subscriber.given_up[topic])
                state = self.history.topics.get(topic)
                assert told == list(range(1, state.last + 1 if state else 1))


def run_world(
    seed: int, *, loss: float, subscribers: int = 2, messages: int = 60, repeats: float = 0.1
) -> World:
    world = World(seed, subscribers, 2, loss, repeats)
    for _ in range(messages):
        world.publish(world.rng.choice(world.topics))
        world.run(world.rng.choice((0.0, 0.0, 0.001, 0.05)))
    world.run(30)
    return world


@unhurried
@given(
    seed=st.integers(0, 2**32),
    loss=st.floats(0, 0.6),
    repeats=st.floats(0, 0.5),
    subscribers=st.integers(1, 4),
    messages=st.integers(1, 40),
)
def test_each_message_is_delivered_once_in_order_or_told_as_a_gap(
    seed: int, loss: float, repeats: float, subscribers: int, messages: int
) -> None:
    world = run_world(seed, loss=loss, subscribers=subscribers, messages=messages, repeats=repeats)
    world.check_exactly_once_and_in_order()
    for subscriber in world.subscribers:
        waiting = subscriber.streams.waiting
        assert (waiting.messages, waiting.size_bytes) == (0, 0)


@pytest.mark.parametrize("seed", range(40))
def test_everything_arrives_though_a_fifth_of_all_datagrams_is_lost(seed: int) -> None:
    world = run_world(seed, loss=0.2)
    world.check_exactly_once_and_in_order()
    for subscriber in world.subscribers:
        assert subscriber.given_up == {topic: [] for topic in world.topics}


@pytest.mark.slow
@pytest.mark.parametrize("buffer_messages", [256, 5000])
def test_flood_that_drowns_its_subscriber_ends_with_nothing_lost(buffer_messages: int) -> None:
    """200,000 messages a second are sent, 40,000 received; the rest overflows a buffer."""
    history = History()
    subscriber = Subscriber(random.Random(1), 1, ["a"])
    buffer: deque[int] = deque()
    holds = []
    overflown = 0
    to_publish = 150_000
    now = START
    while now < START + 60 and len(subscriber.delivered["a"]) < 150_000:
        now += 0.001
        sent = []
        for _ in range(200):
            if not to_publish or history.room_at("a", 100, now) > now:
                break
            to_publish -= 1
            sent.append(history.keep("a", (b"1" * 100,), 1, now))
        for _, last, first in history.beats(now):
            stream = find_or_open(subscriber.streams, ("p", 1, "a"), last + 1, now)
            subscriber.streams.hear_beat(stream, last, first, now)
        sent += [record.sequence for record in history.repairs(now)]
        for nak in subscriber.streams.handle_timer(now):
            for topic, ranges, _ in nak.topics:
                sent += [record.sequence for record in history.take_nak(topic, ranges, now)]
        for sequence in sent:
            if len(buffer) < buffer_messages:
                buffer.append(sequence)
            else:
                overflown += 1
        for _ in range(min(40, len(buffer))):
            subscriber.receive("a", buffer.popleft(), now)
        holds.append(history.pace.keep_s(now))
    assert subscriber.delivered["a"] == list(range(1, 150_001))
    assert subscriber.given_up["a"] == []
    assert history.pushed_out == 0
    # It slowed down: no storm of repairs, and a fraction of what a flood without end would lose.
    assert max(holds) > HISTORY_KEEP_MIN_S
    assert overflown < 40_000
    assert now - START < 12
