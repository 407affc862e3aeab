from __future__ import annotations

from pathlib import Path

from jsonbus.doctor.machine import (
    count_machine_drops,
    igmp_versions,
    parse_machine_drops,
    survey_machine,
)

SNMP = """\
Ip: Forwarding DefaultTTL
Ip: 1 64
Udp: InDatagrams NoPorts InErrors OutDatagrams RcvbufErrors SndbufErrors
Udp: 37720 0 924 924477 2182 0
UdpLite: InDatagrams NoPorts InErrors OutDatagrams RcvbufErrors SndbufErrors
UdpLite: 0 0 0 0 7 0
"""
IGMP = """\
Idx	Device    : Count Querier	Group    Users Timer	Reporter
1	lo        :     1      V3
				010000E0     1 0:00000000		0
4	eth0      :     2      V2
				1018FFEF     1 0:00000000		0
"""


def write(root: Path, path: str, text: str) -> None:
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(text)


def test_a_system_that_tells_nothing_has_interfaces_all_the_same(tmp_path: Path) -> None:
    machine = survey_machine(tmp_path)
    (loopback,) = [each for each in machine.interfaces if each.name == "lo"]
    assert "127.0.0.1" in loopback.addresses and loopback.is_loopback
    assert loopback.igmp_version is None and loopback.reverse_path_filter is None
    assert machine.rmem_max_bytes is machine.memberships_max is machine.container is None
    assert count_machine_drops(tmp_path) is None


def test_what_a_system_tells_is_read(tmp_path: Path) -> None:
    for path, text in {
        "proc/sys/net/core/rmem_max": "212992\n",
        "proc/sys/net/ipv4/igmp_max_memberships": "20\n",
        "proc/sys/net/ipv4/conf/all/rp_filter": "1\n",
        "proc/sys/net/ipv4/conf/lo/rp_filter": "0\n",
        "proc/net/igmp": IGMP,
        "proc/net/snmp": SNMP,
        "proc/version": "Linux version 5.15-microsoft",
        ".dockerenv": "",
        "sys/class/dmi/id/sys_vendor": "QEMU\n",
        "sys/class/net/lo/bridge/multicast_snooping": "1\n",
        "sys/class/net/lo/bridge/multicast_querier": "0\n",
    }.items():
        write(tmp_path, path, text)
    machine = survey_machine(tmp_path)
    assert (machine.rmem_max_bytes, machine.memberships_max) == (212_992, 20)
    assert (machine.container, machine.virtual_machine, machine.is_wsl) == ("Docker", "QEMU", True)
    (loopback,) = [each for each in machine.interfaces if each.name == "lo"]
    assert (loopback.igmp_version, loopback.reverse_path_filter) == ("V3", 1)
    assert loopback.snoops_unasked
    assert count_machine_drops(tmp_path) == 2182


def test_igmp_versions_are_told_by_interface() -> None:
    assert igmp_versions(IGMP) == {"lo": "V3", "eth0": "V2"}
    assert igmp_versions("nonsense") == {}


def test_numbers_that_are_not_there_are_not_made_up() -> None:
    assert parse_machine_drops(SNMP) == 2182
    for text in ("", "Udp: InDatagrams\nUdp: 1\n", "Udp: RcvbufErrors\nUdp: x\n", "Udp: a\n"):
        assert parse_machine_drops(text) is None
