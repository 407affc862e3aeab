"""Computes figures from echoes and answers: what was lost, where, and how long the way took."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from statistics import median

from .echo import SIZES_BYTES, SMALL_BYTES, Answer, Asker
from .facts import ListenerFacts, SizeFacts

THERE = "there"
BACK = "back"


def figures_of(asker: Asker, node: str, own_addresses: Collection[str]) -> ListenerFacts:
    """Return what was measured with one listener."""
    listener, sizes = asker.listeners[node], asker.sizes
    last = min(asker.series_to, len(sizes))
    measured = range(listener.series_from, last + 1) if listener.series_from else range(0)
    fates = find_fates(len(sizes), listener.answers)
    small = [
        each.round_trip_s * 1_000
        for echo_id, each in listener.answers.items()
        if sizes[echo_id - 1] == SMALL_BYTES
    ]
    return ListenerFacts(
        node=node,
        name=listener.name or node,
        address=listener.address,
        is_here=listener.address in own_addresses,
        sizes=tuple(
            _size_facts(size, [each for each in measured if sizes[each - 1] == size], fates)
            for size in SIZES_BYTES
        ),
        round_trip_median_ms=median(small) if small else None,
        round_trip_max_ms=max(small) if small else None,
        repeated_there=listener.repeated_there,
        repeated_back=listener.repeated_back,
    )


def find_fates(count: int, answers: Mapping[int, Answer]) -> dict[int, str | None]:
    """Return where each of `count` echoes without an answer got lost; None if unknown.

    Between two answered echoes, the other side's count shows how many of those in between it heard.
    If it heard some but not all, it is unknown which; so is everything after the last answer.
    """
    fates: dict[int, str | None] = {}
    before, heard_before = 0, 0
    for echo_id in sorted(answers):
        gap = range(before + 1, echo_id)
        heard = answers[echo_id].heard - heard_before - 1
        fate = THERE if heard <= 0 else BACK if heard >= len(gap) else None
        # Before the first answer, it may not have listened yet.
        fates.update(dict.fromkeys(gap, fate if before else None))
        before, heard_before = echo_id, answers[echo_id].heard
    fates.update(dict.fromkeys(range(before + 1, count + 1), None))
    return fates


def _size_facts(size: int, echo_ids: Sequence[int], fates: Mapping[int, str | None]) -> SizeFacts:
    lost = [fates[each] for each in echo_ids if each in fates]
    return SizeFacts(
        size_bytes=size,
        sent=len(echo_ids),
        answered=len(echo_ids) - len(lost),
        lost_there=lost.count(THERE),
        lost_back=lost.count(BACK),
    )
