"""A node that carries some topics only refuses messages of others, and counts them."""

from __future__ import annotations

import pytest

from jsonbus.core.node import Node
from tests.core.link import Link


def carries_common(topic: str) -> bool:
    return not topic.startswith("doors/")


@pytest.fixture
def link() -> Link:
    return Link()


@pytest.fixture
def pair(link: Link) -> tuple[Node, Node]:
    """A node that carries everything, and one that does not carry doors and wants everything."""
    sender = link.add("sender")
    careful = link.add("careful", carries=carries_common)
    link.subscribe(careful, "**")
    link.run(5)
    return sender, careful


@pytest.mark.parametrize("reliable", [False, True])
def test_misplaced_messages_are_counted_and_dropped(
    link: Link, pair: tuple[Node, Node], reliable: bool
) -> None:
    sender, careful = pair
    for number in range(10):
        for topic in ("doors/front", "sensors/hall"):
            sender.publish(topic, number, link.now, is_reliable=reliable)
    link.run(1)
    assert link.values("careful") == list(range(10))
    stats = careful.view.stats()
    assert stats["messages_misplaced"] == stats["messages_delivered"] == 10
    assert stats["messages_received"] == 20
    assert stats["messages_lost"] == stats["naks_sent"] == 0


def test_a_misplaced_message_alone_in_its_datagram_is_dropped(
    link: Link, pair: tuple[Node, Node]
) -> None:
    sender, careful = pair
    link.publish(sender, "doors/front", "open")
    link.publish(sender, "doors/front", "x" * 5_000)
    assert link.values("careful") == []
    stats = careful.view.stats()
    assert stats["messages_misplaced"] == 2
    assert stats["messages_delivered"] == stats["messages_lost"] == 0


@pytest.mark.parametrize("value", ["open", "x" * 5_000])
def test_misplaced_retained_values_are_dropped(
    link: Link, pair: tuple[Node, Node], value: str
) -> None:
    sender, careful = pair
    link.unsubscribe(careful, "**")
    link.run(1)
    sender.publish("doors/front", value, link.now, is_retained=True)
    sender.publish("sensors/hall", 7, link.now, is_retained=True)
    link.run(1)
    link.subscribe(careful, "**")
    link.run(5)
    assert link.values("careful") == [7]
    assert careful.view.stats()["messages_misplaced"] > 0


def test_misplaced_requests_are_counted(link: Link, pair: tuple[Node, Node]) -> None:
    sender, careful = pair
    other = link.add("other")
    other.requests.serve("doors/open", "sink", link.now)
    link.run(1)
    sender.requests.request("doors/open", None, 1.0, link.now)
    link.move()
    assert careful.view.stats()["messages_misplaced"] == 1
    assert len(link.received["other"]) == 1


def test_passive_subscriptions_get_no_misplaced_messages(
    link: Link, pair: tuple[Node, Node]
) -> None:
    sender, careful = pair
    link.unsubscribe(careful, "**")
    careful.subscribe("**", "onlooker", link.now, is_passive=True)
    link.subscribe(link.add("other"), "**")
    link.run(1)
    link.publish(sender, "doors/front", "open")
    link.publish(sender, "sensors/hall", 7)
    assert link.values("careful") == [7]
    assert link.values("other") == ["open", 7]
