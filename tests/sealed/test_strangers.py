"""The limit of work for strangers, per source and in all."""

from __future__ import annotations

from jsonbus.sealed.strangers import BURST, RATE, SOURCES_MAX, StrangerLimit


def allowed(limit: StrangerLimit, source: str, now: float, tries: int = 10_000) -> int:
    return sum(limit.allows(source, now) for _ in range(tries))


def test_a_source_has_a_burst_and_then_its_rate() -> None:
    limit = StrangerLimit()
    assert allowed(limit, "10.0.0.1", 0.0) == BURST
    assert allowed(limit, "10.0.0.1", 1.0) == RATE
    assert allowed(limit, "10.0.0.1", 1000.0) == BURST


def test_a_source_does_not_use_up_what_another_one_has() -> None:
    limit = StrangerLimit()
    allowed(limit, "10.0.0.1", 0.0)
    assert limit.allows("10.0.0.2", 0.0)


def test_more_sources_than_are_told_apart_share_one_allowance() -> None:
    limit = StrangerLimit()
    total = sum(limit.allows(f"source {number}", 0.0) for number in range(100_000))
    assert total == SOURCES_MAX + BURST
    assert len(limit) <= SOURCES_MAX + 1


def test_a_source_that_has_its_whole_allowance_again_makes_room() -> None:
    limit = StrangerLimit()
    for number in range(SOURCES_MAX):
        limit.allows(f"source {number}", 0.0)
    allowed(limit, "one more", 0.0)
    assert not limit.allows("another one", 0.0)
    assert limit.allows("another one", 2.0)
    assert len(limit) < SOURCES_MAX
