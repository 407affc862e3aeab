"""Requests: answered, failed, unserved, late, and never waiting for themselves."""

from __future__ import annotations

import threading

import pytest

import jsonbus
from jsonbus.errors import (
    ClosedError,
    LocalError,
    NobodyServesError,
    PayloadError,
    RequestFailedError,
    RequestTimeoutError,
)
from tests.helpers import wait_until
from tests.sync.conftest import OpenBus


def is_served(topic: str, bus: jsonbus.Bus) -> bool:
    """Whether the bus knows a node that serves the topic."""
    return any(f"jsonbus.request/{topic}" in node.patterns for node in bus.nodes())


def test_a_request_gets_what_the_handler_of_another_bus_returns(open_bus: OpenBus) -> None:
    asking, serving = open_bus(), open_bus()
    serving.serve("add", lambda message: message.value["a"] + message.value["b"])
    assert wait_until(lambda: is_served("add", asking))
    assert asking.request("add", {"a": 1, "b": 2}, timeout=30) == 3


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


def test_many_threads_each_get_their_own_answer(open_bus: OpenBus) -> None:
    asking, serving = open_bus(), open_bus(workers=2)
    serving.serve("double", lambda message: 2 * message.value)
    assert wait_until(lambda: is_served("double", asking))
    answers: dict[int, object] = {}

    def ask(number: int) -> None:
        answers[number] = asking.request("double", number, timeout=60)

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert answers == {number: 2 * number for number in range(20)}


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


def test_no_answer_in_time_is_a_timeout(open_bus: OpenBus) -> None:
    asking, serving = open_bus(), open_bus()
    go_on = threading.Event()
    serving.serve("slow", lambda message: go_on.wait(60))
    assert wait_until(lambda: is_served("slow", asking))
    with pytest.raises(RequestTimeoutError) as caught:
        asking.request("slow", timeout=0.05)
    assert (caught.value.topic, caught.value.timeout_s) == ("slow", 0.05)
    go_on.set()


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


def test_a_handler_may_ask_another_bus(open_bus: OpenBus) -> None:
    front, back = open_bus(), open_bus()
    back.serve("back", lambda message: message.value + 1)
    assert wait_until(lambda: is_served("back", front))
    front.serve("front", lambda message: front.request("back", message.value, timeout=30) * 10)
    assert front.request("front", 1, timeout=30) == 20


def test_a_handler_that_would_wait_for_its_own_worker_is_told(open_bus: OpenBus) -> None:
    bus = open_bus(workers=1)
    raised: list[LocalError] = []

    def handler(message: jsonbus.Message) -> None:
        try:
            bus.request("helper", timeout=60)
        except LocalError as error:
            raised.append(error)

    bus.serve("helper", lambda message: 1)
    bus.subscribe("x", handler)
    bus.publish("x", 1)
    assert wait_until(lambda: raised)
    assert "more workers" in str(raised[0])


def test_with_another_worker_a_handler_may_ask_its_own_bus(open_bus: OpenBus) -> None:
    bus = open_bus(workers=2)
    got: list[object] = []
    bus.serve("helper", lambda message: 1)
    bus.subscribe("x", lambda message: got.append(bus.request("helper", timeout=60)))
    bus.publish("x", 1)
    bus.publish("x", 1)
    assert wait_until(lambda: got == [1, 1])


def test_services_that_would_wait_for_each_other_are_told(open_bus: OpenBus) -> None:
    bus = open_bus(workers=8)
    bus.serve("a", lambda message: bus.request("b", timeout=60))
    bus.serve("b", lambda message: bus.request("a", timeout=60))
    with pytest.raises(RequestFailedError, match="LocalError"):
        bus.request("a", timeout=60)
    bus.serve("self", lambda message: bus.request("self", timeout=60))
    with pytest.raises(RequestFailedError, match="LocalError"):
        bus.request("self", timeout=60)


def test_closing_ends_a_request_that_waits(open_bus: OpenBus) -> None:
    bus = open_bus()
    serving, go_on = threading.Event(), threading.Event()
    raised: list[type[BaseException]] = []

    def serve(message: jsonbus.Message) -> None:
        serving.set()
        go_on.wait(60)

    def ask() -> None:
        try:
            bus.request("slow", timeout=60)
        except ClosedError as error:
            raised.append(type(error))

    bus.serve("slow", serve)
    asking = threading.Thread(target=ask)
    asking.start()
    assert serving.wait(30)
    bus.close(timeout=0)
    asking.join(30)
    assert raised == [ClosedError]
    go_on.set()
