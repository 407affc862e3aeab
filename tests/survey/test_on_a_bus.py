"""A survey of real buses, which look on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from time import monotonic

import pytest

import jsonbus
from jsonbus.survey import Picture, Survey
from jsonbus.transport.memory import MemoryNetwork
from tests.helpers import wait_until


class Scene:
    """A publisher, a reader, and one who looks on and may be unplugged."""

    def __init__(self, stack: ExitStack) -> None:
        network = MemoryNetwork()
        self.plug = network.open()
        self.publisher = stack.enter_context(jsonbus.Bus.over(network.open(), name="publisher"))
        self.reader = stack.enter_context(jsonbus.Bus.over(network.open(), name="reader"))
        self.looker = stack.enter_context(jsonbus.Bus.over(self.plug, name="looker"))
        self.survey = Survey()
        self.reading = self.reader.subscribe("a/*", maxsize=1_000)
        self.looker.subscribe("**", self.survey.take, in_batches=True, passive=True)
        assert self.publisher.wait_for_subscribers("a/x", timeout=30)
        assert self.publisher.wait_until_sure(timeout=30)

    def publish(self, topic: str, count: int) -> None:
        """And wait until all of it has travelled."""
        for number in range(count):
            self.publisher.publish(topic, number)
            self.publisher.flush()
            self.reading.get(timeout=30)

    def look(self) -> Picture:
        return self.survey.picture(monotonic(), self.looker.nodes(), self.looker.stats())


@pytest.fixture
def scene() -> Iterator[Scene]:
    with ExitStack() as stack:
        yield Scene(stack)


@pytest.mark.slow
def test_who_looks_on_counts_what_travels_for_others(scene: Scene) -> None:
    scene.publish("a/x", 20)
    scene.publisher.publish("unwanted", 1)
    assert wait_until(lambda: scene.look().overview.messages == 20)
    (topic,) = scene.look().topics
    assert (topic.topic, topic.value, topic.messages) == ("a/x", 19, 20)
    assert (topic.publishers, topic.subscribers, topic.loss) == (("publisher",), ("reader",), 0.0)


@pytest.mark.slow
def test_what_does_not_come_is_a_loss_and_not_a_slow_publisher(scene: Scene) -> None:
    scene.publish("a/x", 20)
    assert wait_until(lambda: scene.look().overview.messages == 20)
    scene.plug.is_plugged = False
    scene.publish("a/x", 10)
    scene.plug.is_plugged = True
    scene.publish("a/x", 10)
    assert wait_until(lambda: scene.look().overview.messages == 30)
    picture = scene.look()
    assert (picture.topics[0].loss, picture.overview.lost_here) == (0.25, 10)


@pytest.mark.slow
def test_what_nodes_count_themselves_is_in_the_overview(scene: Scene) -> None:
    scene.publish("a/x", 10)
    for _ in range(30):
        scene.publisher.publish("unwanted", 1)
    scene.looker.ping(timeout=0.0)
    assert wait_until(lambda: scene.look().overview.suppressed == 30)
    overview = scene.look().overview
    assert (overview.sent, overview.suppressed_share) == (10, 0.75)
    views = {view.info.name: view for view in scene.look().nodes}
    assert views.keys() == {"publisher", "reader", "looker"}
