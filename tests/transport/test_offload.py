"""Runs of datagrams: sent and received at once where the kernel can, and one by one elsewhere."""

from __future__ import annotations

import itertools
import socket
from collections.abc import Sequence

import pytest

from jsonbus.transport import DATAGRAM_BYTES_MAX, MulticastTransport, Transport, offload
from jsonbus.transport.offload import SEGMENTS_MAX, first_run
from tests.helpers import find_free_port, wait_until
from tests.transport.listening import GROUP, hear, opened
from tests.transport.namespace import (
    add_cable,
    give_far_end,
    in_private_namespace,
    ip,
    slow_down,
)

SIZE = 1_400
_ETHERTYPE_IP = 0x0800
_IP_PROTOCOL_AT = 9
_numbers = itertools.count(1)


@pytest.fixture
def port() -> int:
    return find_free_port()


def make_run(count: int, size: int = SIZE) -> tuple[bytes, ...]:
    """A run of different datagrams; the last one is smaller."""
    sizes = [*[size] * (count - 1), size // 2]
    return tuple((b"%d." % next(_numbers)).ljust(each) for each in sizes)


def texts(heard: Sequence[tuple[bytes, str]]) -> list[bytes]:
    return [datagram for datagram, _ in heard]


def receive_one(transport: Transport) -> Sequence[bytes]:
    """What the next call of `receive` brings."""
    brought: list[Sequence[bytes]] = []

    def has_come() -> bool:
        received = transport.receive(transport.sockets()[0])
        if received is not None:
            brought.append(received[0])
        return received is not None

    assert wait_until(has_come)
    return brought[0]


def open_plain(port: int) -> socket.socket:
    """A program that knows nothing of runs."""
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.bind((GROUP, port))
    member = socket.inet_aton(GROUP) + socket.inet_aton("127.0.0.1")
    sock.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, member)
    sock.settimeout(30)
    return sock


@pytest.mark.parametrize(
    ("sizes", "count"),
    [
        ([5], 1),
        ([5, 5, 5], 3),
        ([5, 5, 4, 4], 3),  # only the last may be smaller
        ([5, 6], 1),
        ([5, 5, 6], 2),
        ([5] * 100, SEGMENTS_MAX),
        ([10_000] * 9, 6),
        ([DATAGRAM_BYTES_MAX + 1] * 2, 1),  # refused by whoever sends it, alone
        ([0, 0], 2),
    ],
)
def test_a_run_has_one_size_and_a_smaller_last_one(sizes: list[int], count: int) -> None:
    assert len(first_run([bytes(size) for size in sizes], DATAGRAM_BYTES_MAX)) == count


@pytest.mark.parametrize(("bytes_max", "count"), [(-5, 1), (0, 1), (299, 2), (300, 3), (1e9, 4)])
def test_a_run_takes_no_more_than_it_may_but_one_datagram(bytes_max: float, count: int) -> None:
    assert len(first_run([bytes(100)] * 4, bytes_max)) == count


def test_a_run_comes_at_once_to_who_asks_and_as_datagrams_to_others(port: int) -> None:
    run = make_run(40)
    with opened(port) as sender, opened(port) as listener, open_plain(port) as plain:
        assert sender.send(run)
        assert tuple(receive_one(listener)) == run
        assert tuple(receive_one(sender)) == run
        assert tuple(plain.recv(65_536) for _ in run) == run
        assert sender.offload_refusals == 0


def test_a_single_datagram_after_a_run_comes_as_it_is(port: int) -> None:
    run = make_run(3)
    with opened(port) as sender, opened(port) as listener:
        assert sender.send(run)
        assert sender.send((b"alone",))
        assert texts(hear(listener, 4)) == [*run, b"alone"]


