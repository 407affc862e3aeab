"""The short way of publish(): without a lock, and yet nothing lost, doubled or left behind."""

from __future__ import annotations

import random
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

import jsonbus
from jsonbus.core import pacing
from jsonbus.errors import (
    ClosedError,
    InvalidTopicError,
    JsonBusError,
    PayloadError,
    PayloadTooLargeError,
)
from jsonbus.frontend import outgoing as base_outgoing
from jsonbus.transport import MemoryNetwork
from tests.helpers import find_free_port, wait_until
from tests.sync.conftest import OpenBus
from tests.sync.transports import RecordingTransport


@pytest.fixture
def eager_threads() -> Iterator[None]:
    """Threads take turns at the interpreter as often as they can."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(interval)


@pytest.fixture
def patient_publishers(monkeypatch: pytest.MonkeyPatch) -> None:
    """However busy the machine is, no receiver on it is given up, and so nothing is lost."""
    monkeypatch.setattr(pacing, "STUCK_S", 3600.0)


def run_all(count: int, act: Callable[[int], object]) -> None:
    threads = [threading.Thread(target=act, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
        assert not thread.is_alive()


@pytest.mark.usefixtures("eager_threads", "patient_publishers")
def test_what_many_threads_publish_arrives_once_in_order_and_without_gaps(
    open_bus: OpenBus,
) -> None:
    publisher, reader = open_bus(), open_bus()
    got: list[jsonbus.Message] = []
    reader.subscribe("t/*", got.append, maxsize=100_000)
    assert publisher.wait_for_subscribers("t/0", timeout=30)

    def publish(thread: int) -> None:
        for number in range(1500):
            # Some of them need the long way, or fill a datagram by themselves.
            value = [thread, number, {1: 2}] if number % 100 == 0 else [thread, number]
            if number % 170 == 0:
                value.append("x" * 4000)
            publisher.publish(f"t/{number % 3}", value)

    run_all(8, publish)
    assert wait_until(lambda: len(got) >= 8 * 1500)
    assert [message.sequence for message in got] == list(range(1, 8 * 1500 + 1))
    for thread in range(8):
        numbers = [message.value[1] for message in got if message.value[0] == thread]
        assert numbers == list(range(1500))
    assert publisher.stats()["messages_published"] == 8 * 1500


def test_a_lone_message_has_left_when_publish_returns(
    network: MemoryNetwork, open_over: OpenBus, monkeypatch: pytest.MonkeyPatch
) -> None:
    transport = RecordingTransport(network)
    bus = open_over(transport, mode="basic")
    assert bus.publish("x", 0)  # the long way: from now on the topic has a prefix
    assert bus.flush(timeout=30)
    monkeypatch.setattr(base_outgoing, "LINGER_S", 0.0)  # each message is alone
    bus.publish("x", 1)  # may still gather with what was sent before
    assert bus.flush(timeout=30)
    prompt = 0
    for number in range(2, 52):
        assert bus.publish("x", number)
        prompt += transport.messages()[-1] == ("x", number)
    assert prompt >= 10  # not when the receive thread was just sending


@pytest.mark.slow
@pytest.mark.usefixtures("eager_threads")
def test_the_last_message_of_a_burst_needs_no_other_to_arrive(
    network: MemoryNetwork, open_over: OpenBus
) -> None:
    publisher, reader = open_over(network.open()), open_over(network.open())
    got: list[object] = []
    reader.subscribe("x", lambda message: got.append(message.value))
    assert publisher.wait_for_subscribers("x", timeout=30)
    dice, pause, sent = random.Random(5), threading.Event(), 0
    for _ in range(300):
        for _ in range(dice.choice((1, 1, 2, 3, 10, 40))):
            publisher.publish("x", sent)
            sent += 1
            if dice.random() < 0.1:
                pause.wait(dice.random() * 3 * base_outgoing.LINGER_S)  # never set
        assert wait_until(lambda: len(got) == sent)  # noqa: B023  # waited for here
    assert got == list(range(sent))


@pytest.mark.usefixtures("eager_threads")
def test_bursts_of_several_threads_leave_nothing_behind(
    network: MemoryNetwork, open_over: OpenBus
) -> None:
    transport = RecordingTransport(network)
    bus = open_over(transport, mode="basic")
    bus.publish("x", None)
    rounds = 60
    together = threading.Barrier(4, timeout=60)

    def publish(thread: int) -> None:
        dice = random.Random(thread)
        for number in range(rounds):
            for _ in range(dice.choice((1, 2, 5, 20))):
                bus.publish("x", 1)
                count[thread] += 1
            together.wait()
            if thread == 0:  # the others wait, and publish nothing
                if not wait_until(lambda: len(transport.messages()) == sum(count) + 1):
                    stuck.append(number)
            together.wait()

    count, stuck = [0] * 4, list[int]()
    run_all(4, publish)
    assert stuck == []


@pytest.mark.usefixtures("eager_threads", "patient_publishers")
def test_subscribers_that_come_and_go_miss_nothing_while_they_are_known(
    open_bus: OpenBus,
) -> None:
    publisher, reader = open_bus(), open_bus()
    stays = reader.subscribe("stays", maxsize=1_000_000)
    assert publisher.wait_for_subscribers("stays", timeout=30)
    done = threading.Event()
    published = [0, 0]

    def publish(thread: int) -> None:
        while not done.is_set():
            publisher.publish("stays", [thread, published[thread]])
            publisher.publish("comes", "more")
            published[thread] += 1
            if published[thread] % 50 == 0:
                done.wait(0.001)

    threads = [threading.Thread(target=publish, args=(each,)) for each in range(2)]
    for thread in threads:
        thread.start()
    try:
        for number in range(5):
            with reader.subscribe("comes", maxsize=1_000_000) as comes:
                assert publisher.wait_for_subscribers("comes", timeout=30)
                publisher.publish("comes", number)
                while comes.get(timeout=30).value != number:
                    pass
            assert wait_until(lambda: not publisher.has_subscribers("comes"))
    finally:
        done.set()
        for thread in threads:
            thread.join(60)
    assert wait_until(lambda: stays.pending == sum(published))
    values = [stays.get(timeout=0).value for _ in range(stays.pending)]
    for each in range(2):
        assert [n for thread, n in values if thread == each] == list(range(published[each]))


@pytest.mark.slow
@pytest.mark.usefixtures("eager_threads")
def test_suppressed_messages_are_counted_exactly(
    network: MemoryNetwork, open_over: OpenBus
) -> None:
    bus = open_over(network.open())
    assert wait_until(lambda: not bus.publish("unwanted", None))
    before = bus.stats()["messages_suppressed"]
    assert bus.stats()["messages_suppressed"] == before  # looking does not count

    def publish(thread: int) -> None:
        for number in range(2000):
            assert not bus.publish("unwanted", number)
            if number % 500 == 0:
                bus.stats()

    run_all(8, publish)
    assert bus.stats()["messages_suppressed"] == before + 8 * 2000


@pytest.mark.slow
@pytest.mark.usefixtures("eager_threads")
def test_a_publish_that_meets_the_close_is_refused_or_sent(network: MemoryNetwork) -> None:
    for _ in range(30):
        transport = RecordingTransport(network)
        accepted = publish_until_closed(jsonbus.Bus.over(transport, mode="basic"))
        sent = [value for _, value in transport.messages() if value != "prefix"]
        for thread in range(4):
            numbers = [number for each, number in sent if each == thread]
            # One that was refused may have left nevertheless.
            assert numbers[: accepted[thread]] == list(range(accepted[thread]))
            assert len(numbers) <= accepted[thread] + 1


def publish_until_closed(bus: jsonbus.Bus) -> list[int]:
    """Close the bus while four threads publish; how many messages of each were accepted."""
    bus.publish("x", "prefix")
    accepted = [0] * 4
    begun = threading.Barrier(5, timeout=60)

    def act(thread: int) -> None:
        begun.wait()
        if thread == 4:
            bus.close(timeout=30)
            return
        with pytest.raises(ClosedError):
            while True:
                bus.publish("x", [thread, accepted[thread]])
                accepted[thread] += 1

    run_all(5, act)
    return accepted


@dataclass
class Reading:
    temp: float


@pytest.mark.parametrize(
    ("value", "received"),
    [
        ({1: "a", None: 2}, {"1": "a", "null": 2}),
        (Reading(1.5), {"temp": 1.5}),
        (float("nan"), PayloadError),
        ("é" * 300, "é" * 300),
        (["x" * 60_000], ["x" * 60_000]),
        (object(), PayloadError),
        (2**70, PayloadError),
        ("\ud800", PayloadError),
        ("x" * 70_000, "x" * 70_000),
        ("x" * 300_000, PayloadTooLargeError),
    ],
)
def test_unusual_values_fare_the_same_on_both_ways(
    network: MemoryNetwork, open_over: OpenBus, value: Any, received: Any
) -> None:
    # Large datagrams: a network in memory has no room for many small ones.
    settings = {"value_bytes_max": 100_000, "datagram_bytes_max": 60_000}
    publisher = open_over(network.open(), **settings)
    reader = open_over(network.open())
    subscription = reader.subscribe("x")
    assert publisher.wait_for_subscribers("x", timeout=30)

    def publish() -> object:
        try:
            return publisher.publish("x", value)
        except JsonBusError as error:
            return type(error)

    first = publish()  # no prefix yet
    assert publisher.publish("x", "between")
    others = [publish() for _ in range(3)]
    assert publisher.publish("x", "last")
    assert others == [first] * 3
    if received is None or not isinstance(received, type):
        assert first is True
        expected = [received, "between", received, received, received, "last"]
    else:
        assert first is received
        expected = ["between", "last"]
    assert [subscription.get(timeout=30).value for _ in expected] == expected
    assert subscription.pending == 0


@pytest.mark.parametrize("topic", [["list"], {}, None, 1, b"x", "a//b", "*"])
def test_a_wrong_topic_is_refused_after_right_ones_too(
    network: MemoryNetwork, open_over: OpenBus, topic: Any
) -> None:
    transport = RecordingTransport(network)
    bus = open_over(transport, mode="basic")
    for number in range(5):
        bus.publish("x", number)
        with pytest.raises(InvalidTopicError):
            bus.publish(topic, number)
    assert bus.flush(timeout=30)
    assert transport.messages() == [("x", number) for number in range(5)]


FORK = """
import os, sys
import jsonbus
from jsonbus.errors import ForkedError
from jsonbus.frontend import outgoing as base_outgoing
from jsonbus.sync import outgoing

base_outgoing.LINGER_S = outgoing.FLOOD_LINGER_S = 3600.0  # what gathers does not leave by itself
port = int(sys.argv[1])
parent = jsonbus.Bus(port=port, interface="lo")
other = jsonbus.Bus(port=port, interface="lo")
subscription = other.subscribe("x")
with parent, other:
    assert parent.wait_for_subscribers("x", timeout=30)
    for number in range(10):
        parent.publish("x", number)
    child = os.fork()
    if child == 0:
        for number in range(200):
            try:
                parent.publish("x", "from the child")
            except ForkedError:
                continue
            os._exit(1)
        os._exit(7)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    parent.publish("x", 10)
    assert parent.flush(timeout=30)
    assert [subscription.get(timeout=30).value for _ in range(11)] == list(range(11))
print("fine")
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="there is no fork on Windows")
def test_a_fork_while_messages_gather_gives_them_to_the_parent_only() -> None:
    result = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FORK, str(find_free_port())],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (result.returncode, result.stdout) == (0, "fine\n"), result.stderr
