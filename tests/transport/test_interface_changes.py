"""What a joined group survives by itself, and what takes a call of rejoin().

A transport hears its own datagrams only on an interface where its membership holds. Where the
link itself is the question, a second transport at the far end of the cable talks and listens.
"""

from __future__ import annotations

import contextlib
import threading

import pytest

from jsonbus.errors import TransportError
from jsonbus.transport import MulticastTransport
from tests.helpers import wait_until
from tests.transport.listening import hear, opened, reaches
from tests.transport.namespace import (
    add_cable,
    give_far_end,
    has_carrier,
    in_private_namespace,
    ip,
)


def index_of(transport: MulticastTransport) -> int:
    return transport.describe().interfaces[0].index


@in_private_namespace
def test_a_link_that_goes_down_and_up_needs_no_rejoin() -> None:
    add_cable("one", "10.1.0.1")
    with opened(2416, "one") as transport:
        ip("link set one down")
        with pytest.raises(TransportError, match="cannot send to .* on one"):
            transport.send((b"lost",))
        ip("link set one up")
        with opened(2416, give_far_end("one", "10.1.0.2")) as far:
            assert reaches(far, transport)
            assert reaches(transport, far)


@in_private_namespace
def test_an_unplugged_cable_needs_no_rejoin() -> None:
    add_cable("one", "10.1.0.1")
    with opened(2416, "one") as transport:
        ip("link set one-end down")
        ip("link set one-end up")
        with opened(2416, give_far_end("one", "10.1.0.2")) as far:
            assert reaches(far, transport)
            assert reaches(transport, far)


@in_private_namespace
def test_a_replaced_address_becomes_the_source_without_a_rejoin() -> None:
    add_cable("one", "10.1.0.1")
    with opened(2416, "one") as transport:
        ip("addr del 10.1.0.1/24 dev one")
        ip("addr add 10.1.0.7/24 dev one")
        assert transport.send((b"x",))
        assert hear(transport, 1) == [(b"x", "10.1.0.7")]
        assert transport.rejoin()
        assert transport.describe().interfaces[0].address == "10.1.0.7"
        assert transport.send((b"y",))
        assert hear(transport, 1) == [(b"y", "10.1.0.7")]


@in_private_namespace
def test_an_interface_without_its_address_stays_joined_and_shows_as_not_up() -> None:
    add_cable("one", "10.1.0.1")
    with opened(2416, "one") as transport:
        ip("addr del 10.1.0.1/24 dev one")
        assert transport.rejoin()
        (interface,) = transport.describe().interfaces
        assert (interface.name, interface.is_up) == ("one", False)
        assert not transport.rejoin()
        ip("addr add 10.1.0.7/24 dev one")
        assert transport.send((b"back",))
        assert hear(transport, 1) == [(b"back", "10.1.0.7")]
        assert transport.rejoin()
        (interface,) = transport.describe().interfaces
        assert (interface.address, interface.is_up) == ("10.1.0.7", True)


@in_private_namespace
def test_an_interface_that_is_gone_is_left() -> None:
    add_cable("one", "10.1.0.1")
    with opened(2416, "one") as transport:
        ip("link del one")
        assert transport.rejoin()
        assert transport.describe().interfaces == ()
        with pytest.raises(TransportError, match="no chosen interface is there now"):
            transport.send((b"lost",))
        assert not transport.rejoin()


@in_private_namespace
def test_a_pinned_address_works_again_when_it_is_back() -> None:
    add_cable("one", "10.1.0.1")
    with opened(2416, "10.1.0.1") as transport:
        ip("addr del 10.1.0.1/24 dev one")
        with pytest.raises(TransportError, match="cannot send"):
            transport.send((b"lost",))
        ip("addr add 10.1.0.1/24 dev one")
        assert transport.send((b"back",))
        assert hear(transport, 1) == [(b"back", "10.1.0.1")]


@in_private_namespace
def test_a_recreated_interface_is_joined_by_rejoin() -> None:
    add_cable("one", "10.1.0.1")
    with opened(2416, "one") as transport:
        before = index_of(transport)
        ip("link del one")
        add_cable("one", "10.1.0.2")
        assert transport.rejoin()
        assert index_of(transport) != before
        assert transport.send((b"back",))
        assert hear(transport, 1) == [(b"back", "10.1.0.2")]
        with opened(2416, give_far_end("one", "10.1.0.3")) as far:
            assert reaches(far, transport)
            assert reaches(transport, far)


