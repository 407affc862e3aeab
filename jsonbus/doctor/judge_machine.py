"""Judges the machine: interfaces, where the program runs, IGMP, the receive buffer."""

from __future__ import annotations

from collections.abc import Iterator

from .facts import Facts, Finding, InterfaceFacts
from .surroundings import is_container_bridge, is_tunnel, is_wireless

AUTO = "auto"


def judge_interfaces(facts: Facts) -> Iterator[Finding]:
    for interface in facts.chosen:
        yield _judge_interface(interface, facts)
    if facts.joined is not None:
        names = ", ".join(facts.joined.interfaces)
        yield Finding("ok", "joining", f"{facts.group}:{facts.port} is joined by {names}")
    others = _alternatives(facts)
    if others and facts.choices == (AUTO,) and not facts.is_local:
        text = f"this machine is on other networks too: {_named(others)}"
        remedy = f"to use one of them: --interface {others[0].name}; repeat it to use several"
        yield Finding("note", "interface", text, remedy)
    if facts.ttl == 0 and not facts.is_local:
        text = "with TTL 0 no datagram leaves this machine"
        remedy = "leave out --ttl: 1 is enough for the local network"
        yield Finding("warning", "interface", text, remedy)
    if any(is_wireless(each.name) for each in facts.chosen):
        text = "the network is wireless, where multicast is slow and not confirmed"
        remedy = (
            "put publishers on cable; in the access point switch client isolation off and "
            '"multicast to unicast" on'
        )
        yield Finding("note", "interface", text, remedy)


def _judge_interface(interface: InterfaceFacts, facts: Facts) -> Finding:
    shown = f"{interface.name} ({', '.join(interface.addresses) or 'no address'})"
    elsewhere = _alternatives(facts)
    other = f"--interface {elsewhere[0].name}" if elsewhere else "--interface NAME"
    if not interface.is_up:
        remedy = f"sudo ip link set {interface.name} up, or choose another: {other}"
        return Finding("problem", "interface", f"{shown} is down", remedy)
    if not interface.addresses:
        remedy = f"give it an address, or choose another: {other}"
        return Finding("problem", "interface", f"{shown} has no IPv4 address", remedy)
    if interface.is_loopback:
        text = f"{shown} is loopback: only programs of this machine are heard"
        remedy = f"leave out --interface, or name the one to the network: {other}"
        return Finding("note", "interface", text, remedy)
    if not interface.is_multicast:
        remedy = f"sudo ip link set {interface.name} multicast on, or choose another: {other}"
        return Finding("problem", "interface", f"{shown} does not carry multicast", remedy)
    if not interface.has_carrier:
        remedy = f"plug in the cable or join the Wi-Fi network, or choose another: {other}"
        return Finding("problem", "interface", f"{shown} has no carrier", remedy)
    kind = (
        "a VPN"
        if is_tunnel(interface.name)
        else "a bridge to containers of this machine"
        if is_container_bridge(interface.name)
        else None
    )
    if kind is not None:
        reason = " and was chosen for the default route" if facts.choices == (AUTO,) else ""
        text = f"{shown} looks like {kind}{reason}: the local network is not behind it"
        remedy = f"name the interface to the local network: {other}"
        return Finding("warning", "interface", text, remedy)
    return Finding("ok", "interface", f"{shown} is up and carries multicast")


def judge_surroundings(facts: Facts) -> Iterator[Finding]:
    """Judge only what may explain why others are not heard; on loopback nobody else is meant to
    be.
    """
    if facts.is_local or facts.hears_others:
        return
    machine = facts.machine
    # Notes, because hearing nobody is not a problem by itself: the others may not have been
    # started.
    if machine.container is not None:
        text = f"this is a container ({machine.container}), whose own network carries no multicast"
        remedy = "start it with --network host; in Kubernetes with hostNetwork: true"
        yield Finding("note", "surroundings", text, remedy)
    if machine.is_wsl:
        text = "this is Linux inside Windows (WSL), whose network is behind NAT by default"
        remedy = (
            "set networkingMode=mirrored in .wslconfig, and let UDP in through Windows' firewall"
        )
        yield Finding("note", "surroundings", text, remedy)
    if machine.virtual_machine is not None:
        text = (
            f"this is a virtual machine ({machine.virtual_machine}), and behind NAT hears nothing"
        )
        remedy = "give it a bridged network; in a cloud, multicast is rarely to be had"
        yield Finding("note", "surroundings", text, remedy)
    tunnels = [each.name for each in machine.interfaces if each.is_up and is_tunnel(each.name)]
    if tunnels:
        text = f"a VPN is up ({', '.join(tunnels)}); some cut off the local network"
        remedy = "allow the local network in the VPN's settings, or end it and try again"
        yield Finding("note", "surroundings", text, remedy)


