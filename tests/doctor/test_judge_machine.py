from __future__ import annotations

from dataclasses import replace

import pytest

from jsonbus.doctor.facts import InterfaceFacts, worst
from jsonbus.doctor.judge import judge
from tests.doctor.facts import ASKED_BYTES, ETHERNET, LOOPBACK, OTHER, findings, make_facts

VPN = replace(ETHERNET, name="tun0", addresses=("10.8.0.2",))
BRIDGE = replace(ETHERNET, name="docker0", addresses=("172.17.0.1",))


def test_a_machine_on_which_all_is_well_has_no_problem_and_no_warning() -> None:
    assert worst(judge(make_facts(traffic={"senders": ("192.0.2.6",)}))) == "note"
    (interface,) = findings(make_facts(), "interface")
    assert interface.level == "ok"
    assert interface.text == "eth0 (192.0.2.5) is up and carries multicast"


def test_the_group_that_was_joined_is_told() -> None:
    (found,) = findings(make_facts(ETHERNET, OTHER), "joining")
    assert (found.level, found.text) == ("ok", "239.255.24.16:2416 is joined by eth0, eth1")


@pytest.mark.parametrize(
    ("change", "text", "remedy"),
    [
        ({"is_up": False}, "eth0 (192.0.2.5) is down", "ip link set eth0 up"),
        ({"addresses": ()}, "has no IPv4 address", "give it an address"),
        ({"is_multicast": False}, "does not carry multicast", "multicast on"),
        ({"has_carrier": False}, "has no carrier", "plug in"),
    ],
)
def test_an_interface_that_cannot_work_is_a_problem(
    change: dict[str, object], text: str, remedy: str
) -> None:
    facts = make_facts(replace(ETHERNET, **change), others=(OTHER,), choices=("eth0",))
    (found,) = findings(facts, "interface")
    assert found.level == "problem"
    assert text in found.text
    assert remedy in found.remedy and "--interface eth1" in found.remedy


def test_loopback_is_told_but_is_no_trouble() -> None:
    facts = make_facts(LOOPBACK, others=(ETHERNET,), choices=("lo",))
    (found,) = findings(facts, "interface")
    assert found.level == "note"
    assert "only programs of this machine" in found.text
    assert "--interface eth0" in found.remedy


@pytest.mark.parametrize(("interface", "kind"), [(VPN, "a VPN"), (BRIDGE, "containers")])
def test_a_default_route_that_leads_elsewhere_is_a_warning(
    interface: InterfaceFacts, kind: str
) -> None:
    found = findings(make_facts(interface, others=(ETHERNET,)), "interface")[0]
    assert found.level == "warning"
    assert kind in found.text and "default route" in found.text
    assert "--interface eth0" in found.remedy


def test_other_networks_are_told_when_nobody_chose() -> None:
    others = (OTHER, VPN, BRIDGE, replace(OTHER, name="eth2", is_up=False))
    (note,) = findings(make_facts(others=others), "interface", level="note")
    assert note.text == "this machine is on other networks too: eth1 (198.51.100.5)"
    assert findings(make_facts(others=others, choices=("eth0",)), "interface", level="note") == []


def test_datagrams_that_never_leave_are_a_warning() -> None:
    (found,) = findings(make_facts(ttl=0), "interface", level="warning")
    assert "TTL 0" in found.text
    assert findings(make_facts(LOOPBACK, ttl=0), "interface", level="warning") == []


def test_a_wireless_network_is_told() -> None:
    (note,) = findings(make_facts(replace(ETHERNET, name="wlan0")), "interface", level="note")
    assert "wireless" in note.text and "client isolation" in note.remedy


@pytest.mark.parametrize(
    ("machine", "text", "remedy"),
    [
        ({"container": "Docker"}, "container (Docker)", "--network host"),
        ({"is_wsl": True}, "WSL", "networkingMode=mirrored"),
        ({"virtual_machine": "QEMU"}, "virtual machine (QEMU)", "bridged network"),
    ],
)
def test_surroundings_are_told_while_nobody_else_is_heard(
    machine: dict[str, object], text: str, remedy: str
) -> None:
    (found,) = findings(make_facts(machine=machine), "surroundings")
    assert found.level == "note"
    assert text in found.text and remedy in found.remedy
    heard = make_facts(machine=machine, traffic={"senders": ("192.0.2.6",)})
    assert findings(heard, "surroundings") == []
    assert findings(make_facts(LOOPBACK, machine=machine), "surroundings") == []


