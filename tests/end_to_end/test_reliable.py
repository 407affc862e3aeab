"""A subscriber that is stopped gets what it missed on a reliable topic, or is told how much."""

from __future__ import annotations

import itertools
import signal
import time
from typing import Any

import pytest

import jsonbus
from tests.end_to_end.processes import Desk

#: Prints every value that it gets, and the count of every gap.
SUBSCRIBER = """
import jsonbus, threading
with jsonbus.Bus(name="reader") as bus:
    bus.on_gap(lambda gap: print('{"gap":%d}' % gap.count, flush=True))
    bus.subscribe("steps", lambda message: print(message.value, flush=True))
    threading.Event().wait()
"""


@pytest.mark.slow
def test_a_stopped_subscriber_gets_or_is_told_everything(desk: Desk) -> None:
    subscriber = desk.start_python(SUBSCRIBER)
    desk.wait_for_node("reader")
    with jsonbus.Bus(name="writer", port=desk.port, interface="lo", reliable=True) as bus:
        assert bus.wait_for_subscribers("steps", timeout=60)
        steps = itertools.count()
        bus.publish("steps", next(steps))
        desk.wait_until(lambda: subscriber.results == [0])
        subscriber.send_signal(signal.SIGSTOP)

        def publish_until_suppressed() -> bool:
            bus.publish("steps", next(steps))
            time.sleep(0.02)  # a rate, not a wait: some 50 a second
            return bus.stats()["messages_suppressed"] >= 100

        desk.wait_until(publish_until_suppressed)
        subscriber.send_signal(signal.SIGCONT)
        assert bus.wait_for_subscribers("steps", timeout=60)
        last = next(steps)
        assert bus.publish("steps", last)
        desk.wait_until(lambda: count_known(subscriber.results) > last)
    assert count_known(subscriber.results) == last + 1
    values = [each for each in subscriber.results if isinstance(each, int)]
    assert values == sorted(set(values))
    assert values[-1] == last


def count_known(results: list[Any]) -> int:
    """Return how many messages came or were told as missing."""
    return sum(1 if isinstance(each, int) else each["gap"] for each in results)
