from __future__ import annotations

import contextlib
import errno
import logging
import socket

import pytest

from jsonbus.errors import TransportError
from jsonbus.transport import (
    DATAGRAM_BYTES_MAX,
    Transport,
    open_multicast,
    platforms,
    refusals,
)
from jsonbus.transport.base import Interface
from tests.helpers import find_free_port, no_descriptors, wait_until
from tests.transport.listening import GROUP, hear, opened
from tests.transport.namespace import add_cable, in_private_namespace, ip, slow_down


@pytest.fixture
def port() -> int:
    return find_free_port()


def test_many_transports_share_a_port_and_all_hear_all(port: int) -> None:
    with contextlib.ExitStack() as stack:
        transports: list[Transport] = [stack.enter_context(opened(port)) for _ in range(3)]
        for number, transport in enumerate(transports):
            assert transport.send((b"%d" % number,))
        expected = [(b"0", "127.0.0.1"), (b"1", "127.0.0.1"), (b"2", "127.0.0.1")]
        assert [hear(transport, 3) for transport in transports] == [expected] * 3


def test_another_one_joins_the_same_group_with_the_same_settings(port: int) -> None:
    with opened(port) as one, contextlib.closing(one.open_another()) as another:
        assert one.send((b"x",))
        assert hear(another, 1) == [(b"x", "127.0.0.1")]
        assert another.describe() == one.describe()


def test_nothing_waiting_is_none(port: int) -> None:
    with opened(port) as transport:
        assert transport.receive(transport.sockets()[0]) is None


def test_another_group_on_the_same_port_is_not_heard(port: int) -> None:
    with opened(port) as here, opened(port, group="239.255.24.17") as there:
        there.send((b"not for us",))
        here.send((b"for us",))
        assert hear(here, 1) == [(b"for us", "127.0.0.1")]
        assert hear(there, 1) == [(b"not for us", "127.0.0.1")]
        assert here.receive(here.sockets()[0]) is None


def test_a_plain_socket_can_talk_to_the_group(port: int) -> None:
    with opened(port) as transport:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sensor:
            local = socket.inet_aton("127.0.0.1")
            sensor.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, local)
            sensor.sendto(b"21.5", (GROUP, port))
        assert hear(transport, 1)[0][0] == b"21.5"


def test_the_largest_datagram_travels_and_a_larger_one_is_refused(port: int) -> None:
    with opened(port) as transport:
        largest = bytes(DATAGRAM_BYTES_MAX)
        assert transport.send((largest,))
        assert hear(transport, 1) == [(largest, "127.0.0.1")]
        with pytest.raises(TransportError, match="65,508 bytes is too large for lo"):
            transport.send((largest + b"x",))


def test_the_facts_of_an_open_transport_are_told(port: int) -> None:
    with opened(port, "lo", "127.0.0.1", receive_buffer_bytes=100_000) as transport:
        info = transport.describe()
    assert (info.group, info.port, info.ttl) == (GROUP, port, 1)
    assert [interface.name for interface in info.interfaces] == ["lo"]
    assert info.receive_buffer_asked_bytes == 100_000
    assert info.receive_buffer_obtained_bytes == 100_000


def test_a_buffer_larger_than_the_system_gives_shows_in_the_size_obtained(port: int) -> None:
    with opened(port, receive_buffer_bytes=(1 << 31) - 1) as transport:
        info = transport.describe()
    assert 0 < info.receive_buffer_obtained_bytes < info.receive_buffer_asked_bytes


def test_datagrams_the_full_buffer_could_not_take_are_counted_exactly(port: int) -> None:
    with opened(port) as sender, opened(port, receive_buffer_bytes=4_096) as listener:
        for _ in range(100):
            sender.send((bytes(1_000),))
        heard = 0
        while listener.receive(listener.sockets()[0]) is not None:
            heard += 1
        assert 0 < heard < 100
        assert listener.kernel_drops() == 100 - heard
        assert sender.kernel_drops() == 0