@in_private_namespace
def test_a_recreated_interface_is_joined_by_the_send_that_fails_for_it() -> None:
    add_cable("one", "10.1.0.1")
    with opened(2416, "one") as transport:
        ip("link del one")
        add_cable("one", "10.1.0.2")
        with pytest.raises(TransportError, match="cannot send .* on one"):
            transport.send((b"lost",))
        assert transport.send((b"back",))
        assert hear(transport, 1) == [(b"back", "10.1.0.2")]
        # The owner is still told.
        assert transport.rejoin()
        assert not transport.rejoin()


@pytest.mark.slow
@in_private_namespace
def test_failing_sends_look_for_an_interface_until_it_is_back() -> None:
    add_cable("one", "10.1.0.1")

    def is_sent(transport: MulticastTransport) -> bool:
        try:
            return transport.send((b"x",))
        except TransportError:
            return False

    with opened(2416, "one") as transport:
        ip("link del one")
        assert not is_sent(transport)
        assert not is_sent(transport)
        add_cable("one", "10.1.0.2")
        assert wait_until(lambda: is_sent(transport))
        assert hear(transport, 1) == [(b"x", "10.1.0.2")]


@in_private_namespace
def test_the_socket_to_watch_stays_the_same_over_a_rejoin() -> None:
    add_cable("one", "10.1.0.1")
    with opened(2416, "one") as transport:
        watched = transport.sockets()
        ip("link del one")
        assert transport.rejoin()
        add_cable("one", "10.1.0.1")
        assert transport.rejoin()
        assert transport.sockets() == watched


@in_private_namespace
def test_rejoin_tells_of_a_link_that_went_down_or_came_up() -> None:
    add_cable("one", "10.1.0.1")
    with opened(2416, "one") as transport:
        assert not transport.rejoin()
        ip("link set one down")
        assert transport.rejoin()
        assert not transport.describe().interfaces[0].is_up
        ip("link set one up")
        assert wait_until(lambda: has_carrier("one"))
        assert transport.rejoin()
        assert transport.describe().interfaces[0].is_up
        assert not transport.rejoin()


@in_private_namespace
def test_rejoin_keeps_the_other_interfaces_when_one_is_gone() -> None:
    add_cable("one", "10.1.0.1")
    add_cable("two", "10.2.0.1")
    with opened(2416, "one", "two") as transport:
        ip("link del one")
        assert transport.rejoin()
        assert [interface.name for interface in transport.describe().interfaces] == ["two"]
        assert transport.send((b"x",))
        assert hear(transport, 1) == [(b"x", "10.2.0.1")]
        assert transport.send_failures == 0


@in_private_namespace
def test_auto_moves_from_loopback_to_a_network_that_appears() -> None:
    with opened(2416, "auto") as transport:
        assert transport.send((b"alone",))
        assert hear(transport, 1) == [(b"alone", "127.0.0.1")]
        add_cable("one", "10.1.0.1")
        assert transport.rejoin()
        assert transport.send((b"together",))
        assert hear(transport, 1) == [(b"together", "10.1.0.1")]


@in_private_namespace
def test_rejoin_may_run_while_another_thread_sends() -> None:
    add_cable("one", "10.1.0.1")
    is_done = threading.Event()
    surprises: list[BaseException] = []

    def send_on(transport: MulticastTransport) -> None:
        try:
            while not is_done.is_set():
                with contextlib.suppress(TransportError):  # while the interface is away
                    transport.send((b"x",))
        except BaseException as surprise:  # judged by the thread that waits below
            surprises.append(surprise)

    with opened(2416, "one", "lo") as transport:
        sender = threading.Thread(target=send_on, args=(transport,))
        sender.start()
        try:
            for _ in range(5):
                ip("link del one")
                assert transport.rejoin()
                add_cable("one", "10.1.0.1")
                assert transport.rejoin()
        finally:
            is_done.set()
            sender.join()
    assert surprises == []
