"""Sending: at once when idle, together under load, in order, and never lost without a count."""

from __future__ import annotations

import logging
import threading
import time

import pytest

from jsonbus.frontend import outgoing as base_outgoing
from jsonbus.sync import outgoing
from jsonbus.transport import MemoryNetwork
from tests.helpers import wait_until
from tests.sync.conftest import OpenBus
from tests.sync.transports import RecordingTransport

# Mode basic sends everything from the start: no joining, no lists. Its heartbeats may still come in
# between, from the receive thread; no test may depend on there being none.


def test_an_idle_publish_has_left_when_it_returns(
    network: MemoryNetwork, open_over: OpenBus
) -> None:
    transport = RecordingTransport(network)
    bus = open_over(transport, mode="basic")
    numbers = iter(range(1000))

    def publish_and_look() -> bool:
        number = next(numbers)
        bus.publish("x", number)
        return ("x", number) in transport.messages()

    assert wait_until(publish_and_look)


def test_what_is_published_during_a_send_shares_the_next_datagrams(
    network: MemoryNetwork, open_over: OpenBus
) -> None:
    transport = RecordingTransport(network)
    bus = open_over(transport, mode="basic")
    assert bus.flush(timeout=30)
    entered = transport.entered
    transport.gate.clear()
    slow = threading.Thread(target=bus.publish, args=("slow", 0))
    slow.start()
    assert wait_until(lambda: transport.entered > entered)

    for number in range(50):
        assert bus.publish("x", number)  # returns, though the network is busy

    transport.gate.set()
    slow.join(30)
    assert bus.flush(timeout=30)
    sent = [value for topic, value in transport.messages() if topic == "x"]
    assert sent == list(range(50))
    assert len(transport.batches()) < 25


def test_beats_follow_reliable_messages_that_were_packed_long_before_they_left(
    network: MemoryNetwork, open_over: OpenBus
) -> None:
    transport = RecordingTransport(network)
    bus = open_over(transport, mode="basic")
    assert bus.flush(timeout=30)
    entered = transport.entered
    transport.gate.clear()
    slow = threading.Thread(target=bus.publish, args=("slow", 0))
    slow.start()
    assert wait_until(lambda: transport.entered > entered)
    bus.publish("x", 1, reliable=True)
    bus.publish("x", "y" * 5_000)  # fits no datagram: what waits is packed first
    beats_at = bus._node.reliable.beats_at
    assert wait_until(lambda: time.monotonic() > beats_at)

    timers: list[float] = []
    bus._loop._outgoing._set_timer = timers.append
    transport.gate.set()
    slow.join(30)
    assert bus.flush(timeout=30)
    assert beats_at in timers