def judge_igmp(facts: Facts) -> Iterator[Finding]:
    chosen = [each for each in facts.chosen if not each.is_loopback]
    limit = facts.machine.memberships_max
    if limit is not None and len(facts.chosen) >= limit:
        text = f"{len(facts.chosen)} interfaces are joined, the most that a socket may join"
        remedy = f"sudo sysctl -w net.ipv4.igmp_max_memberships={2 * limit}"
        yield Finding("warning", "igmp", text, remedy)
    for interface in chosen:
        if interface.snoops_unasked:
            yield Finding(
                "warning",
                "igmp",
                f"{interface.name} is a bridge with IGMP snooping and without a querier: it stops "
                "forwarding the group after some minutes",
                f"sudo ip link set {interface.name} type bridge mcast_querier 1, "
                "or mcast_snooping 0",
            )
        if interface.igmp_version == "V1":
            text = f"{interface.name} speaks IGMP version 1, in which nobody can leave a group"
            remedy = (
                "replace the querier that asks for it, or set "
                f"net.ipv4.conf.{interface.name}.force_igmp_version=2"
            )
            yield Finding("warning", "igmp", text, remedy)
        if interface.reverse_path_filter == 1 and interface.name != facts.machine.default_route:
            yield Finding(
                "note",
                "igmp",
                f"{interface.name} filters strictly by reverse path: what comes from outside its "
                "own subnet is dropped",
                f"sudo sysctl -w net.ipv4.conf.{interface.name}.rp_filter=2, and the same for all",
            )
    versions = sorted({each.igmp_version for each in chosen if each.igmp_version})
    if versions:
        speaks = f"IGMP {' and '.join(versions)} asks the network for the group"
        yield Finding("ok", "igmp", f"{speaks}; a socket may join {limit or 'many'} groups")


def judge_offload(facts: Facts) -> Iterator[Finding]:
    if facts.joined is not None and facts.joined.one_by_one:
        names = ", ".join(facts.joined.one_by_one)
        text = f"{names} takes datagrams only one by one: much to send costs more CPU"
        remedy = "use Linux 5.0 or later, an MTU of at least 1428, and no sandbox that forbids it"
        yield Finding("note", "offload", text, remedy)


def judge_buffer(facts: Facts) -> Iterator[Finding]:
    joined = facts.joined
    if joined is None:
        return
    asked, obtained = joined.receive_buffer_asked_bytes, joined.receive_buffer_obtained_bytes
    if obtained >= asked:
        yield Finding("ok", "buffer", f"the receive buffer has the {asked:,} bytes asked for")
        return
    limit = facts.machine.rmem_max_bytes
    reason = "" if limit is None else f"; net.core.rmem_max is {limit:,}"
    text = (
        f"the receive buffer has {obtained:,} bytes of {asked:,} asked for{reason}: bursts may be "
        "lost"
    )
    remedy = f"sudo sysctl -w net.core.rmem_max={asked}"
    yield Finding("warning", "buffer", text, remedy)


def _alternatives(facts: Facts) -> list[InterfaceFacts]:
    """Return interfaces that were not chosen and lead to a network."""
    chosen = {each.name for each in facts.chosen}
    return [
        each
        for each in facts.machine.interfaces
        if each.name not in chosen
        and each.is_up
        and each.has_carrier
        and each.is_multicast
        and each.addresses
        and not each.is_loopback
        and not is_tunnel(each.name)
        and not is_container_bridge(each.name)
    ]


def _named(interfaces: list[InterfaceFacts]) -> str:
    return ", ".join(f"{each.name} ({each.addresses[0]})" for each in interfaces)
