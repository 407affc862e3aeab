"""A bus that is faster than its rate limit, or than receivers on this host; datagram sizes."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Sequence
from dataclasses import replace
from time import monotonic, process_time

import pytest

import jsonbus
from jsonbus.core import pacing
from jsonbus.frontend import loop as base_loop
from jsonbus.frontend import outgoing as base_outgoing
from jsonbus.frontend.opening import DATAGRAM_BYTES_DEFAULT, LOOPBACK_DATAGRAM_BYTES
from jsonbus.sync import loop
from jsonbus.transport import MemoryNetwork, TransportInfo
from tests.helpers import wait_until
from tests.sync.conftest import OpenBus
from tests.sync.transports import RecordingTransport

# So small that the pacer is asked before each datagram.
BUFFER_BYTES = 4000


class TimedTransport(RecordingTransport):
    """Notes when each datagram left."""

    def __init__(self, network: MemoryNetwork) -> None:
        super().__init__(network)
        self.times: list[tuple[float, int]] = []

    def send(self, run: Sequence[bytes]) -> bool:
        self.times.append((monotonic(), sum(map(len, run))))
        return super().send(run)


class FullTransport(RecordingTransport):
    """Tells of a receive buffer on this host, which is full when a test says so."""

    queued = 0

    def describe(self) -> TransportInfo:
        return super().describe()._replace(queue_bytes_max=BUFFER_BYTES)

    def queued_bytes(self) -> int | None:
        return self.queued


class MovingTransport(RecordingTransport):
    """Has the address that a test gives it."""

    address = "10.0.0.1"
    known = "10.0.0.1"

    def rejoin(self) -> bool:
        before, self.known = self.known, self.address
        return before != self.address

    def describe(self) -> TransportInfo:
        info = super().describe()
        return info._replace(interfaces=(replace(info.interfaces[0], address=self.address),))


def publish_from_threads(bus: jsonbus.Bus, count: int, filler: str = "") -> list[threading.Thread]:
    """Two threads that publish [thread, number, filler] to "x"."""

    def publish(thread: int) -> None:
        for number in range(count):
            assert bus.publish("x", [thread, number, filler])

    threads = [threading.Thread(target=publish, args=(each,)) for each in range(2)]
    for thread in threads:
        thread.start()
    return threads


def join_all(threads: list[threading.Thread]) -> None:
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()


def assert_all_sent(transport: RecordingTransport, count: int) -> None:
    sent = [value for _, value in transport.messages()]
    for thread in range(2):
        assert [number for each, number, _ in sent if each == thread] == list(range(count))


@pytest.mark.slow
def test_a_rate_limit_is_kept_and_loses_nothing(network: MemoryNetwork, open_over: OpenBus) -> None:
    rate = 400_000.0
    transport = TimedTransport(network)
    bus = open_over(transport, mode="basic", rate_limit=rate)
    join_all(publish_from_threads(bus, 200, "x" * 500))
    assert bus.flush(timeout=60)
    assert_all_sent(transport, 200)
    assert bus.stats()["pacing_waits"] > 0
    assert bus.stats()["datagrams_unsent"] == 0
    # Never more than the rate allows since any earlier instant.
    # Whoever asked may be kept from sending for a while: hence two datagrams.
    slack = 2 * rate * pacing.BURST_S + 2 * max(size for _, size in transport.times)
    for place, (since, _) in enumerate(transport.times):
        total = 0
        for at, size in transport.times[place:]:
            total += size
            assert total <= rate * (at - since) + slack


def test_what_a_rate_limit_keeps_back_shares_datagrams(
    network: MemoryNetwork, open_over: OpenBus
) -> None:
    transport = RecordingTransport(network)
    bus = open_over(transport, mode="basic", rate_limit=10_000.0)
    sent = bus.stats()["datagrams_sent"]
    for number in range(200):
        bus.publish("x", number)
    assert bus.flush(timeout=60)
    assert [value for _, value in transport.messages()] == list(range(200))
    assert bus.stats()["datagrams_sent"] - sent <= 50


@pytest.mark.slow
@pytest.mark.parametrize("waiting", ["receive thread", "publisher"])
def test_a_bus_that_may_not_send_rests(
    network: MemoryNetwork, open_over: OpenBus, monkeypatch: pytest.MonkeyPatch, waiting: str
) -> None:
    monkeypatch.setattr(pacing, "STUCK_S", 3600.0)
    if waiting == "receive thread":
        monkeypatch.setattr(base_outgoing, "LINGER_S", 0.02)  # what is published next gathers
    transport = FullTransport(network)
    bus = open_over(transport, mode="basic")
    bus.publish("x", "x" * 200)
    transport.queued = BUFFER_BYTES
    threads = publish_from_threads(bus, 1 if waiting == "receive thread" else 3, "x" * 200)

    def waits() -> int:
        return bus.stats()["pacing_waits"]

    begun = waits()
    assert wait_until(lambda: waits() > begun)
    begun, began_at, cpu_s = waits(), monotonic(), process_time()
    assert wait_until(lambda: waits() > begun + 300)
    waited_s = monotonic() - began_at
    # Whoever waits looks once per RETRY_S; one that does not takes all the time there is.
    assert waits() - begun <= 100 + 3 * waited_s / pacing.RETRY_S
    assert process_time() - cpu_s <= 0.1 + waited_s / 2
    transport.queued = 0
    join_all(threads)
    assert bus.flush(timeout=30)


def test_publishers_wait_for_a_full_receiver_and_lose_nothing(
    network: MemoryNetwork, open_over: OpenBus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pacing, "STUCK_S", 3600.0)
    monkeypatch.setattr(base_outgoing, "OUTPUT_BYTES_MAX", 20_000)
    transport = FullTransport(network)
    bus = open_over(transport, mode="basic")
    transport.queued = BUFFER_BYTES
    threads = publish_from_threads(bus, 500, "x" * 200)
    assert wait_until(lambda: bus.stats()["pacing_waits"] > 20)
    assert len(transport.messages()) <= 1  # it had been allowed before
    assert not bus.flush(timeout=0)
    transport.queued = 0
    join_all(threads)
    assert bus.flush(timeout=30)
    assert_all_sent(transport, 500)
    assert bus.stats()["pacing_given_up"] == 0


def test_a_receiver_that_never_reads_is_given_up_and_publishers_go_on(
    network: MemoryNetwork, open_over: OpenBus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pacing, "STUCK_S", 0.01)
    transport = FullTransport(network)
    bus = open_over(transport, mode="basic")
    transport.queued = BUFFER_BYTES
    join_all(publish_from_threads(bus, 500, "x" * 200))
    assert bus.flush(timeout=30)
    assert_all_sent(transport, 500)
    assert bus.stats()["pacing_given_up"] >= 1


def test_closing_does_not_wait_for_a_full_receiver_longer_than_told(
    network: MemoryNetwork, open_over: OpenBus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pacing, "STUCK_S", 3600.0)
    transport = FullTransport(network)
    bus = open_over(transport, mode="basic")
    transport.queued = BUFFER_BYTES
    begun = bus.stats()["pacing_waits"]
    publisher = threading.Thread(target=bus.publish, args=("x", 1))
    publisher.start()
    assert wait_until(lambda: bus.stats()["pacing_waits"] > begun)
    bus.close(timeout=0.01)
    publisher.join(30)
    assert not publisher.is_alive()
    assert bus.stats()["datagrams_unsent"] >= 1


def test_a_slow_reader_on_this_host_gets_every_datagram_of_a_flood(
    open_bus: OpenBus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pacing, "STUCK_S", 3600.0)
    publisher = open_bus()
    reader = open_bus(receive_buffer_bytes=150_000)
    if publisher._loop.transport.queued_bytes() is None:
        pytest.skip("the system does not tell what waits in receive buffers")
    got: list[int] = []
    pause = threading.Event()  # never set

    def handler(message: jsonbus.Message) -> None:
        got.append(message.value[0])
        if len(got) % 20 == 0:
            pause.wait(0.001)

    # Room for one message: whatever else comes waits in the socket's buffer.
    reader.subscribe("x", handler, maxsize=1, overflow="block")
    assert publisher.wait_for_subscribers("x", timeout=30)
    for number in range(3000):
        assert publisher.publish("x", [number, "x" * 700])
    assert wait_until(lambda: len(got) == 3000)
    assert got == list(range(3000))
    assert reader.stats()["kernel_drops"] == 0
    assert publisher.stats()["pacing_waits"] > 0
    assert publisher.stats()["pacing_given_up"] == 0


def test_datagrams_on_the_loopback_interface_hold_more(
    open_bus: OpenBus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(base_outgoing, "LINGER_S", 3600.0)  # only full datagrams leave
    bus = open_bus(mode="basic")
    with listen(bus) as heard:
        for number in range(400):
            bus.publish("x", [number, "x" * 50])
        assert bus.flush(timeout=30)
        datagrams = [heard.recv(65_536)]
        while b"[399," not in datagrams[-1]:
            datagrams.append(heard.recv(65_536))
    assert DATAGRAM_BYTES_DEFAULT < max(map(len, datagrams)) <= LOOPBACK_DATAGRAM_BYTES


def test_the_size_of_datagrams_follows_the_interface(
    network: MemoryNetwork, open_over: OpenBus, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (base_loop, loop):
        monkeypatch.setattr(module, "INTERFACES_S", 0.01)
    monkeypatch.setattr(base_outgoing, "LINGER_S", 0.1)
    transport = MovingTransport(network)
    bus = open_over(transport, mode="basic")

    def largest() -> int:
        """Of the datagrams of a flood."""
        start = len(transport.sent)
        for number in range(1000):
            bus.publish("x", [number, "some text"])
        assert bus.flush(timeout=30)
        return max(len(datagram) for datagram in transport.sent[start:])

    assert wait_until(lambda: 1000 < largest() <= DATAGRAM_BYTES_DEFAULT)
    transport.address = "127.0.0.1"
    assert wait_until(lambda: largest() > DATAGRAM_BYTES_DEFAULT)
    assert largest() <= LOOPBACK_DATAGRAM_BYTES
    transport.address = "10.0.0.2"
    assert wait_until(lambda: largest() <= DATAGRAM_BYTES_DEFAULT)


def listen(bus: jsonbus.Bus) -> socket.socket:
    """A socket that hears what the bus sends."""
    heard = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    heard.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    heard.bind((bus.config.group, bus.config.port))
    group, interface = socket.inet_aton(bus.config.group), socket.inet_aton("127.0.0.1")
    heard.setsockopt(
        socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, struct.pack("4s4s", group, interface)
    )
    heard.settimeout(30)
    return heard
