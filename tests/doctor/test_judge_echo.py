from __future__ import annotations

from typing import Any

import pytest

from jsonbus.doctor.echo import SIZES_BYTES
from jsonbus.doctor.facts import Finding, ListenerFacts, SizeFacts
from jsonbus.doctor.judge_echo import judge_listener


def measured(special: list[SizeFacts] | None = None, **changes: Any) -> dict[str, list[Finding]]:
    """Findings by what they are about, of a listener that answered all unless told otherwise."""
    by_size = {each.size_bytes: each for each in special or []}
    full = [
        by_size.get(size, SizeFacts(size_bytes=size, sent=4, answered=4)) for size in SIZES_BYTES
    ]
    facts = {
        "node": "b1",
        "name": "attic",
        "address": "192.0.2.6",
        "is_here": False,
        "sizes": tuple(full),
        "round_trip_median_ms": 0.25,
        "round_trip_max_ms": 1.5,
        **changes,
    }
    findings: dict[str, list[Finding]] = {}
    for each in judge_listener(ListenerFacts(**facts)):
        findings.setdefault(each.check, []).append(each)
    return findings


def failed(size: int, **where: int) -> SizeFacts:
    return SizeFacts(size_bytes=size, sent=4, answered=0, **where)


def test_an_echo_without_loss_is_fine() -> None:
    found = measured()
    (echo,) = found["echo"]
    assert echo.level == "ok"
    assert echo.text == (
        "attic (192.0.2.6) answered 4 of 4 echoes, round trip 0.250 ms, at most 1.500 ms"
    )
    (size,) = found["size"]
    assert size.level == "ok" and "65,507 bytes pass" in size.text


@pytest.mark.parametrize(
    ("answered", "there", "back", "level", "text", "remedy"),
    [
        (95, 5, 0, "warning", "5 lost on the way there", "192.0.2.6 receives"),
        (95, 0, 5, "warning", "5 lost on the way back", "this machine receives"),
        (94, 3, 3, "warning", "3 lost on the way there, 3 lost on the way back", "between the two"),
        (50, 50, 0, "problem", "answered 50 of 100", "192.0.2.6 receives"),
        (95, 0, 0, "warning", "answered 95 of 100", "between the two"),
    ],
)
def test_loss_is_told_with_the_direction(
    answered: int, there: int, back: int, level: str, text: str, remedy: str
) -> None:
    small = SizeFacts(size_bytes=200, sent=100, answered=answered, lost_there=there, lost_back=back)
    (echo,) = measured([small])["echo"]
    assert echo.level == level
    assert text in echo.text and remedy in echo.remedy


def test_a_listener_that_is_heard_but_never_answers_does_not_hear() -> None:
    sizes = tuple(failed(size) for size in SIZES_BYTES)
    found = measured(sizes=sizes, round_trip_median_ms=None, round_trip_max_ms=None)
    (echo,) = found["echo"]
    assert echo.level == "problem"
    assert "answered none of 4 echoes" in echo.text
    assert "what this machine sends does not arrive there" in echo.text
    assert "192.0.2.6" in echo.remedy
    assert "size" not in found


def test_a_listener_that_came_too_late_is_told() -> None:
    (echo,) = measured(sizes=())["echo"]
    assert echo.level == "note" and "--timeout 10" in echo.remedy


def test_repeats_are_told_for_both_ways() -> None:
    note = measured(repeated_there=3, repeated_back=2)["echo"][1]
    assert note.level == "note"
    assert "3 at attic (192.0.2.6), 2 here" in note.text


@pytest.mark.parametrize(
    ("size", "level", "passed", "remedy"),
    [
        (1_400, "problem", "200 do", "JSONBUS_DATAGRAM_BYTES_MAX=1200"),
        (1_472, "note", "1,400 do", "tunnel"),
        (8_000, "warning", "1,472 do", "fragments"),
        (65_507, "warning", "32,000 do", "fragments"),
    ],
)
def test_the_size_from_which_on_datagrams_get_lost_is_told(
    size: int, level: str, passed: str, remedy: str
) -> None:
    sizes = [failed(each, lost_there=4) for each in SIZES_BYTES if each >= size]
    (found,) = measured(sizes)["size"]
    assert found.level == level
    assert f"{size:,} bytes do not pass; 4 lost on the way there; {passed}" in found.text
    assert remedy in found.remedy


def test_large_datagrams_that_get_lost_by_chance_are_told_as_such() -> None:
    small = SizeFacts(size_bytes=200, sent=100, answered=90, lost_there=5, lost_back=5)
    (found,) = measured([small, failed(65_507)])["size"]
    assert found.level == "note"
    assert "all of its 45 fragments have to arrive, which the loss prevents" in found.text


def test_sizes_that_were_not_sent_are_not_judged() -> None:
    sizes = [SizeFacts(size_bytes=each, sent=0, answered=0) for each in SIZES_BYTES[3:]]
    (found,) = measured(sizes)["size"]
    assert found.level == "ok" and "1,472 bytes" in found.text
