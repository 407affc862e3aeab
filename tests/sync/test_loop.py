"""Where transport, clock and core meet, with threads."""

from __future__ import annotations

import threading
import time
from types import SimpleNamespace

import pytest

from jsonbus.sync import loop
from jsonbus.transport import MemoryNetwork
from tests.helpers import wait_until
from tests.sync.conftest import OpenBus


def test_a_clock_that_is_set_is_followed(
    network: MemoryNetwork, open_over: OpenBus, monkeypatch: pytest.MonkeyPatch
) -> None:
    bus = open_over(network.open())
    subscription = bus.subscribe("x")
    an_hour_later = SimpleNamespace(time=lambda: time.time() + 3600, sleep=time.sleep)
    monkeypatch.setattr(loop, "time", an_hour_later)

    def is_an_hour_later() -> bool:
        bus.publish("x", None)
        return subscription.get(timeout=30).sent_at > time.time() + 1800

    assert wait_until(is_an_hour_later)


def test_looking_from_many_threads_while_others_publish_is_safe(
    network: MemoryNetwork, open_over: OpenBus
) -> None:
    bus, other = open_over(network.open()), open_over(network.open())
    failures: list[BaseException] = []
    done = threading.Event()

    def look() -> None:
        try:
            while not done.is_set():
                bus.stats()
                bus.nodes()
                bus.subscriptions()
                bus.explain("x/1")
                bus.has_subscribers("x/1")
        except BaseException as error:
            failures.append(error)

    def change() -> None:
        try:
            for number in range(100):
                with bus.subscribe(f"x/{number % 7}") as subscription:
                    bus.publish(subscription.pattern, number)
                    other.publish(subscription.pattern, number)
        except BaseException as error:
            failures.append(error)

    looking = [threading.Thread(target=look) for _ in range(2)]
    changing = [threading.Thread(target=change) for _ in range(4)]
    for thread in (*looking, *changing):
        thread.start()
    for thread in changing:
        thread.join(60)
    done.set()
    for thread in looking:
        thread.join(60)
    assert failures == []
    assert bus.subscriptions() == {}
