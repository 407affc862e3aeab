"""Facts to begin with: a machine with one cable, on which all is well and nobody is."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from jsonbus.doctor.facts import (
    Facts,
    Finding,
    InterfaceFacts,
    JoinFacts,
    MachineFacts,
    TrafficFacts,
)
from jsonbus.doctor.judge import judge

LOOPBACK = InterfaceFacts(name="lo", addresses=("127.0.0.1",), is_multicast=False)
ETHERNET = InterfaceFacts(name="eth0", addresses=("192.0.2.5",), igmp_version="V3")
OTHER = InterfaceFacts(name="eth1", addresses=("198.51.100.5",), igmp_version="V3")

ASKED_BYTES = 4_194_304


def make_facts(*chosen: InterfaceFacts, others: tuple[InterfaceFacts, ...] = (), **changes: Any):
    """Facts of a machine that has joined on the chosen interfaces, by default on its only one."""
    chosen = chosen or (ETHERNET,)
    machine = MachineFacts(
        interfaces=(LOOPBACK, *(each for each in (*chosen, *others) if each is not LOOPBACK)),
        default_route=chosen[0].name,
        rmem_max_bytes=ASKED_BYTES,
        memberships_max=20,
    )
    machine = replace(machine, **changes.pop("machine", {}))
    traffic = TrafficFacts(own_sent=10, own_heard=10, machine_drops=0, machine_drops_ever=0)
    traffic = replace(traffic, **changes.pop("traffic", {}))
    joined = JoinFacts(
        interfaces=tuple(each.name for each in chosen),
        receive_buffer_asked_bytes=ASKED_BYTES,
        receive_buffer_obtained_bytes=changes.pop("obtained_bytes", ASKED_BYTES),
    )
    facts = Facts(group="239.255.24.16", port=2416, machine=machine, traffic=traffic, joined=joined)
    return replace(facts, **changes)


def findings(facts: Facts, check: str, *, level: str | None = None) -> list[Finding]:
    """What is said about one thing."""
    return [
        each for each in judge(facts) if each.check == check and (level or each.level) == each.level
    ]
