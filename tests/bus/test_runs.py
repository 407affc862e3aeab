"""What leaves in several datagrams leaves in runs, and what comes in runs is taken apart."""

from __future__ import annotations

import json
import socket
from itertools import chain

import jsonbus
from jsonbus.frontend.limits import LINGER_S
from jsonbus.frontend.outgoing import BATCH_DATAGRAMS_MAX, FLOOD_MIN, BatchWindow
from jsonbus.transport import MemoryNetwork
from jsonbus.transport.offload import first_run, send_run
from tests.bus.conftest import OpenBus
from tests.sealed.material import ring
from tests.sync.test_pacing import listen
from tests.sync.transports import LosingTransport, RecordingTransport, first_tries
from tests.transport.listening import opened
from tests.transport.namespace import add_cable, give_far_end, in_private_namespace


def runs_with(transport: RecordingTransport, text: bytes) -> list[int]:
    """How many datagrams with this text left together, for each time that some did."""
    counts = [sum(text in datagram for datagram in run) for run in tuple(transport.runs)]
    return [count for count in counts if count]


def test_slices_of_a_large_value_leave_in_few_runs(
    network: MemoryNetwork, open_over: OpenBus
) -> None:
    transport = RecordingTransport(network)
    bus = open_over(transport, mode="basic")
    bus.publish("x", "y" * 100_000)
    assert bus.flush(timeout=30)
    assert transport.messages() == [("x", "y" * 100_000)]
    assert len(runs_with(transport, b"jsonbus.frag")) == 2


def test_repairs_leave_in_runs(network: MemoryNetwork, open_over: OpenBus) -> None:
    reader = open_over(network.open())
    transport = LosingTransport(network, first_tries(1.0, 1))
    publisher = open_over(transport, reliable=True)
    subscription = reader.subscribe("x")
    assert publisher.wait_for_subscribers("x", timeout=30)
    values = [f"{number} {'y' * 900}" for number in range(100)]
    for value in values:
        publisher.publish("x", value)
    assert [subscription.get(timeout=30).value for _ in values] == values
    assert max(runs_with(transport, b"jsonbus.repair")) > 1


def test_datagrams_of_a_run_count_and_are_checked_one_by_one(
    open_bus: OpenBus, network: MemoryNetwork, open_over: OpenBus
) -> None:
    elsewhere = RecordingTransport(network)
    stranger = open_over(elsewhere, mode="basic")
    stranger.publish("x", "y" * 100_000)
    assert stranger.flush(timeout=30)
    slices = [each for each in elsewhere.sent if b"jsonbus.frag" in each]
    run = first_run(slices, 30_000)
    bus = open_bus()
    subscription = bus.subscribe("x")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        local = socket.inet_aton("127.0.0.1")
        sock.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, local)
        address = (bus.config.group, bus.config.port)
        bad = b"x" * len(run[0])
        send_run(sock, [run[0], bad, *run[1:]], len(run[0]), address)
        send_run(sock, run, len(run[0]), address)
        for datagram in slices[len(run) :]:
            sock.sendto(datagram, address)
    assert subscription.get(timeout=30).value == "y" * 100_000
    stats = bus.stats()
    assert stats["datagrams_rejected"] == 1
    assert stats["datagrams_repeated"] == len(run)
    assert stats["messages_received"] == 1


def test_datagrams_of_a_run_are_json_for_everybody(open_bus: OpenBus) -> None:
    bus = open_bus(mode="basic", datagram_bytes_max=1400)
    with listen(bus) as heard:
        # Each datagram ends where the text has another width: so their sizes differ.
        bus.publish("x", [["x" * (n % 50)] for n in range(1000)])
        for number in range(60):
            bus.publish("y", [number, "x" * (number % 50)])
        assert bus.flush(timeout=30)
        datagrams = [heard.recv(65_536)]
        while b"[59," not in datagrams[-1]:
            datagrams.append(heard.recv(65_536))
    topics = [json.loads(datagram)["topic"] for datagram in datagrams]
    assert topics.count("jsonbus.frag") > 5
    assert max(map(len, datagrams)) <= 1400


def test_in_a_flood_a_batch_grows_until_it_takes_the_time_that_messages_may_wait() -> None:
    window, now = BatchWindow(), 10.0
    for _ in range(FLOOD_MIN + 1):
        window.open(now)
        now += LINGER_S / 10
    assert window.is_flood
    assert window.datagrams == 2
    for _ in range(5):
        window.open(now)
        now += LINGER_S / 10
    assert window.datagrams == BATCH_DATAGRAMS_MAX
    window.open(now + LINGER_S * 0.8)  # it took long to fill: fewer will do
    assert window.datagrams == BATCH_DATAGRAMS_MAX // 2
    window.open(now + 60)
    window.open(now + 120)
    window.open(now + 180)
    assert window.datagrams == 1


@in_private_namespace
def test_a_sealed_flood_crosses_a_cable_in_runs_and_arrives_whole() -> None:
    add_cable("one", "10.1.0.1")
    far_end = give_far_end("one", "10.1.0.2")
    numbers = range(5000)
    with (
        jsonbus.Bus(interface="one", key_file=ring()) as publisher,
        jsonbus.Bus(interface=far_end, key_file=ring()) as reader,
        opened(publisher.config.port, far_end, receive_buffer_bytes=1 << 24) as wire,
    ):
        reading = reader.subscribe("x", maxsize=10_000)
        assert publisher.wait_for_subscribers("x", timeout=30)
        for number in numbers:
            publisher.publish("x", [number, "y" * (number % 100)], reliable=True)
        assert [reading.get(timeout=30).value[0] for _ in numbers] == list(numbers)
        publisher.publish("x", "y" * 100_000, reliable=True)
        assert reading.get(timeout=30).value == "y" * 100_000
        came = []
        while (received := wire.receive(wire.sockets()[0])) is not None:
            came.append(received[0])
        stats = publisher.stats()
    assert stats["offload_refusals"] == stats["datagrams_unsent"] == 0
    sizes = [len(run) for run in came]
    assert max(sizes) > 40  # slices of the large value
    assert sum(1 < size <= BATCH_DATAGRAMS_MAX + 1 for size in sizes) > 5  # of small ones
    for datagram in chain.from_iterable(came):
        assert datagram.startswith(b"\xb5\x01")
        assert len(datagram) <= 1400


def test_no_interface_of_this_machine_refuses_runs(open_bus: OpenBus) -> None:
    bus = open_bus()
    bus.publish("x", "y" * 100_000)
    assert bus.flush(timeout=30)
    assert bus.stats()["offload_refusals"] == 0
