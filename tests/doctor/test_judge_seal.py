from __future__ import annotations

from dataclasses import replace

import pytest

from jsonbus.doctor.facts import NodeFacts, Rejects, SealFacts
from jsonbus.doctor.judge_seal import _REFUSED
from jsonbus.sealed.keys import parse_ring
from jsonbus.sealed.opener import FRESH_S, Opener
from tests.doctor.facts import findings, make_facts
from tests.sealed.material import ring

SEAL = SealFacts(bus="plant", key="k1")
NODE = NodeFacts(node="b1", name="attic", address="192.0.2.6:4711", is_here=False)


def test_a_sealed_bus_is_told_with_its_key_and_an_open_one_is_not() -> None:
    assert findings(make_facts(), "sealing") == []
    (found,) = findings(make_facts(seal=SEAL), "sealing")
    assert (found.level, found.text) == ("ok", "the bus plant is sealed, with the key k1")


def test_what_was_not_let_in_is_told_by_cause() -> None:
    seal = replace(SEAL, refused={"datagrams_open": 1, "datagrams_forged": 2000})
    _, opened, forged = findings(make_facts(seal=seal), "sealing")
    assert opened.level == "note" and "1 datagram came" in opened.text
    assert forged.level == "warning" and "2,000 datagrams came" in forged.text


def test_every_cause_but_repeats_is_told() -> None:
    causes = Opener(parse_ring(ring()), None, bytes).figures.keys()
    assert _REFUSED.keys() == causes - {"datagrams_replayed"}


def test_sealed_datagrams_on_an_open_bus_are_told_with_the_remedy() -> None:
    rejected = {"sealed": Rejects(count=3, sender="192.0.2.9:2416", start="'\\xb5\\x01'")}
    (found,) = findings(make_facts(traffic={"rejected": rejected}), "foreign")
    assert "sealed, and this bus has no key" in found.text
    assert "--key-file" in found.remedy


@pytest.mark.parametrize(
    ("ahead_s", "sealed", "level"),
    [
        (None, True, None),
        (0.9, True, None),
        (-0.9, False, None),
        (2.0, True, "note"),
        (FRESH_S, False, "note"),
        (-FRESH_S, True, "warning"),
    ],
)
def test_a_clock_that_differs_matters_more_on_a_sealed_bus(
    ahead_s: float | None, sealed: bool, level: str | None
) -> None:
    nodes = (replace(NODE, clock_ahead_s=ahead_s),)
    found = findings(make_facts(nodes=nodes, seal=SEAL if sealed else None), "clocks")
    assert [each.level for each in found] == ([] if level is None else [level])


def test_a_clock_is_ahead_or_behind() -> None:
    ahead, behind = (replace(NODE, clock_ahead_s=each) for each in (3600.0, -2.0))
    texts = [each.text for each in findings(make_facts(nodes=(ahead, behind)), "clocks")]
    assert texts == [
        "the clock of attic is 3,600 s ahead of this machine's",
        "the clock of attic is 2 s behind this machine's",
    ]