def test_messages_of_a_burst_gather_until_a_datagram_is_full(
    network: MemoryNetwork, open_over: OpenBus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(base_outgoing, "LINGER_S", 3600.0)  # nothing leaves for lack of more
    transport = RecordingTransport(network)
    bus = open_over(transport, mode="basic")
    assert wait_until(lambda: bool(transport.sent))  # its presence: from now on messages gather
    sent = 0
    while not transport.batches():
        assert bus.publish("x", sent)
        sent += 1
        assert sent < 500
    (batch,) = transport.batches()
    assert [value for _, value in batch] == list(range(len(batch)))
    assert 20 < len(batch) <= sent

    assert bus.publish("x", sent)
    assert bus.flush(timeout=30)  # does not wait for more
    assert [value for _, value in transport.messages()] == list(range(sent + 1))


def test_what_gathered_leaves_by_itself(network: MemoryNetwork, open_over: OpenBus) -> None:
    transport = RecordingTransport(network)
    bus = open_over(transport, mode="basic")
    for number in range(100):
        assert bus.publish("x", number)
    assert wait_until(lambda: len(transport.messages()) == 100)
    assert [value for _, value in transport.messages()] == list(range(100))


def test_many_threads_lose_nothing_and_keep_their_own_order(
    network: MemoryNetwork, open_over: OpenBus
) -> None:
    transport = RecordingTransport(network)
    bus = open_over(transport, mode="basic")
    local = bus.subscribe("**", maxsize=100_000)

    def publish(thread: int) -> None:
        for number in range(500):
            bus.publish(f"thread/{thread}", number)

    threads = [threading.Thread(target=publish, args=(each,)) for each in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert bus.flush(timeout=60)

    sent = transport.messages()
    received = [(m.topic, m.value) for m in (local.get(timeout=0) for _ in range(local.pending))]
    for each in range(8):
        topic = f"thread/{each}"
        assert [value for name, value in sent if name == topic] == list(range(500))
        assert [value for name, value in received if name == topic] == list(range(500))
    assert len(sent) == 8 * 500


def test_a_datagram_the_kernel_had_no_room_for_is_sent_later_and_once(
    network: MemoryNetwork, open_over: OpenBus
) -> None:
    transport = RecordingTransport(network)
    bus = open_over(transport, mode="basic")
    assert bus.flush(timeout=30)
    transport.inner.is_jammed = True
    entered = transport.entered
    publisher = threading.Thread(target=bus.publish, args=("x", 1))
    publisher.start()
    assert wait_until(lambda: transport.entered > entered)
    assert transport.messages() == []
    transport.inner.is_jammed = False
    publisher.join(30)
    assert bus.flush(timeout=30)
    assert transport.messages() == [("x", 1)]
    assert bus.stats()["datagrams_unsent"] == 0


def test_publishers_that_outrun_the_network_wait(
    network: MemoryNetwork, open_over: OpenBus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(base_outgoing, "STALL_S", 600.0)
    transport = RecordingTransport(network)
    bus = open_over(transport, mode="basic")
    assert bus.flush(timeout=30)
    transport.inner.is_jammed = True
    published: list[int] = []
    value = "x" * 10_000

    def publish() -> None:
        for number in range(300):
            bus.publish("big", [number, value])
            published.append(number)

    publishers = [threading.Thread(target=publish) for _ in range(2)]
    for publisher in publishers:
        publisher.start()
    # One of them is in the middle of its send; the other filled the outbox, and waits.
    assert wait_until(lambda: len(published) >= base_outgoing.OUTPUT_BYTES_MAX // 12_500)
    assert len(published) <= base_outgoing.OUTPUT_BYTES_MAX // 10_000 + 1
    transport.inner.is_jammed = False
    for publisher in publishers:
        publisher.join(60)
    assert bus.flush(timeout=60)
    numbers = [message[1][0] for message in transport.messages()]
    assert sorted(numbers) == sorted([*range(300)] * 2)


def test_a_log_handler_may_publish_what_it_is_told_of_a_failed_send(
    network: MemoryNetwork, open_over: OpenBus
) -> None:
    transport = RecordingTransport(network)
    bus = open_over(transport, mode="basic")
    assert bus.flush(timeout=30)

    class Publish(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            transport.inner.is_plugged = True
            bus.publish("log", record.levelname)

    handler = Publish(logging.WARNING)
    logger = logging.getLogger("jsonbus.bus")
    logger.addHandler(handler)
    try:
        transport.inner.is_plugged = False
        bus.publish("x", 1)
        assert bus.flush(timeout=30)
        bus.publish("x", 2)
        assert bus.flush(timeout=30)
    finally:
        logger.removeHandler(handler)
    assert ("log", "WARNING") in transport.messages()
    assert ("x", 2) in transport.messages()


def test_a_turn_that_was_interrupted_is_given_back(
    network: MemoryNetwork, open_over: OpenBus, monkeypatch: pytest.MonkeyPatch
) -> None:
    transport = RecordingTransport(network)
    bus = open_over(transport, mode="basic")
    assert bus.flush(timeout=30)

    send, here = outgoing.Outgoing.send, threading.current_thread()
    large = "x" * 1000  # nothing to gather: it is sent by publish() itself

    def interrupt(self: outgoing.Outgoing, until: float) -> bool:
        if threading.current_thread() is here:
            raise KeyboardInterrupt
        return send(self, until)

    with monkeypatch.context() as patch:
        patch.setattr(outgoing.Outgoing, "send", interrupt)
        with pytest.raises(KeyboardInterrupt):
            bus.publish("x", large)
    # The receive thread sends what was left behind.
    assert wait_until(lambda: transport.messages() == [("x", large)])
    assert bus.publish("x", 2)
    assert bus.flush(timeout=30)
    assert transport.messages() == [("x", large), ("x", 2)]
