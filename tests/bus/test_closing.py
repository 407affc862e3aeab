"""The end of a bus: said goodbye, bounded in time, nothing left waiting."""

from __future__ import annotations

import logging
import threading
from typing import Any

import pytest

from jsonbus.errors import ClosedError
from tests.bus.conftest import OpenBus
from tests.helpers import wait_until


def names_known_to(bus: Any) -> set[str]:
    return {node.name for node in bus.nodes()}


def test_closing_says_goodbye(open_bus: OpenBus, caplog: pytest.LogCaptureFixture) -> None:
    staying, leaving = open_bus(name="staying"), open_bus(name="leaving")
    with caplog.at_level(logging.INFO, "jsonbus.bus"):
        assert wait_until(lambda: "leaving" in names_known_to(staying))
        leaving.close()
        assert leaving.is_closed
        assert leaving.state == "closed"
        # It says so, rather than being missed after a while.
        assert wait_until(lambda: f"staying: node 'leaving' ({leaving.id}) left" in caplog.text)
    assert "leaving" not in names_known_to(staying)


def test_an_exception_in_the_with_block_closes_too(open_bus: OpenBus) -> None:
    with pytest.raises(ZeroDivisionError):
        with open_bus() as bus:
            raise ZeroDivisionError
    assert bus.is_closed


def test_closing_twice_is_fine(open_bus: OpenBus) -> None:
    bus = open_bus()
    bus.close()
    bus.close()
    with pytest.raises(ClosedError):
        bus.__enter__()


def test_a_closed_bus_may_still_be_looked_at(open_bus: OpenBus) -> None:
    bus = open_bus(receive_buffer_bytes=70_000)
    subscription = bus.subscribe("x")
    bus.publish("x", 1)
    bus.close()
    assert bus.stats()["messages_unread"] == 1
    assert bus.stats()["receive_buffer_asked_bytes"] == 70_000
    assert bus.nodes() is not None
    assert "closed" in repr(bus)
    assert "closed" in repr(subscription)
    subscription.close()


def test_closing_ends_everything_that_waits(open_bus: OpenBus) -> None:
    bus = open_bus()
    subscription = bus.subscribe("x")
    ended: list[str] = []

    def iterate() -> None:
        for _ in subscription:
            pass
        ended.append("iteration")

    def get() -> None:
        with pytest.raises(ClosedError):
            subscription.get()
        ended.append("get")

    def wait() -> None:
        with pytest.raises(ClosedError):
            bus.wait_for_subscribers("nobody", timeout=60)
        ended.append("wait")

    threads = [threading.Thread(target=each) for each in (iterate, get, wait)]
    for thread in threads:
        thread.start()
    bus.close()
    for thread in threads:
        thread.join(30)
    assert sorted(ended) == ["get", "iteration", "wait"]