def test_a_system_without_runs_hears_and_sends_the_same_datagrams(
    port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = make_run(5)
    with opened(port) as listener:
        monkeypatch.setattr(offload.sys, "platform", "elsewhere")
        with opened(port) as other:
            assert other.send(run)
            assert texts(hear(listener, 5)) == [*run]
            assert [receive_one(other) for _ in run] == [(each,) for each in run]


@in_private_namespace
def test_runs_cross_a_cable() -> None:
    add_cable("one", "10.1.0.1")
    runs = [make_run(40) for _ in range(20)]
    with opened(2416, "one") as sender, opened(2416, give_far_end("one", "10.1.0.2")) as far:
        for run in runs:
            assert sender.send(run)
        assert texts(hear(far, 800)) == [each for run in runs for each in run]
        assert sender.offload_refusals == 0
        assert sender.send_failures == 0


@in_private_namespace
def test_an_interface_that_cuts_no_runs_gets_datagrams_for_good() -> None:
    add_cable("one", "10.1.0.1")
    ip("link set one mtu 1000")  # so IP has to cut the datagrams, which no run allows
    with opened(2416, "one", "lo") as transport, opened(2416, "lo") as listener:
        run, other, small = make_run(5), make_run(5), make_run(5, 100)
        for each in (run, other, small):
            assert transport.send(each)
        wanted = sorted([*run, *other, *small])
        # By both interfaces to itself, by one to the listener: nothing is lost by trying.
        assert sorted(texts(hear(transport, 30))) == sorted(wanted + wanted)
        assert sorted(texts(hear(listener, 15))) == wanted
        assert transport.offload_refusals == 1
        assert transport.send_failures == 0


@in_private_namespace
def test_runs_too_large_for_an_interface_do_not_keep_it_from_smaller_ones() -> None:
    add_cable("one", "10.1.0.1")
    with opened(2416, "one") as transport:
        large, more, usual = make_run(5, 3_000), make_run(5, 2_000), make_run(5)
        for run in (large, more):
            assert transport.send(run)
        assert texts(hear(transport, 10)) == [*large, *more]
        assert transport.send(usual)
        assert tuple(receive_one(transport)) == usual
        assert transport.offload_refusals == 1


@in_private_namespace
def test_an_interface_that_takes_nothing_has_refused_no_run() -> None:
    add_cable("one", "10.1.0.1")
    with opened(2416, "lo", "10.1.0.1") as transport:
        ip("link set one down")
        run = make_run(5)
        assert transport.send(run)
        assert texts(hear(transport, 5)) == [*run]
        assert transport.send_failures == 5
        ip("link set one up")
        assert wait_until(lambda: transport.rejoin() or True)
        assert transport.send(run)
        assert transport.offload_refusals == 0


@in_private_namespace
def test_an_interface_is_asked_without_a_word_to_anybody() -> None:
    add_cable("one", "10.1.0.1")
    far = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(_ETHERTYPE_IP))
    with opened(2416, "lo", "one") as transport, far:
        far.bind(("one-end", _ETHERTYPE_IP))
        lo, one = transport.describe().interfaces
        assert offload.cuts_runs(lo, GROUP)
        assert offload.cuts_runs(one, GROUP)
        ip("link set one mtu 1000")
        assert not offload.cuts_runs(one, GROUP)
        assert transport.send((b"the first to come",))
        while (packet := far.recv(65_536))[_IP_PROTOCOL_AT] != socket.IPPROTO_UDP:
            pass  # IGMP
        assert packet.endswith(b"the first to come")


@pytest.mark.parametrize("mtu", [1_500, 1_000], ids=["at once", "one by one"])
@in_private_namespace
def test_a_run_without_room_goes_on_where_it_stopped(mtu: int) -> None:
    add_cable("slow", "10.1.0.1")
    ip(f"link set slow mtu {mtu}")
    slow_down("slow")
    with (
        opened(2416, "lo", "slow", receive_buffer_bytes=1 << 24) as transport,
        opened(2416, "lo", receive_buffer_bytes=1 << 24) as listener,
    ):
        sent: list[bytes] = []
        jams = 0
        while jams < 3:
            run = make_run(7)
            while not transport.send(run):
                jams += 1
                transport.wait_writable(1)
            sent += run
            assert len(sent) < 100_000, "the kernel always had room"
        heard = hear(transport, 2 * len(sent))
        for address in ("127.0.0.1", "10.1.0.1"):
            assert [datagram for datagram, source in heard if source == address] == sent
        assert texts(hear(listener, len(sent))) == sent
        assert transport.send_failures == 0
        assert transport.offload_refusals == (mtu < SIZE)


@in_private_namespace
def test_a_run_that_was_given_up_half_way_does_not_cut_the_next_one_short() -> None:
    add_cable("slow", "10.1.0.1")
    ip("link set slow mtu 1000")
    slow_down("slow")
    with opened(2416, "slow", receive_buffer_bytes=1 << 24) as transport:
        while transport.send(make_run(7)):
            pass
        assert wait_until(lambda: transport.wait_writable(1))
        last = make_run(7)
        assert wait_until(lambda: transport.send(last) or not transport.wait_writable(1))
        heard: list[tuple[bytes, str]] = []
        while last[-1] not in texts(heard):
            heard += hear(transport, 1)
        assert [each for each in texts(heard) if each in last] == [*last]


def overflow(listener: MulticastTransport, sender: MulticastTransport, runs: int) -> int:
    """Send runs to a listener that reads afterwards; return how many of them it did not hear."""
    for _ in range(runs):
        assert sender.send(make_run(20))
    heard = 0
    while listener.receive(listener.sockets()[0]) is not None:
        heard += 1
    return runs - heard


@pytest.mark.parametrize("interface", ["lo", "one"])
@in_private_namespace
def test_a_run_that_finds_no_room_is_one_drop_and_own_runs_are_none(interface: str) -> None:
    add_cable("one", "10.1.0.1")
    with (
        opened(2416, interface, hears_itself=False) as sender,
        opened(2416, interface, receive_buffer_bytes=100_000, hears_itself=False) as listener,
    ):
        missed = overflow(listener, sender, 100)
        assert 0 < missed < 100
        assert listener.kernel_drops() == missed
        # Neither single datagrams nor runs of its own change that.
        for run in (make_run(1), make_run(20), make_run(2)):
            assert listener.send(run)
        assert listener.kernel_drops() == missed
        assert sender.kernel_drops() == 0
        assert sender.receive(sender.sockets()[0]) is not None


@in_private_namespace
def test_own_runs_that_an_interface_refused_are_no_drops() -> None:
    add_cable("one", "10.1.0.1")
    ip("link set one mtu 1000")
    with opened(2416, "one", hears_itself=False) as transport:
        for _ in range(3):
            assert transport.send(make_run(5))
        assert transport.receive(transport.sockets()[0]) is None
        assert transport.kernel_drops() == 0
        assert transport.offload_refusals == 1
