"""A presence that says nothing new is recognized by its bytes, and does what any presence does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from jsonbus.core.node import Node
from jsonbus.core.wire import codec
from tests.core.link import START
from tests.core.receiver.test_equivalence import (
    ADDRESS,
    make_node,
    receive_the_long_way,
)

OTHER_ADDRESS = ("10.0.0.2", 2416)


class Trio:
    """Two nodes that are alike, and a third that all of them agree with."""

    def __init__(self) -> None:
        self.now = START
        self.short, self.long, self.sender = (make_node(name, 1) for name in ("me", "me", "y"))
        self._exchange()
        for _ in range(20):
            self.wait(0.1)
        self.say()

    def receive(self, data: bytes, address: tuple[str, int] = ADDRESS) -> None:
        self.short.receive([data], address, self.now)  # as front ends do
        receive_the_long_way(self.long, data, address, self.now)
        assert look(self.short, self.now) == look(self.long, self.now)

    def presence(self) -> bytes:
        self.sender._membership._announcer.send_presence(self.now)
        (data,) = self.sender.outbox.take(self.now)
        return data

    def say(self) -> None:
        self.receive(self.presence())

    def is_recognized(self, data: bytes, address: tuple[str, int] = ADDRESS) -> bool:
        """Give it to all; whether it was taken by its bytes alone."""
        recognized: list[bool] = []
        fast_receive = self.short._fast_receive
        receive_known = fast_receive._receive_known

        def note(*arguments: Any) -> bool:
            recognized.append(receive_known(*arguments))
            return recognized[-1]

        fast_receive._receive_known = note  # type: ignore[method-assign]
        self.receive(data, address)
        fast_receive._receive_known = receive_known  # type: ignore[method-assign]
        return recognized == [True]

    def wait(self, seconds: float) -> None:
        self.now += seconds
        for node in (self.short, self.long, self.sender):
            node.timer_at()
            node.handle_timer(self.now)
        self._exchange()

    def _exchange(self) -> None:
        for _ in range(10):
            said, twin_said = self.short.outbox.take(self.now), self.long.outbox.take(self.now)
            assert said == twin_said
            for data in said:
                self.sender.receive_datagram(data, OTHER_ADDRESS, self.now)
            for data in self.sender.outbox.take(self.now):
                self.receive(data)


def look(node: Node, now: float) -> dict[str, object]:
    return {
        "stats": node.view.stats(),
        "events": node.take_events(),
        "stir": node.take_attention(),
        "nodes": node.view.nodes(now),
        "place": node.directory.find("y", now),
        "timer": node.timer_at(),
        "state": node.state,
    }


def test_presence_that_says_nothing_new_is_recognized() -> None:
    trio = Trio()
    assert trio.short.state == "sure"
    for _ in range(3):
        trio.now += 0.4
        assert trio.is_recognized(trio.presence())
    (info,) = [each for each in trio.short.view.nodes(trio.now) if each.node == "y"]
    assert info.heard_s_ago == 0.0


def lost(trio: Trio) -> bytes:
    trio.presence()
    return trio.presence()


def new_port(trio: Trio) -> bytes:
    trio.sender.directory.set_channel_port(4711, trio.now)
    (data,) = trio.sender.outbox.take(trio.now)
    return data


def restarted(trio: Trio) -> bytes:
    trio.sender = make_node("y", 2)
    trio.sender.outbox.take(trio.now)
    return trio.presence()


def subscribed(trio: Trio) -> bytes:
    trio.sender.subscribe("t", "sink", trio.now)
    trio.sender.own_entry()  # made anew only when it is announced, or asked for
    return trio.presence()


def answered(trio: Trio) -> bytes:
    trio.sender._membership.introduce(trio.now)
    (data,) = trio.sender.outbox.take(trio.now)
    return data


def pong(trio: Trio) -> bytes:
    trio.short.ping(trio.now)
    trio.long.ping(trio.now)
    for data in trio.short.outbox.take(trio.now):
        trio.sender.receive_datagram(data, OTHER_ADDRESS, trio.now)
    trio.long.outbox.take(trio.now)
    trio.sender.timer_at()
    trio.sender.handle_timer(trio.now + 1)
    (data,) = trio.sender.outbox.take(trio.now)
    return data


def looked_up(trio: Trio) -> bytes:
    for node in (trio.short, trio.long):
        node.directory.start_lookup()
    return trio.presence()


def expected(trio: Trio) -> bytes:
    """Somebody is asked for, so nothing is calm."""
    for node in (trio.short, trio.long):
        node._membership._liveness._asked["z"] = trio.now + 1
    return trio.presence()


def with_time(text: bytes) -> Callable[[Trio], bytes]:
    def forge(trio: Trio) -> bytes:
        data = trio.presence()
        start = data.index(b',"t":') + len(b',"t":')
        return data[:start] + text + data[start + 16 :]

    return forge


def with_key_again(key: bytes) -> Callable[[Trio], bytes]:
    return lambda trio: trio.presence()[:-2] + b',"%b":1}}' % key


NEWS: list[Callable[[Trio], bytes]] = [
    lost,
    new_port,
    restarted,
    subscribed,
    answered,
    pong,
    looked_up,
    expected,
    *map(with_time, (b"0" * 16, b"9" * 16, b"1" * 15 + b" ", b"-" + b"1" * 15, b"1" * 15 + b"x")),
    *map(with_key_again, (b"q", b"n", b"u", b"x")),
    lambda trio: trio.presence() + b" ",
    lambda trio: trio.presence()[:-1],
    lambda trio: codec.dumps(codec.loads(trio.presence()) | {"more": 1}),
    lambda trio: trio.presence().replace(b'"n":"y"', b'"n":"\xff"'),
    lambda trio: trio.presence().replace(b'"n":"y"', b'"n":"'),
    lambda trio: trio.presence().replace(b'"n":"y"', b'"n":"z"'),
]


@pytest.mark.parametrize("say_news", NEWS)
def test_whatever_is_new_takes_the_long_way(say_news: Callable[[Trio], bytes]) -> None:
    trio = Trio()
    assert not trio.is_recognized(say_news(trio))
    for _ in range(5):
        trio.wait(0.3)
        trio.say()


def test_presence_from_another_address_takes_the_long_way_once() -> None:
    trio = Trio()
    assert not trio.is_recognized(trio.presence(), OTHER_ADDRESS)
    assert trio.is_recognized(trio.presence(), OTHER_ADDRESS)


def test_repeated_presence_is_counted_as_repeated() -> None:
    trio = Trio()
    data = trio.presence()
    assert trio.is_recognized(data)
    assert not trio.is_recognized(data)
    assert trio.short.counters.datagrams_repeated == 1


def test_lost_message_is_noticed_by_the_presence_after_it() -> None:
    trio = Trio()
    trio.sender.subscribe("t", "sink", trio.now)
    trio.wait(1)
    trio.say()
    for node in (trio.short, trio.long):
        node.subscribe("u", "sink", trio.now)
    trio.wait(1)
    assert trio.sender.publish("u", 1, trio.now)
    trio.sender.outbox.take(trio.now)
    trio.say()
    assert trio.short.counters.messages_lost == 1


def test_node_that_left_and_came_back_is_taken_as_a_new_one() -> None:
    trio = Trio()
    for _ in range(20):
        trio.now += 0.5
        for node in (trio.short, trio.long):
            node.timer_at()
            node.handle_timer(trio.now)
            node.outbox.take(trio.now)
    assert len(trio.short.view.nodes(trio.now)) == 1  # itself
    assert not trio.is_recognized(trio.presence())
    trio.wait(3)
    trio.say()
    assert trio.is_recognized(trio.presence())
