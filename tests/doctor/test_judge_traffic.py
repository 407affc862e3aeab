from __future__ import annotations

from dataclasses import replace

import pytest

from jsonbus.core.wire.decode import CAUSES
from jsonbus.doctor.facts import NodeFacts, Rejects
from jsonbus.doctor.judge_traffic import _CAUSES
from tests.doctor.facts import LOOPBACK, findings, make_facts

HERE = NodeFacts(node="a1", name="desk", address="192.0.2.5:4711", is_here=True)
THERE = NodeFacts(node="b1", name="attic", address="192.0.2.6:4711", is_here=False)


def test_an_own_datagram_that_comes_back_is_fine() -> None:
    (found,) = findings(make_facts(), "loopback")
    assert found.level == "ok"


def test_no_own_datagram_back_is_a_problem() -> None:
    (found,) = findings(make_facts(traffic={"own_heard": 0}), "loopback")
    assert found.level == "problem"
    assert "of 10 datagrams sent to 239.255.24.16:2416 none came back" in found.text
    assert "UDP to port 2416" in found.remedy


@pytest.mark.parametrize(("own_heard", "level"), [(0, "problem"), (3, "warning")])
def test_a_refused_send_is_told_with_its_remedy(own_heard: int, level: str) -> None:
    refusal = "cannot send to 239.255.24.16:2416 on eth0 (Network is down): bring the interface up"
    facts = make_facts(traffic={"send_error": refusal, "own_heard": own_heard})
    found = findings(facts, "loopback")[0]
    assert found.level == level
    assert found.text == "cannot send to 239.255.24.16:2416 on eth0 (Network is down)"
    assert found.remedy == "bring the interface up"


def test_drops_are_warnings_while_they_happen_and_a_note_later() -> None:
    assert findings(make_facts(), "drops")[0].level == "ok"
    (own,) = findings(make_facts(traffic={"kernel_drops": 7}), "drops")
    assert own.level == "warning" and "7 datagrams" in own.text
    (now,) = findings(make_facts(traffic={"machine_drops": 8, "machine_drops_ever": 9}), "drops")
    assert now.level == "warning" and "lost 8 datagrams" in now.text and "3 s" in now.text
    (ever,) = findings(make_facts(traffic={"machine_drops_ever": 9}), "drops")
    assert ever.level == "note" and "lost 9 datagrams" in ever.text
    untold = {"machine_drops": None, "machine_drops_ever": None}
    assert findings(make_facts(traffic=untold), "drops") == []


def test_nothing_foreign_is_fine() -> None:
    (found,) = findings(make_facts(), "foreign")
    assert found.level == "ok"


def test_what_no_node_understands_is_told_by_cause_with_its_sender() -> None:
    rejected = {
        "not_json": Rejects(count=3, sender="192.0.2.9:5353", start="'\\x00\\x01'"),
        "unknown_reserved": Rejects(count=1, sender="192.0.2.8:7", start="'{'"),
    }
    strange, newer = findings(make_facts(traffic={"rejected": rejected}), "foreign")
    assert strange.level == newer.level == "warning"
    assert "3 datagrams came that no node understands (no JSON)" in strange.text
    assert "the first from 192.0.2.9:5353: '\\x00" in strange.text
    assert "another --group or --port" in strange.remedy
    assert "1 datagram came" in newer.text and "this version does not know" in newer.text
    assert "same version" in newer.remedy


def test_every_cause_has_words() -> None:
    assert _CAUSES.keys() == set(CAUSES)


def test_what_goes_to_another_group_or_to_the_machine_is_told() -> None:
    facts = make_facts(traffic={"elsewhere": {"224.1.2.3": 5, "192.0.2.5": 1}})
    unicast, group = findings(facts, "groups")
    assert "1 datagram came to port 2416 at 192.0.2.5, not at 239.255.24.16" in unicast.text
    assert "send them to 239.255.24.16" in unicast.remedy
    assert "5 datagrams came to port 2416 at 224.1.2.3" in group.text
    assert "--group 239.255.24.16" in group.remedy


def test_nodes_are_counted_here_and_elsewhere() -> None:
    facts = make_facts(nodes=(HERE, THERE), traffic={"senders": ("192.0.2.5", "192.0.2.6")})
    (found,) = findings(facts, "nodes")
    assert found.level == "ok"
    assert found.text == "2 nodes were heard (1 on this machine, 1 elsewhere): desk, attic"
    assert findings(facts, "firewall") == []


def test_many_nodes_are_not_all_named() -> None:
    nodes = tuple(replace(THERE, name=f"n{number}") for number in range(9))
    (found,) = findings(make_facts(nodes=nodes), "nodes")
    assert found.text.endswith("n0, n1, n2, n3, n4, …")


def test_a_node_that_only_others_tell_of_is_a_warning() -> None:
    facts = make_facts(nodes=(HERE, replace(THERE, address=None)))
    (found,) = findings(facts, "nodes", level="warning")
    assert "attic is on the bus, but nothing of it arrives here" in found.text
    assert "UDP port 2416" in found.remedy and "snooping" in found.remedy


def test_a_node_whose_messages_get_lost_is_a_warning() -> None:
    facts = make_facts(nodes=(replace(THERE, lost=12),))
    (found,) = findings(facts, "nodes", level="warning")
    assert "12 messages of attic were lost" in found.text


def test_own_datagrams_alone_are_a_hint_at_a_firewall() -> None:
    (found,) = findings(make_facts(nodes=(HERE,), traffic={"senders": ("192.0.2.5",)}), "firewall")
    assert found.level == "note"
    for word in ("doctor --listen", "ufw allow 2416/udp", "IGMP", "querier", "passes no router"):
        assert word in found.remedy


def test_on_loopback_nobody_else_is_missed_but_a_bus_without_nodes_is_told() -> None:
    facts = make_facts(LOOPBACK)
    assert findings(facts, "firewall") == []
    (found,) = findings(facts, "nodes")
    assert found.level == "note" and "no node was heard" in found.text
    assert findings(make_facts(LOOPBACK, nodes=(HERE,)), "nodes", level="note") == []