@pytest.mark.parametrize("interfaces", [["lo"], ["one"], ["one", "lo"]], ids=" ".join)
@in_private_namespace
def test_what_a_transport_sends_does_not_come_back_and_is_no_drop(interfaces: list[str]) -> None:
    add_cable("one", "10.1.0.1")
    with (
        opened(2416, *interfaces, hears_itself=False) as transport,
        opened(2416, *interfaces, receive_buffer_bytes=4_096, hears_itself=False) as other,
    ):
        for _ in range(1_000):
            assert transport.send((bytes(500),))
        assert transport.receive(transport.sockets()[0]) is None
        assert transport.kernel_drops() == 0
        heard = 0
        while other.receive(other.sockets()[0]) is not None:
            heard += 1
        # What the other one's own datagrams count for, there, hides none of these.
        assert other.kernel_drops() == 1_000 * len(interfaces) - heard > 0
        for number in range(10):
            assert other.send((b"%d" % number,))
        assert len(hear(transport, 10 * len(interfaces))) == 10 * len(interfaces)
        assert other.kernel_drops() == 1_000 * len(interfaces) - heard
        assert transport.kernel_drops() == 0


@in_private_namespace
def test_datagrams_do_not_come_back_after_the_address_was_replaced() -> None:
    add_cable("one", "10.1.0.1")
    with opened(2416, "one", hears_itself=False) as transport:
        ip("addr del 10.1.0.1/24 dev one")
        ip("addr add 10.1.0.7/24 dev one")
        assert transport.send((b"x",))
        assert transport.receive(transport.sockets()[0]) is None
        ip("link del one")
        add_cable("one", "10.1.0.1")
        assert transport.rejoin()
        assert transport.send((b"y",))
        assert transport.receive(transport.sockets()[0]) is None
        assert transport.kernel_drops() == 0


