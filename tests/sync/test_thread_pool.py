"""Who receives and who runs handlers: quick ones in place, and no long one stops the others.

Whether a handler is run in place is measured, so on a busy machine a test may now and then see a
worker run it instead: what is promised is the same.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

import pytest

import jsonbus
from jsonbus.core import pacing
from jsonbus.sync import thread_pool
from jsonbus.transport import MemoryNetwork
from tests.helpers import wait_until
from tests.sync.conftest import OpenBus
from tests.sync.traffic.test_requests import is_served


class Quick:
    """A handler that does next to nothing, until it is given something to do.

    `was_in_place` tells whether the thread that receives has run it since that was last cleared.
    """

    def __init__(self, bus: jsonbus.Bus) -> None:
        self.got: list[object] = []
        self.was_in_place = threading.Event()
        self.workers = bus._loop.workers
        self.task: Callable[[], object] | None = None
        self.begun = threading.Event()
        self.done = threading.Event()
        self.result: object = None

    def __call__(self, message: jsonbus.Message) -> None:
        self.got.append(message.value)
        if threading.get_ident() == self.workers._receiver:
            self.was_in_place.set()
        if self.task is not None:
            task, self.task = self.task, None
            self.begun.set()
            self.result = task()
            self.done.set()


def run_in_place(publisher: jsonbus.Bus, quick: Quick) -> None:
    """Publish to "quick" until the receiving thread runs the handler."""
    assert publisher.wait_for_subscribers("quick", timeout=30)

    def publish_one() -> bool:
        count = len(quick.got)
        publisher.publish("quick", None)
        assert wait_until(lambda: len(quick.got) > count)
        return quick.was_in_place.is_set()

    assert wait_until(publish_one)


def do_in_place(publisher: jsonbus.Bus, quick: Quick, task: Callable[[], object]) -> None:
    quick.begun.clear()
    quick.done.clear()
    quick.task = task
    publisher.publish("quick", None)
    assert quick.begun.wait(30)


def threads_of(name: str) -> list[str]:
    return sorted(
        each.name
        for each in threading.enumerate()
        if each.name == f"jsonbus-receive-{name}" or f"jsonbus-worker-{name}-" in each.name
    )


Pair = tuple[jsonbus.Bus, jsonbus.Bus, Quick]


@pytest.fixture
def open_pair(network: MemoryNetwork, open_over: OpenBus) -> Callable[..., Pair]:
    """A publisher, and a bus that runs the handler of "quick" in place."""

    def open_them(**settings: object) -> Pair:
        publisher, bus = open_over(network.open()), open_over(network.open(), name="r", **settings)
        quick = Quick(bus)
        bus.subscribe("quick", quick)
        run_in_place(publisher, quick)
        return publisher, bus, quick

    return open_them


OpenPair = Callable[..., Pair]


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 3])
def test_handlers_in_place_and_not_keep_order_and_number(
    open_bus: OpenBus, monkeypatch: pytest.MonkeyPatch, workers: int
) -> None:
    monkeypatch.setattr(pacing, "STUCK_S", 3600.0)  # however long it is kept from reading
    bus = open_bus(workers=workers)
    others = [open_bus(), open_bus()]
    topics = ["quick", "slow", "mixed"]
    pause = threading.Event()  # never set: a wait that ends by itself
    inside: list[str] = []
    faults: list[str] = []
    got: dict[str, list[tuple[str, int, int]]] = {topic: [] for topic in topics}

    def handler(message: jsonbus.Message) -> None:
        inside.append(message.topic)
        running = list(inside)
        if len(running) > workers:
            faults.append(f"{running} at once")
        if running.count(message.topic) > 1:
            faults.append(f"{message.topic} twice")
        thread, number = message.value
        got[message.topic].append((message.node, thread, number))
        if message.topic == "slow" or (message.topic == "mixed" and number % 50 == 0):
            pause.wait(0.0002)
        inside.remove(message.topic)

    for topic in topics:
        bus.subscribe(topic, handler, maxsize=100_000)
        for other in others:
            assert other.wait_for_subscribers(topic, timeout=30)

    def publish(source: jsonbus.Bus, thread: int) -> None:
        for number in range(200):
            for topic in topics:
                source.publish(topic, [thread, number])

    sources = [*others, *others, bus]
    threads = [
        threading.Thread(target=publish, args=(source, place))
        for place, source in enumerate(sources)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert wait_until(lambda: all(len(got[topic]) == 200 * len(sources) for topic in topics))
    assert faults == []
    for topic in topics:
        for place, source in enumerate(sources):
            numbers = [n for node, thread, n in got[topic] if (node, thread) == (source.id, place)]
            assert numbers == list(range(200))


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
def test_a_quick_handler_that_blocks_does_not_stop_receiving(
    open_pair: OpenPair, workers: int
) -> None:
    publisher, bus, quick = open_pair(workers=workers)
    before = threads_of("r")
    read = bus.subscribe("read")
    publisher.serve("double", lambda message: 2 * message.value)
    assert publisher.wait_for_subscribers("read", timeout=30)
    go_on = threading.Event()
    do_in_place(publisher, quick, lambda: go_on.wait(60))

    publisher.publish("read", 1)
    assert read.get(timeout=30).value == 1
    assert wait_until(lambda: is_served("double", bus))
    assert bus.request("double", 4, timeout=30) == 8
    if workers == 1:
        presences = bus.stats()["presences_sent"]
        assert wait_until(lambda: bus.stats()["presences_sent"] > presences)  # timers go on
    else:
        handled = threading.Event()
        bus.subscribe("other", lambda message: handled.set())
        assert publisher.wait_for_subscribers("other", timeout=30)
        publisher.publish("other", 1)
        assert handled.wait(30)
    go_on.set()
    assert quick.done.wait(30)

    quick.was_in_place.clear()
    run_in_place(publisher, quick)  # and all is as before
    assert threads_of("r") == before
    assert len(before) == workers + 1


def test_a_handler_in_place_is_watched_although_others_come_into_the_queue(
    open_pair: OpenPair,
) -> None:
    # The thread that watches is woken for what is published here, and can do nothing about it.
    publisher, bus, quick = open_pair()
    read, own = bus.subscribe("read"), Quick(bus)
    bus.subscribe("own", own)
    assert publisher.wait_for_subscribers("read", timeout=30)
    go_on = threading.Event()
    do_in_place(publisher, quick, lambda: go_on.wait(60))
    bus.publish("own", 1)
    publisher.publish("read", 1)
    assert read.get(timeout=30).value == 1
    assert own.got == []  # there is one worker, and the handler that blocks is its work
    go_on.set()
    assert wait_until(lambda: own.got == [1])


def test_a_worker_that_is_needed_elsewhere_leaves_another_one_to_watch(
    open_pair: OpenPair,
) -> None:
    publisher, bus, quick = open_pair(workers=3)
    read, go_on = bus.subscribe("read"), threading.Event()
    assert publisher.wait_for_subscribers("read", timeout=30)
    slow = [Quick(bus), Quick(bus)]
    for number, each in enumerate(slow):
        each.task = lambda: go_on.wait(60)
        bus.subscribe(f"slow/{number}", each)
    do_in_place(publisher, quick, lambda: go_on.wait(60))
    for number in range(2):
        bus.publish(f"slow/{number}", None)
    publisher.publish("read", 1)
    assert read.get(timeout=30).value == 1
    assert all(each.begun.wait(30) for each in slow)
    go_on.set()
    assert all(each.done.wait(30) for each in (quick, *slow))


@pytest.mark.slow
@pytest.mark.parametrize("is_watching", [True, False])
def test_a_handler_in_place_may_wait_for_the_bus(
    open_pair: OpenPair, monkeypatch: pytest.MonkeyPatch, is_watching: bool
) -> None:
    if not is_watching:  # nobody takes the receiving away: the handler gives it away before
        monkeypatch.setattr(thread_pool, "WATCH_S", 3600.0)
    publisher, bus, quick = open_pair(workers=2)
    publisher.serve("double", lambda message: 2 * message.value)
    bus.serve("own", lambda message: message.value + 1)
    answers = bus.subscribe("answers")
    assert publisher.wait_for_subscribers("answers", timeout=30)
    assert wait_until(lambda: is_served("double", bus))

    def ask_back() -> object:
        publisher.publish("answers", "here")
        return answers.get(timeout=30).value

    def wait_for_late() -> bool:
        late.start()
        return bus.wait_for_subscribers("late", timeout=30)

    late = threading.Timer(0.01, lambda: publisher.subscribe("late"))
    for task, result in [
        (lambda: bus.request("double", 21, timeout=30), 42),
        (lambda: bus.request("own", 1, timeout=30), 2),
        (ask_back, "here"),
        (wait_for_late, True),
        (lambda: bus.flush(timeout=30), True),
        (lambda: [pong.name for pong in bus.ping(timeout=2)], [publisher.name]),
    ]:
        quick.was_in_place.clear()
        run_in_place(publisher, quick)
        do_in_place(publisher, quick, task)
        assert quick.done.wait(60)
        assert quick.result == result
    late.join()


def test_a_handler_in_place_may_publish_subscribe_and_unsubscribe(open_pair: OpenPair) -> None:
    publisher, bus, quick = open_pair()
    heard = publisher.subscribe("reply")
    assert bus.wait_for_subscribers("reply", timeout=30)
    chain: list[object] = []

    def use() -> None:
        with bus.subscribe("short-lived"):
            bus.publish("reply", "first")
        bus.subscribe("chain", lambda message: chain.append(message.value))
        for number in range(10):
            bus.publish("chain", number)
        bus.publish("reply", "second")

    do_in_place(publisher, quick, use)
    assert [heard.get(timeout=30).value for _ in range(2)] == ["first", "second"]
    assert wait_until(lambda: chain == list(range(10)))


@pytest.mark.parametrize("error", [ValueError, SystemExit])
def test_what_a_handler_in_place_raises_is_logged_and_stops_nothing(
    open_pair: OpenPair, caplog: pytest.LogCaptureFixture, error: type[BaseException]
) -> None:
    publisher, _, quick = open_pair()

    def fail() -> None:
        raise error("spilt milk")

    do_in_place(publisher, quick, fail)
    quick.was_in_place.clear()
    run_in_place(publisher, quick)
    failures = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert len(failures) == 1
    assert "'quick'" in failures[0].getMessage()


def test_a_handler_in_place_may_close_the_bus(open_pair: OpenPair) -> None:
    publisher, bus, quick = open_pair(workers=2)
    do_in_place(publisher, quick, bus.close)
    assert quick.done.wait(30)
    assert bus.is_closed
    assert wait_until(lambda: bus.id not in {node.node for node in publisher.nodes()})
    assert wait_until(lambda: threads_of("r") == [])


def test_closing_leaves_a_handler_in_place_behind_with_a_warning(
    open_pair: OpenPair, caplog: pytest.LogCaptureFixture
) -> None:
    publisher, bus, quick = open_pair()
    go_on = threading.Event()
    do_in_place(publisher, quick, lambda: go_on.wait(60))
    with caplog.at_level(logging.WARNING, "jsonbus.bus"):
        bus.close(timeout=0.01)
    assert not quick.done.is_set()
    assert "still runs a handler" in caplog.text
    assert wait_until(lambda: bus.id not in {node.node for node in publisher.nodes()})
    go_on.set()
    assert quick.done.wait(30)


def test_a_handler_that_gets_slow_overflows_as_it_was_told_to(
    network: MemoryNetwork, open_over: OpenBus
) -> None:
    publisher, bus = open_over(network.open()), open_over(network.open(), name="r")
    quick = Quick(bus)
    subscription = bus.subscribe("quick", quick, maxsize=5)
    run_in_place(publisher, quick)
    go_on, before = threading.Event(), len(quick.got)
    do_in_place(publisher, quick, lambda: go_on.wait(60))
    for number in range(20):
        publisher.publish("quick", number)
    assert wait_until(lambda: subscription.dropped == 15)
    go_on.set()
    assert wait_until(lambda: quick.got[before:] == [None, 15, 16, 17, 18, 19])
    assert bus.stats()["messages_dropped"] == 15


def test_a_handler_that_gets_slow_with_block_loses_nothing(
    network: MemoryNetwork, open_over: OpenBus
) -> None:
    publisher, bus = open_over(network.open()), open_over(network.open(), name="r")
    quick = Quick(bus)
    subscription = bus.subscribe("quick", quick, maxsize=2, overflow="block")
    run_in_place(publisher, quick)
    go_on, before = threading.Event(), len(quick.got)
    do_in_place(publisher, quick, lambda: go_on.wait(60))
    for number in range(50):
        publisher.publish("quick", number)
    assert wait_until(lambda: subscription.pending >= 2)
    go_on.set()
    assert wait_until(lambda: quick.got[before:] == [None, *range(50)])
    assert subscription.dropped == 0
