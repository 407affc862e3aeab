from __future__ import annotations

import pytest

from jsonbus.errors import TransportError
from jsonbus.transport import platforms
from jsonbus.transport.interfaces import choose_interfaces, follow_interfaces
from tests.helpers import wait_until
from tests.transport.namespace import add_cable, has_carrier, in_private_namespace, ip


def names(*choices: str) -> list[str]:
    return [interface.name for interface in choose_interfaces(choices)]


def test_an_interface_is_chosen_by_its_name() -> None:
    (interface,) = choose_interfaces(["lo"])
    assert (interface.name, interface.address, interface.is_up) == ("lo", "127.0.0.1", True)
    assert interface.index == platforms.interface_index("lo") > 0


def test_an_interface_is_chosen_by_its_address() -> None:
    (interface,) = choose_interfaces(["127.0.0.1"])
    assert interface.name == "lo"


def test_an_interface_chosen_twice_is_used_once() -> None:
    assert names("lo", "127.0.0.1", "lo") == ["lo"]


def test_loopback_is_pinned_to_its_address() -> None:
    (interface,) = choose_interfaces(["lo"])
    assert interface.is_pinned


def test_a_missing_interface_is_refused_with_the_names_of_those_that_exist() -> None:
    with pytest.raises(TransportError, match=r"no interface 'nope0': use .*lo \(127.0.0.1\)"):
        choose_interfaces(["nope0"])


@pytest.mark.parametrize("address", ["203.0.113.77", "fe80::1"])
def test_an_address_that_no_interface_has_is_refused(address: str) -> None:
    with pytest.raises(TransportError, match=f"no interface with the address '{address}'"):
        choose_interfaces([address])


@pytest.mark.parametrize("name", ["", "a-name-far-too-long-for-linux", "lo\0", "lö"])
def test_a_name_that_cannot_be_one_is_refused(name: str) -> None:
    with pytest.raises(TransportError, match="there is no interface"):
        choose_interfaces([name])


def test_flags_of_a_missing_interface_are_none() -> None:
    assert platforms.interface_flags("nope0") is None
    assert platforms.interface_flags("a-name-far-too-long-for-linux") is None
    assert platforms.interface_index("nope0") == 0


@in_private_namespace
def test_an_interface_without_an_address_is_refused() -> None:
    add_cable("plain")
    with pytest.raises(TransportError, match=r"'plain' has no IPv4 address: give it one"):
        choose_interfaces(["plain"])


@in_private_namespace
def test_several_interfaces_keep_the_order_they_were_chosen_in() -> None:
    add_cable("one", "10.1.0.1")
    add_cable("two", "10.2.0.1")
    assert names("two", "127.0.0.1", "10.1.0.1") == ["two", "lo", "one"]


@in_private_namespace
def test_an_interface_chosen_by_a_second_address_is_pinned_to_it() -> None:
    add_cable("one", "10.1.0.1")
    ip("addr add 10.1.0.9/24 dev one")
    (by_name,) = choose_interfaces(["one"])
    (by_address,) = choose_interfaces(["10.1.0.9"])
    assert (by_name.address, by_name.is_pinned) == ("10.1.0.1", False)
    assert (by_address.address, by_address.is_pinned) == ("10.1.0.9", True)


@in_private_namespace
def test_auto_is_the_interface_of_the_default_route() -> None:
    add_cable("one", "10.1.0.1")
    add_cable("two", "10.2.0.1")
    ip("route add default via 10.2.0.254")
    assert names("auto") == ["two"]


@in_private_namespace
def test_auto_without_a_default_route_is_the_first_capable_of_multicast() -> None:
    add_cable("deaf", "10.1.0.1")
    ip("link set deaf multicast off")
    add_cable("off", "10.2.0.1")
    ip("link set off down")
    add_cable("cut", "10.4.0.1")
    ip("link set cut-end down")
    assert wait_until(lambda: not has_carrier("cut"))
    add_cable("nameless")
    add_cable("good", "10.3.0.1")
    assert names("auto") == ["good"]


@in_private_namespace
def test_auto_passes_over_a_default_route_incapable_of_multicast() -> None:
    add_cable("deaf", "10.1.0.1")
    ip("link set deaf multicast off")
    ip("route add default via 10.1.0.254")
    add_cable("good", "10.2.0.1")
    assert names("auto") == ["good"]


@in_private_namespace
def test_auto_on_a_lonely_machine_is_loopback() -> None:
    assert names("auto") == ["lo"]
    assert names() == ["lo"]


@in_private_namespace
def test_auto_without_any_interface_is_refused() -> None:
    ip("addr flush dev lo")
    with pytest.raises(TransportError, match="bring one up"):
        choose_interfaces(["auto"])


@in_private_namespace
def test_auto_leaves_loopback_when_a_network_appears() -> None:
    current = choose_interfaces(["auto"])
    assert follow_interfaces(["auto"], current) == current
    add_cable("late", "10.1.0.1")
    (interface,) = follow_interfaces(["auto"], current)
    assert interface.name == "late"


@in_private_namespace
def test_auto_follows_the_default_route_but_stays_when_it_goes() -> None:
    add_cable("one", "10.1.0.1")
    add_cable("two", "10.2.0.1")
    current = choose_interfaces(["auto"])
    assert current[0].name == "one"
    ip("route add default via 10.2.0.254")
    current = follow_interfaces(["auto"], current)
    assert current[0].name == "two"
    ip("route del default")
    assert follow_interfaces(["auto"], current) == current


@in_private_namespace
def test_following_passes_over_what_is_gone_and_finds_it_again() -> None:
    add_cable("one", "10.1.0.1")
    current = choose_interfaces(["lo", "one"])
    ip("link del one")
    (kept,) = follow_interfaces(["lo", "one"], current)
    assert kept.name == "lo"
    add_cable("one", "10.1.0.1")
    found = follow_interfaces(["lo", "one"], (kept,))
    assert [interface.name for interface in found] == ["lo", "one"]
    assert found[1].index != current[1].index


@in_private_namespace
def test_an_unplugged_cable_shows_as_not_up() -> None:
    add_cable("one", "10.1.0.1")
    assert choose_interfaces(["one"])[0].is_up
    ip("link set one-end down")
    assert wait_until(lambda: not choose_interfaces(["one"])[0].is_up)


@in_private_namespace
def test_auto_is_the_interface_of_the_default_route_even_while_its_cable_is_out() -> None:
    add_cable("one", "10.1.0.1")
    add_cable("two", "10.2.0.1")
    ip("route add default via 10.2.0.254")
    ip("link set two-end down")
    assert wait_until(lambda: not has_carrier("two"))
    assert names("auto") == ["two"]
