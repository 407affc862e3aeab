"""Requests: answered, failed, unserved, late, and never waiting for themselves."""

from __future__ import annotations

from typing import Any

import pytest

import jsonbus
from jsonbus.errors import (
    LocalError,
    NobodyServesError,
    PayloadError,
    RequestFailedError,
)
from tests.bus.conftest import OpenBus
from tests.helpers import wait_until


def is_served(topic: str, bus: Any) -> bool:
    """Whether the bus knows a node that serves the topic."""
    return any(f"jsonbus.request/{topic}" in node.patterns for node in bus.nodes())


@pytest.mark.slow
def test_a_request_is_held_until_it_is_known_who_serves(open_bus: OpenBus) -> None:
    serving = open_bus()
    serving.serve("hello", lambda message: "there")
    assert serving.wait_until_sure(timeout=30)

    def ask_early() -> bool:
        try:
            return bool(open_bus().request("hello", timeout=30) == "there")
        except NobodyServesError:
            return False  # one that was stalled for half a second counts as absent

    assert wait_until(ask_early)


def test_a_bus_can_ask_itself(open_bus: OpenBus) -> None:
    bus = open_bus()
    bus.serve("double", lambda message: 2 * message.value)
    assert bus.request("double", 21, timeout=30) == 42


@pytest.mark.slow
def test_nobody_serving_is_told_as_soon_as_it_is_known(open_bus: OpenBus) -> None:
    with pytest.raises(NobodyServesError, match="'nothing'"):
        open_bus().request("nothing", timeout=60)


def test_a_handler_that_fails_is_told_to_who_asked_and_logged(
    open_bus: OpenBus, caplog: pytest.LogCaptureFixture
) -> None:
    asking, serving = open_bus(), open_bus()

    def fail(message: jsonbus.Message) -> None:
        raise ValueError("spilt milk")

    serving.serve("fail", fail)
    assert wait_until(lambda: is_served("fail", asking))
    with pytest.raises(RequestFailedError, match="ValueError: spilt milk") as caught:
        asking.request("fail", timeout=30)
    assert caught.value.node == serving.id
    assert "'fail'" in caplog.text


@pytest.mark.parametrize("value", [object(), "x" * 100_000])
def test_an_answer_that_cannot_be_sent_is_a_failure(open_bus: OpenBus, value: object) -> None:
    bus = open_bus()
    bus.serve("odd", lambda message: value)
    with pytest.raises(RequestFailedError, match="the reply"):
        bus.request("odd", timeout=30)


@pytest.mark.slow
def test_a_topic_is_served_once_by_a_bus_and_again_after_closing(open_bus: OpenBus) -> None:
    bus = open_bus()
    service = bus.serve("x", lambda message: 1)
    with pytest.raises(LocalError, match="already"):
        bus.serve("x", lambda message: 2)
    service.close()
    service.close()
    with pytest.raises(NobodyServesError):
        bus.request("x", timeout=60)
    bus.serve("x", lambda message: 3)
    assert bus.request("x", timeout=30) == 3


def test_what_is_asked_must_be_json(open_bus: OpenBus) -> None:
    bus = open_bus()
    bus.serve("x", lambda message: 1)
    with pytest.raises(PayloadError):
        bus.request("x", object())