def test_a_system_without_filters_brings_back_what_was_sent(
    port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(platforms, "ignore_own", lambda sock, ports: False)
    with opened(port, hears_itself=False) as transport:
        assert transport.send((b"x",))
        assert hear(transport, 1) == [(b"x", "127.0.0.1")]
        assert transport.kernel_drops() == 0


def test_a_group_that_is_not_multicast_is_refused(port: int) -> None:
    for group in ("10.0.0.1", "255.255.255.255", "ff02::1", "somewhere", ""):
        with pytest.raises(TransportError, match="is not an IPv4 multicast address: use one from"):
            open_multicast(group, port, ["lo"], 1, 4_096)


@pytest.mark.parametrize("number", [-1, 0, 65_536])
def test_a_port_out_of_range_is_refused(number: int) -> None:
    with pytest.raises(TransportError, match=f"port {number} is out of range"):
        open_multicast(GROUP, number, ["lo"], 1, 4_096)


@pytest.mark.parametrize("ttl", [-1, 256])
def test_a_ttl_out_of_range_is_refused(port: int, ttl: int) -> None:
    with pytest.raises(TransportError, match=f"ttl {ttl} is out of range"):
        open_multicast(GROUP, port, ["lo"], ttl, 4_096)


def test_a_missing_interface_is_refused(port: int) -> None:
    with pytest.raises(TransportError, match=r"no interface 'nope0': use .*lo"):
        open_multicast(GROUP, port, ["lo", "nope0"], 1, 4_096)


def test_a_port_held_by_a_program_that_does_not_share_it_is_refused(port: int) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
        other.bind(("", port))
        with pytest.raises(TransportError, match=f"UDP port {port} is held .*: stop that program"):
            open_multicast(GROUP, port, ["lo"], 1, 4_096)


def test_every_refusal_says_what_to_do() -> None:
    lo = Interface("lo", "127.0.0.1", 1)
    for number in (errno.EACCES, errno.EPERM, errno.ENODEV, errno.ENOBUFS, errno.EINVAL):
        error = OSError(number, "refused")
        assert "on lo (refused): " in refusals.explain_join(GROUP, lo, error)
        assert "on lo (refused): " in refusals.explain_send(f"{GROUP}:1", lo, 10, error)
    denied = OSError(errno.EACCES, "denied")
    assert "use a port above 1023" in refusals.explain_bind(GROUP, 80, denied)
    assert "strange" in refusals.explain_bind(GROUP, 80, OSError(errno.EINVAL, "strange"))


def test_closing_twice_is_fine_and_later_use_is_refused(port: int) -> None:
    with opened(port) as transport:
        (sock,) = transport.sockets()
    transport.close()
    assert transport.kernel_drops() == 0
    assert not transport.rejoin()
    with pytest.raises(TransportError, match="closed"):
        transport.send((b"x",))
    with pytest.raises(TransportError, match="closed"):
        transport.receive(sock)


def test_a_transport_with_room_need_not_wait(port: int) -> None:
    with opened(port) as transport:
        assert transport.send((b"x",))
        assert transport.wait_writable(0)


@in_private_namespace
def test_a_datagram_leaves_by_every_interface() -> None:
    add_cable("one", "10.1.0.1")
    add_cable("two", "10.2.0.1")
    with opened(2416, "one", "two") as transport:
        transport.send((b"x",))
        assert sorted(hear(transport, 2)) == [(b"x", "10.1.0.1"), (b"x", "10.2.0.1")]


@in_private_namespace
def test_an_interface_only_others_have_joined_is_not_heard() -> None:
    add_cable("one", "10.1.0.1")
    add_cable("two", "10.2.0.1")
    with opened(2416, "one") as one, opened(2416, "two") as two:
        two.send((b"elsewhere",))
        one.send((b"here",))
        assert hear(one, 1) == [(b"here", "10.1.0.1")]
        assert hear(two, 1) == [(b"elsewhere", "10.2.0.1")]


@in_private_namespace
def test_an_address_chosen_among_several_is_what_datagrams_come_from() -> None:
    add_cable("one", "10.1.0.1")
    ip("addr add 10.1.0.9/24 dev one")
    with opened(2416, "10.1.0.9") as transport:
        transport.send((b"x",))
        assert hear(transport, 1) == [(b"x", "10.1.0.9")]


@in_private_namespace
def test_one_failing_interface_is_counted_and_does_not_stop_the_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    add_cable("one", "10.1.0.1")
    with opened(2416, "lo", "one") as transport:
        ip("link set one down")
        with caplog.at_level(logging.WARNING, logger="jsonbus.transport"):
            assert transport.send((b"1",))
            assert transport.send((b"2",))
        assert hear(transport, 2) == [(b"1", "127.0.0.1"), (b"2", "127.0.0.1")]
        assert transport.send_failures == 2
        (warning,) = caplog.messages
        assert "on one" in warning and "bring the interface up" in warning
        ip("link set lo down")
        with pytest.raises(TransportError, match="bring the interface up, or choose another"):
            transport.send((b"3",))


@in_private_namespace
def test_a_send_without_room_is_repeated_only_where_it_had_none() -> None:
    add_cable("slow", "10.1.0.1")
    slow_down("slow")
    with opened(2416, "lo", "slow") as transport, opened(2416, "lo") as listener:
        run = (bytes(1_000),)
        taken = 0
        while transport.send(run):
            taken += 1
            assert taken < 100_000, "the kernel always had room"
        assert wait_until(lambda: transport.wait_writable(1) and transport.send(run))
        assert len(hear(listener, taken + 1)) == taken + 1
        assert listener.receive(listener.sockets()[0]) is None
        assert transport.send_failures == 0


def test_joining_by_address_as_on_windows_works_here_too(
    port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(platforms, "IS_LINUX", False)
    monkeypatch.setattr(platforms, "IS_WINDOWS", True)
    with opened(port, receive_buffer_bytes=100_000) as transport:
        info = transport.describe()
        assert [(each.name, each.index) for each in info.interfaces] == [("lo", 0)]
        assert info.receive_buffer_obtained_bytes >= 100_000
        assert transport.send((b"x",))
        assert hear(transport, 1) == [(b"x", "127.0.0.1")]
        assert not transport.rejoin()
        assert transport.kernel_drops() == 0


def test_without_descriptors_interfaces_are_taken_to_be_what_they_were(port: int) -> None:
    with opened(port) as transport:
        before = transport.describe()
        with no_descriptors():
            assert not transport.rejoin()
        assert transport.describe() == before
