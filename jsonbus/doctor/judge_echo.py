"""Judges the echo between two hosts."""

from __future__ import annotations

from collections.abc import Iterator

from .facts import Finding, ListenerFacts, SizeFacts

#: The most that nodes put into a datagram by default.
NODE_DATAGRAM_BYTES = 1_400
#: What Ethernet carries in one piece: 1,500 less 20 (IP) and 8 (UDP) bytes of headers.
ETHERNET_BYTES = 1_472
#: Bytes of each IP fragment of a larger datagram.
FRAGMENT_BYTES = 1_480
#: Loss of small echoes. Below, values that are followed by newer ones are well served.
LOSS_BAD = 0.2
#: If an echo and its answer arrive more rarely than this, all may well be lost by chance.
CHANCE_MIN = 0.5

_BOTH = "the firewalls of both machines, and the switch between them (IGMP snooping, a querier)"


def judge_listener(listener: ListenerFacts) -> Iterator[Finding]:
    """Judge loss, round trip, repeats and sizes, each in a separate finding."""
    if not listener.sizes or not listener.sizes[0].sent:
        text = f"{_shown(listener)} answers echoes, but was heard too late to measure"
        remedy = "run it again, with more time: --timeout 10"
        yield Finding("note", "echo", text, remedy)
        return
    if not any(size.answered for size in listener.sizes):
        text = (
            f"{_shown(listener)} is heard here, but answered none of {listener.sizes[0].sent} "
            "echoes: what this machine sends does not arrive there"
        )
        remedy = f"let UDP in on {listener.address}, and out here; look at {_BOTH}"
        yield Finding("problem", "echo", text, remedy)
        return
    yield _judge_loss(listener)
    yield from _judge_repeats(listener)
    yield _judge_sizes(listener)


def _judge_loss(listener: ListenerFacts) -> Finding:
    small = listener.sizes[0]
    lost = small.sent - small.answered
    trip = ""
    if listener.round_trip_median_ms is not None and listener.round_trip_max_ms is not None:
        trip = (
            f", round trip {listener.round_trip_median_ms:.3f} ms, "
            f"at most {listener.round_trip_max_ms:.3f} ms"
        )
    text = f"{_shown(listener)} answered {small.answered} of {small.sent} echoes{trip}"
    if not lost:
        return Finding("ok", "echo", text)
    level = "problem" if lost > LOSS_BAD * small.sent else "warning"
    return Finding(level, "echo", f"{text}{_where(small)}", _loss_remedy(small, listener))


def _where(size: SizeFacts) -> str:
    """Describe where echoes got lost, as far as it is known."""
    parts = [
        f"{count} lost on the way {way}"
        for count, way in ((size.lost_there, "there"), (size.lost_back, "back"))
        if count
    ]
    return f"; {', '.join(parts)}" if parts else ""


def _loss_remedy(size: SizeFacts, listener: ListenerFacts) -> str:
    if size.lost_there > 2 * size.lost_back:
        return f"look at what {listener.address} receives by: its cable, its Wi-Fi, its firewall"
    if size.lost_back > 2 * size.lost_there:
        return "look at what this machine receives by: its cable, its Wi-Fi, its firewall"
    return "look at cables and Wi-Fi between the two; send less: --rate-limit"


def _judge_repeats(listener: ListenerFacts) -> Iterator[Finding]:
    there, back = listener.repeated_there, listener.repeated_back
    if there or back:
        yield Finding(
            "note",
            "echo",
            f"datagrams came more than once: {there} at {_shown(listener)}, {back} here; nodes "
            "drop repeats, plain programs do not",
            "two interfaces on one network need only one --interface; else look for a loop of "
            "bridges or switches",
        )


def _judge_sizes(listener: ListenerFacts) -> Finding:
    """Judge the largest size up to which all sizes passed, because they fail from some size on."""
    passed = 0
    failed: SizeFacts | None = None
    for size in listener.sizes:
        if not size.sent:
            continue
        if not size.answered:
            failed = size
            break
        passed = size.size_bytes
    if failed is None:
        return Finding("ok", "size", f"datagrams of up to {passed:,} bytes pass, both ways")
    text = f"datagrams of {failed.size_bytes:,} bytes do not pass{_where(failed)}; {passed:,} do"
    if failed.size_bytes <= NODE_DATAGRAM_BYTES:
        remedy = (
            "raise the MTU of the interfaces or tunnels between the two, or set "
            "JSONBUS_DATAGRAM_BYTES_MAX=1200 for all nodes"
        )
        return Finding("problem", "size", text, remedy)
    if failed.size_bytes <= ETHERNET_BYTES:
        remedy = "a tunnel is between the two: keep messages below 1,400 bytes, as nodes do"
        return Finding("note", "size", text, remedy)
    small = listener.sizes[0]
    fragments = -(-failed.size_bytes // FRAGMENT_BYTES)
    if (small.answered / small.sent) ** fragments < CHANCE_MIN:
        text = f"{text}: all of its {fragments} fragments have to arrive, which the loss prevents"
        remedy = "keep messages below 1,400 bytes, or end the loss"
        return Finding("note", "size", text, remedy)
    remedy = (
        "something between the two drops IP fragments: keep messages below 1,400 bytes, or let "
        "the firewalls pass fragments"
    )
    return Finding("warning", "size", text, remedy)


def _shown(listener: ListenerFacts) -> str:
    return f"{listener.name} ({listener.address})"
