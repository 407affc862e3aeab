"""Judges what came in: the doctor's own datagrams, drops, strangers, nodes."""

from __future__ import annotations

from collections.abc import Iterator

from .facts import Facts, Finding

#: The meaning of each cause, in words for people who did not write it.
_CAUSES = {
    "not_json": "no JSON",
    "sealed": "sealed, and this bus has no key",
    "not_object": "JSON, but no object",
    "no_topic": "without a topic",
    "no_payload": "without a payload",
    "bad_topic": "with a topic that is none",
    "bad_header": "with a header (jb) that is none",
    "bad_list": "with a subscription list that is none",
    "bad_fields": "with wrong fields",
    "too_deep": "nested too deeply",
    "too_large": "too large",
    "unknown_reserved": "of a kind that this version does not know",
}

#: What to do where it is not a program that is wrong.
_REMEDIES = {
    "sealed": "to take part, copy its key file here and name it with --key-file",
    "unknown_reserved": "a node there is newer: bring all nodes to the same version",
}


def judge_loopback(facts: Facts) -> Iterator[Finding]:
    traffic = facts.traffic
    where = f"{facts.group}:{facts.port}"
    if traffic.send_error is not None:
        # Like all errors of the transport: what is wrong, a colon, what to do.
        text, _, remedy = traffic.send_error.rpartition(": ")
        level = "warning" if traffic.own_heard else "problem"
        yield Finding(level, "loopback", text or remedy, remedy)
    if traffic.own_heard:
        yield Finding("ok", "loopback", f"what this machine sends to {where} comes back to it")
    elif traffic.own_sent:
        text = f"of {traffic.own_sent} datagrams sent to {where} none came back"
        remedy = (
            f"let in UDP to port {facts.port} from this machine too: "
            "sudo iptables -S and sudo nft list ruleset show what forbids it"
        )
        yield Finding("problem", "loopback", text, remedy)


def judge_drops(facts: Facts) -> Iterator[Finding]:
    traffic = facts.traffic
    larger = "give the programs larger buffers (JSONBUS_RECEIVE_BUFFER_BYTES), or more time to read"
    if traffic.kernel_drops:
        text = f"{traffic.kernel_drops:,} datagrams found the receive buffer of the doctor full"
        yield Finding("warning", "drops", text, larger)
    if traffic.machine_drops:
        text = (
            f"programs of this machine lost {traffic.machine_drops:,} datagrams to full receive "
            f"buffers within {facts.duration_s:g} s"
        )
        yield Finding("warning", "drops", text, larger)
    elif traffic.machine_drops_ever:
        text = (
            f"programs of this machine lost {traffic.machine_drops_ever:,} datagrams to full "
            "receive buffers since it started, none of them now"
        )
        remedy = "see kernel_drops in bus.stats() whether they were yours"
        yield Finding("note", "drops", text, remedy)
    elif traffic.machine_drops is not None and not traffic.kernel_drops:
        yield Finding("ok", "drops", "no datagram was lost to a full receive buffer")


def judge_foreign(facts: Facts) -> Iterator[Finding]:
    traffic = facts.traffic
    for cause, rejects in sorted(traffic.rejected.items()):
        yield Finding(
            "warning",
            "foreign",
            f"{_datagrams(rejects.count)} came that no node understands "
            f"({_CAUSES.get(cause, cause)}), the first from {rejects.sender}: {rejects.start}",
            _REMEDIES.get(cause)
            or f"find the program that sends to {facts.group}:{facts.port} there and correct it; "
            "if it is none of yours, use another --group or --port",
        )
    for address, count in sorted(traffic.elsewhere.items()):
        text = f"{_datagrams(count)} came to port {facts.port} at {address}, not at {facts.group}"
        remedy = (
            f"if they were meant for this bus: nodes there need --group {facts.group}"
            if _is_group(address)
            else f"if they were meant for this bus: send them to {facts.group} instead"
        )
        yield Finding("warning", "groups", text, remedy)
    if not traffic.rejected and not traffic.elsewhere:
        text = f"nothing foreign came to {facts.group}:{facts.port} within {facts.duration_s:g} s"
        yield Finding("ok", "foreign", text)


def judge_nodes(facts: Facts) -> Iterator[Finding]:
    heard = [each for each in facts.nodes if each.address is not None]
    unheard = [each for each in facts.nodes if each.address is None]
    if heard:
        there = sum(not each.is_here for each in heard)
        here = len(heard) - there
        names = ", ".join(each.name for each in heard[:5]) + (", …" if len(heard) > 5 else "")
        text = f"{_nodes(len(heard))} heard ({here} on this machine, {there} elsewhere): {names}"
        yield Finding("ok", "nodes", text)
    for node in unheard:
        text = f"{node.name} is on the bus, but nothing of it arrives here: only others tell of it"
        remedy = (
            f"let UDP port {facts.port} in on this machine, and check the switch between the two "
            "for IGMP snooping without a querier"
        )
        yield Finding("warning", "nodes", text, remedy)
    for node in heard:
        if node.lost:
            text = f"{node.lost:,} messages of {node.name} were lost within {facts.duration_s:g} s"
            remedy = "run jsonbus doctor --listen there and jsonbus doctor here, to see where"
            yield Finding("warning", "nodes", text, remedy)
    if not facts.hears_others and not facts.is_local:
        yield _judge_silence(facts)
    elif not heard and not facts.listeners:
        text = f"no node was heard on {facts.group}:{facts.port}"
        remedy = "start one, with the same --group and --port: jsonbus node"
        yield Finding("note", "nodes", text, remedy)


def _judge_silence(facts: Facts) -> Finding:
    """Judge silence; only other machines count, our own datagrams are judged elsewhere."""
    port = facts.port
    text = f"nothing came from another machine within {facts.duration_s:g} s"
    remedy = (
        "if others are there (start jsonbus doctor --listen on one), let in UDP port "
        f"{port} and IGMP: sudo ufw allow {port}/udp, or sudo firewall-cmd --add-port={port}/udp; "
        "a switch with IGMP snooping needs a querier; "
        f"with --ttl {facts.ttl} a datagram passes {_routers(facts.ttl - 1)}"
    )
    return Finding("note", "firewall", text, remedy)


def _datagrams(count: int) -> str:
    return "1 datagram" if count == 1 else f"{count:,} datagrams"


def _nodes(count: int) -> str:
    return "1 node was" if count == 1 else f"{count} nodes were"


def _routers(count: int) -> str:
    return "no router" if count <= 0 else f"{count} router{'s' * (count > 1)}"


def _is_group(address: str) -> bool:
    return 224 <= int(address.partition(".")[0]) <= 239
