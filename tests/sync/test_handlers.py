"""Handlers: in order, one at a time for each subscription, free to use the bus."""

from __future__ import annotations

import logging
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

import jsonbus
from tests.helpers import wait_until
from tests.sync.conftest import OpenBus


def test_a_handler_sees_its_messages_in_order_and_never_runs_twice_at_once(
    open_bus: OpenBus,
) -> None:
    bus = open_bus(workers=4)
    got: list[object] = []
    inside: list[int] = []
    most_inside: list[int] = []

    def handler(message: jsonbus.Message) -> None:
        inside.append(1)
        most_inside.append(len(inside))
        got.append(message.value)
        inside.pop()

    bus.subscribe("x", handler, maxsize=10_000)
    for number in range(2000):
        bus.publish("x", number)
    assert wait_until(lambda: len(got) == 2000)
    assert got == list(range(2000))
    assert max(most_inside) == 1


def test_handlers_of_different_subscriptions_run_side_by_side_on_several_workers(
    open_bus: OpenBus,
) -> None:
    bus = open_bus(workers=2)
    together = threading.Barrier(2, timeout=60)
    met: list[str] = []

    def meet(message: jsonbus.Message) -> None:
        together.wait()
        met.append(message.topic)

    bus.subscribe("a", meet)
    bus.subscribe("b", meet)
    bus.publish("a", 1)
    bus.publish("b", 1)
    assert wait_until(lambda: sorted(met) == ["a", "b"])


def test_a_slow_handler_does_not_keep_others_from_their_messages(open_bus: OpenBus) -> None:
    bus = open_bus(workers=2)
    go_on = threading.Event()
    got: list[object] = []
    bus.subscribe("slow", lambda message: go_on.wait(60))
    bus.subscribe("fast", lambda message: got.append(message.value))
    for number in range(10):
        bus.publish("slow", number)
        bus.publish("fast", number)
    assert wait_until(lambda: got == list(range(10)))
    go_on.set()


@pytest.mark.parametrize("error", [ValueError, SystemExit])
def test_a_handler_that_raises_is_logged_with_its_topic_and_gets_the_next_message(
    open_bus: OpenBus, caplog: pytest.LogCaptureFixture, error: type[BaseException]
) -> None:
    bus = open_bus()
    got: list[object] = []

    def handler(message: jsonbus.Message) -> None:
        if message.value == 0:
            raise error("spilt milk")
        got.append(message.value)

    bus.subscribe("kitchen/*", handler)
    bus.publish("kitchen/floor", 0)
    bus.publish("kitchen/floor", 1)
    assert wait_until(lambda: got == [1])
    failures = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert len(failures) == 1
    assert "kitchen/floor" in failures[0].getMessage()
    assert "spilt milk" in caplog.text


def test_a_handler_may_publish_subscribe_and_unsubscribe(open_bus: OpenBus) -> None:
    bus = open_bus()
    got: list[object] = []

    def first(message: jsonbus.Message) -> None:
        subscription.close()
        bus.subscribe("second", lambda message: got.append(message.value))
        bus.publish("second", message.value + 1)

    subscription = bus.subscribe("first", first)
    bus.publish("first", 1)
    bus.publish("first", 100)
    assert wait_until(lambda: got == [2])
    assert not bus.has_subscribers("first")


def test_a_handler_that_closes_its_subscription_gets_no_more(open_bus: OpenBus) -> None:
    bus = open_bus()
    got: list[object] = []
    ready = threading.Event()

    def handler(message: jsonbus.Message) -> None:
        assert ready.wait(60)
        got.append(message.value)
        subscription.close()

    subscription = bus.subscribe("x", handler)
    for number in range(100):
        bus.publish("x", number)
    ready.set()
    assert wait_until(lambda: bus.stats()["messages_unread"] == 99)
    assert subscription.dropped == 0
    assert got == [0]


def test_a_handler_may_publish_to_itself_with_block(open_bus: OpenBus) -> None:
    bus = open_bus()
    got: list[int] = []

    def handler(message: jsonbus.Message) -> None:
        got.append(message.value)
        if message.value < 5:
            bus.publish("x", message.value + 1)
            bus.publish("x", message.value + 1)

    bus.subscribe("x", handler, maxsize=1, overflow="block")
    bus.publish("x", 0)
    assert wait_until(lambda: len(got) == 2**6 - 1)


def test_no_worker_is_started_before_there_is_a_handler(open_bus: OpenBus) -> None:
    bus = open_bus(name="lazy")

    def workers() -> int:
        return sum("jsonbus-worker-lazy" in each.name for each in threading.enumerate())

    bus.subscribe("x")
    assert workers() == 0
    bus.subscribe("x", print)
    assert workers() == 1


def test_a_handler_may_take_messages_in_batches(
    open_bus: OpenBus, caplog: pytest.LogCaptureFixture
) -> None:
    bus = open_bus()
    go_on, batches = threading.Event(), []

    def handle(messages: list[jsonbus.Message]) -> None:
        batches.append([each.value for each in messages])
        assert go_on.wait(60)
        if 5 in batches[-1]:
            raise RuntimeError("not five")

    subscription = bus.subscribe("x", handle, in_batches=True)
    bus.publish("x", 0)
    assert wait_until(lambda: batches == [[0]])
    for number in range(1, 10):
        bus.publish("x", number)
    go_on.set()
    assert wait_until(lambda: sum(batches, []) == list(range(10)))
    assert len(batches) < 10
    assert wait_until(lambda: "failed on" in caplog.text)
    bus.publish("x", 10)
    assert wait_until(lambda: batches[-1] == [10])
    assert subscription.dropped == 0


def test_a_subscription_tells_whether_its_handler_has_done_all(open_bus: OpenBus) -> None:
    bus = open_bus()
    began, go_on = threading.Event(), threading.Event()

    def handle(message: jsonbus.Message) -> None:
        began.set()
        assert go_on.wait(60)

    subscription = bus.subscribe("x", handle)
    assert not subscription.is_handling
    bus.publish("x", 0)
    assert began.wait(60)
    assert subscription.is_handling and not subscription.pending  # it was taken, and is not done
    go_on.set()
    assert wait_until(lambda: not subscription.is_handling)


def test_requests_are_answered_side_by_side_by_as_many_workers_as_there_are(
    open_bus: OpenBus,
) -> None:
    serving, asking = open_bus(workers=3), open_bus()
    together = threading.Barrier(3)

    def answer(request: jsonbus.Request) -> object:
        together.wait(60)
        return request.value

    serving.serve("slow", answer)
    assert wait_until(lambda: any("slow" in each.serves for each in asking.nodes()))
    with ThreadPoolExecutor(6) as pool:
        asked = [pool.submit(asking.request, "slow", number, 60) for number in range(6)]
        assert [each.result() for each in asked] == list(range(6))


def test_one_worker_answers_one_request_after_the_other(open_bus: OpenBus) -> None:
    serving, asking = open_bus(), open_bus()
    inside: list[int] = []

    def answer(request: jsonbus.Request) -> int:
        inside.append(1)
        count = len(inside)
        time.sleep(0.001)
        inside.pop()
        return count

    serving.serve("slow", answer)
    assert wait_until(lambda: any("slow" in each.serves for each in asking.nodes()))
    with ThreadPoolExecutor(4) as pool:
        asked = [pool.submit(asking.request, "slow", None, 60) for _ in range(20)]
        assert {each.result() for each in asked} == {1}
