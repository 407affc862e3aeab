"""Judges a sealed bus: whether it is one, and what was not let in; and the clocks of its nodes."""

from __future__ import annotations

from collections.abc import Iterator

from .facts import Facts, Finding

#: The way of a datagram takes far less; a clock that is set by a network differs by less.
CLOCK_S = 1.0

#: Half of what a sealed bus takes without asking (sealed/opener.py).
CLOCK_SEALED_S = 30.0

#: Cause -> level, what came, what to do. What comes again is normal: with two interfaces, all does.
_REFUSED = {
    "datagrams_open": (
        "note",
        "that were not sealed, so no node here heard them",
        "give their nodes the key file (--key-file), and let plain senders use a gateway",
    ),
    "datagrams_foreign": (
        "note",
        "that were sealed with another key",
        "if they are of this bus, compare jsonbus keygen --show on both machines",
    ),
    "datagrams_forged": (
        "warning",
        "that were changed on their way, or made by somebody without the key",
        "find out who else is on this network",
    ),
    "datagrams_stale": (
        "warning",
        "of another time: a clock is wrong, or somebody plays back a recording",
        "set the clocks of all machines, such as by NTP",
    ),
    "datagrams_unproven": (
        "warning",
        "that were not looked at, because too many unknown senders sent some",
        "find out who else is on this network: it is being flooded",
    ),
}


def judge_seal(facts: Facts) -> Iterator[Finding]:
    if facts.seal is None:
        return
    text = f"the bus {facts.seal.bus} is sealed, with the key {facts.seal.key}"
    yield Finding("ok", "sealing", text)
    for cause, (level, what, remedy) in _REFUSED.items():
        count = facts.seal.refused.get(cause, 0)
        if count:
            text = f"{count:,} datagram{'s' * (count > 1)} came {what}"
            yield Finding(level, "sealing", text, remedy)


def judge_clocks(facts: Facts) -> Iterator[Finding]:
    for node in facts.nodes:
        ahead_s = node.clock_ahead_s
        if ahead_s is None or abs(ahead_s) < CLOCK_S:
            continue
        level, remedy = "note", "set the clocks of both machines, such as by NTP"
        if facts.seal is not None and abs(ahead_s) >= CLOCK_SEALED_S:
            level = "warning"
            remedy += ": on a sealed bus, a node whose clock is off is heard some seconds late"
        where = "ahead of" if ahead_s > 0 else "behind"
        text = f"the clock of {node.name} is {abs(ahead_s):,.0f} s {where} this machine's"
        yield Finding(level, "clocks", text, remedy)
