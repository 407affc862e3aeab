"""A flood of reliable messages to three subscribers, one of which hardly reads."""

from __future__ import annotations

import contextlib
import threading

import pytest

import jsonbus
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