def test_a_vpn_beside_the_network_is_told_while_nobody_else_is_heard() -> None:
    (found,) = findings(make_facts(others=(VPN,)), "surroundings")
    assert "tun0" in found.text
    assert findings(make_facts(others=(replace(VPN, is_up=False),)), "surroundings") == []


def test_a_group_that_cannot_be_joined_is_a_problem_with_the_reason_and_the_remedy() -> None:
    refusal = "interface 'x' has no IPv4 address: give it one, or use lo (127.0.0.1), or auto"
    facts = replace(make_facts(machine={"container": "Docker"}), joined=None, refusal=refusal)
    problem, hint = judge(facts)
    assert (problem.level, problem.check) == ("problem", "joining")
    assert problem.text == "interface 'x' has no IPv4 address"
    assert problem.remedy == "give it one, or use lo (127.0.0.1), or auto"
    assert hint.check == "surroundings"


def test_a_receive_buffer_smaller_than_asked_is_a_warning() -> None:
    assert findings(make_facts(), "buffer")[0].level == "ok"
    facts = make_facts(obtained_bytes=212_992, machine={"rmem_max_bytes": 212_992})
    (found,) = findings(facts, "buffer")
    assert found.level == "warning"
    assert "212,992 bytes of 4,194,304" in found.text and "rmem_max is 212,992" in found.text
    assert found.remedy == f"sudo sysctl -w net.core.rmem_max={ASKED_BYTES}"


def test_an_interface_that_takes_datagrams_one_by_one_is_noted() -> None:
    facts = make_facts()
    assert findings(facts, "offload") == []
    joined = replace(facts.joined, one_by_one=("eth0",))
    (found,) = findings(replace(facts, joined=joined), "offload")
    assert found.level == "note"
    assert found.text.startswith("eth0 takes datagrams only one by one")


def test_a_receive_buffer_is_judged_where_the_limit_is_not_told() -> None:
    facts = make_facts(obtained_bytes=212_992, machine={"rmem_max_bytes": None})
    (found,) = findings(facts, "buffer")
    assert found.level == "warning" and "rmem_max" not in found.text


def test_the_igmp_version_is_told() -> None:
    (found,) = findings(make_facts(), "igmp")
    assert found.level == "ok" and "IGMP V3" in found.text
    assert findings(make_facts(LOOPBACK), "igmp") == []


def test_as_many_interfaces_as_may_be_joined_are_a_warning() -> None:
    (found,) = findings(make_facts(ETHERNET, OTHER, machine={"memberships_max": 2}), "igmp")[:1]
    assert found.level == "warning"
    assert "igmp_max_memberships=4" in found.remedy


@pytest.mark.parametrize(
    ("change", "level", "remedy"),
    [
        ({"snoops_unasked": True}, "warning", "mcast_querier 1"),
        ({"igmp_version": "V1"}, "warning", "force_igmp_version=2"),
        ({"reverse_path_filter": 1}, "note", "net.ipv4.conf.eth0.rp_filter=2"),
    ],
)
def test_what_keeps_a_group_from_an_interface_is_told(
    change: dict[str, object], level: str, remedy: str
) -> None:
    facts = make_facts(replace(ETHERNET, **change), machine={"default_route": "eth1"})
    (found,) = findings(facts, "igmp", level=level)
    assert remedy in found.remedy


def test_a_strict_filter_is_no_trouble_on_the_default_route_or_when_loose() -> None:
    strict = replace(ETHERNET, reverse_path_filter=1)
    assert findings(make_facts(strict), "igmp", level="note") == []
    loose = replace(ETHERNET, reverse_path_filter=2)
    assert (
        findings(make_facts(loose, machine={"default_route": "eth1"}), "igmp", level="note") == []
    )
