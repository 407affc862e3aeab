"""Floods of reliable messages: to subscribers that hardly read, into a network that has no room."""

from __future__ import annotations

import contextlib
import threading

import pytest

import jsonbus
from jsonbus.transport import MemoryNetwork
from tests.helpers import find_free_port, wait_until

COUNT = 20_000
ROOM = 100


@pytest.mark.slow
def test_a_slow_subscriber_of_a_reliable_flood_loses_alone_and_counts_it() -> None:
    port = find_free_port()
    may_read = threading.Event()
    read: list[int] = []

    def read_slowly(message: jsonbus.Message) -> None:
        may_read.wait()
        read.append(message.value)

    heard: list[list[int]] = [[], []]
    with contextlib.ExitStack() as stack:
        names = ("publisher", "fast0", "fast1", "slow")
        publisher, *fast, slow = [
            stack.enter_context(jsonbus.Bus(port=port, name=name)) for name in names
        ]
        stack.callback(may_read.set)  # before anything closes, however this ends
        for bus, values in zip(fast, heard, strict=True):
            bus.subscribe("t", lambda message, v=values: v.append(message.value), maxsize=COUNT)
        narrow = slow.subscribe("t", read_slowly, maxsize=ROOM)
        assert wait_until(lambda: len(publisher.subscriptions().get("t", [])) == 3)
        for number in range(COUNT):
            publisher.publish("t", number, reliable=True)
        assert wait_until(lambda: [len(values) for values in heard] == [COUNT, COUNT], 120)
        assert heard == [list(range(COUNT))] * 2
        # It got all as well; what it had no room for, its own mailbox dropped.
        assert wait_until(lambda: slow.stats()["messages_delivered"] == COUNT, 120)
        may_read.set()
        assert wait_until(lambda: len(read) + narrow.dropped == COUNT, 120)
        assert narrow.dropped > 0
        assert read == sorted(set(read))
        assert slow.stats()["messages_dropped"] == narrow.dropped
        for bus in (publisher, *fast):
            assert bus.stats()["messages_dropped"] == 0
        for bus in (*fast, slow):
            assert bus.stats()["messages_given_up"] == 0


@pytest.mark.slow
def test_what_waits_for_the_network_is_not_more_than_can_be_repaired() -> None:
    transport = MemoryNetwork().open()
    with jsonbus.Bus.over(transport, mode="basic") as bus:

        def publish() -> None:
            for number in range(2 * COUNT):
                bus.publish("t", number % 10, reliable=True)

        assert bus.flush(timeout=30)
        transport.is_jammed = True
        sender = threading.Thread(target=bus.publish, args=("other", 1))
        sender.start()
        assert wait_until(lambda: bus._loop._outgoing.is_busy)  # it waits, and the others need not
        publisher = threading.Thread(target=publish)
        publisher.start()
        assert wait_until(lambda: bus.stats()["reliable_waits"] or not publisher.is_alive())
        transport.is_jammed = False
        for thread in (sender, publisher):
            thread.join(60)
        assert bus.flush(timeout=30)
        assert bus._node.reliable._history.pushed_out == 0
