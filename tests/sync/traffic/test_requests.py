"""Requests: answered, failed, unserved, late, and never waiting for themselves."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from time import monotonic

import pytest

import jsonbus
from jsonbus.errors import (
    ClosedError,
    LocalError,
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


def test_no_answer_in_time_is_a_timeout(open_bus: OpenBus) -> None:
    asking, serving = open_bus(), open_bus()
    go_on = threading.Event()
    serving.serve("slow", lambda message: go_on.wait(60))
    assert wait_until(lambda: is_served("slow", asking))
    with pytest.raises(RequestTimeoutError) as caught:
        asking.request("slow", timeout=0.05)
    assert (caught.value.topic, caught.value.timeout_s) == ("slow", 0.05)
    go_on.set()


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
    bus = open_bus(workers=2)
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


class SlowService:
    """Serves "slow" on a bus; each call of its handler waits until it `may_end`."""

    def __init__(self, bus: jsonbus.Bus) -> None:
        self.ran: list[object] = []
        self.may_end = threading.Event()
        self._service = bus.serve("slow", self._handle)

    @property
    def pending(self) -> int:
        return self._service.pending

    def _handle(self, message: jsonbus.Message) -> object:
        self.ran.append(message.value)
        self.may_end.wait(60)
        return message.value


def test_requests_that_timed_out_are_not_run_before_a_later_one(open_bus: OpenBus) -> None:
    asking, serving = open_bus(), open_bus()
    slow = SlowService(serving)
    assert wait_until(lambda: is_served("slow", asking))

    def ask(number: int) -> None:
        with pytest.raises(RequestTimeoutError):
            asking.request("slow", number, timeout=0.05)

    with ThreadPoolExecutor(21) as threads:
        first = threads.submit(asking.request, "slow", "first", timeout=60)
        assert wait_until(lambda: slow.ran)
        for given_up in [threads.submit(ask, number) for number in range(20)]:
            given_up.result(60)
        assert wait_until(lambda: slow.pending == 20)
        all_here_at = monotonic()
        assert wait_until(lambda: monotonic() > all_here_at + 0.05)
        slow.may_end.set()
        assert first.result(60) == "first"
        assert asking.request("slow", "later", timeout=60) == "later"
    assert slow.ran == ["first", "later"]
    # On a busy machine a caller's time may be over before the node's: it cancels the request.
    stats = serving.stats()
    assert stats["requests_expired"] + stats["requests_cancelled"] == 20


def test_closing_cancels_a_request_that_waits_for_its_handler(open_bus: OpenBus) -> None:
    asking, closing, serving = open_bus(), open_bus(), open_bus()
    slow = SlowService(serving)
    assert wait_until(lambda: is_served("slow", asking) and is_served("slow", closing))

    def ask_and_be_closed() -> None:
        with pytest.raises(ClosedError):
            closing.request("slow", "closed", timeout=60)

    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(asking.request, "slow", "first", timeout=60)
        assert wait_until(lambda: slow.ran)
        closed = threads.submit(ask_and_be_closed)
        assert wait_until(lambda: slow.pending == 1)
        closing.close()
        closed.result(60)
        assert wait_until(lambda: serving.stats()["requests_cancelled"] == 1)
        slow.may_end.set()
        assert first.result(60) == "first"
        assert asking.request("slow", "later", timeout=60) == "later"
    assert slow.ran == ["first", "later"]


def test_an_own_request_that_timed_out_is_not_run(open_bus: OpenBus) -> None:
    bus = open_bus()
    slow = SlowService(bus)
    with ThreadPoolExecutor(1) as threads:
        first = threads.submit(bus.request, "slow", "first", timeout=60)
        assert wait_until(lambda: slow.ran)
        with pytest.raises(RequestTimeoutError):
            bus.request("slow", "given up", timeout=0.05)
        given_up_at = monotonic()
        assert wait_until(lambda: monotonic() > given_up_at + 0.05)
        slow.may_end.set()
        assert first.result(60) == "first"
        assert bus.request("slow", "later", timeout=60) == "later"
    assert slow.ran == ["first", "later"]
    stats = bus.stats()
    assert stats["requests_expired"] + stats["requests_cancelled"] == 1
