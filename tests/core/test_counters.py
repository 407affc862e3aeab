"""Every counter by its name."""

from __future__ import annotations

from jsonbus.core.counters import Counters
from tests.core.link import Link


def test_counters_start_at_zero_and_are_flat() -> None:
    counts = Counters().as_dict()
    assert set(counts.values()) == {0}
    assert all(isinstance(name, str) for name in counts)


def test_rejects_are_summed_and_listed_by_cause() -> None:
    counters = Counters()
    for cause in ("not_json", "bad_list", "not_json"):
        counters.reject(cause)
    counts = counters.as_dict()
    assert counts["datagrams_rejected"] == 3
    assert (counts["rejected_not_json"], counts["rejected_bad_list"]) == (2, 1)
    assert "rejected" not in counts


def test_stats_tell_what_went_out_and_came_in() -> None:
    link = Link()
    a, b = link.add("a"), link.add("b")
    link.subscribe(b, "t")
    link.run(5)
    link.publish(a, "t", 1, 2, 3)
    sent, received = a.view.stats(), b.view.stats()
    assert (sent["messages_published"], sent["messages_sent"]) == (3, 3)
    assert (received["messages_received"], received["messages_delivered"]) == (3, 3)
    assert received["messages_lost"] == 0
    assert sent["nodes_known"] == received["nodes_known"] == 2
    assert sent["datagrams_sent"] == len([name for name, _, _ in link.sent if name == "a"])
    of_a = [
        data for (name, _, _), data in zip(link.sent, link.datagrams, strict=True) if name == "a"
    ]
    assert received["bytes_received"] >= sum(map(len, of_a))


def test_stats_tell_what_the_protocol_costs() -> None:
    link = Link()
    link.add("a", share_delay_s=0.0)
    link.run(5)
    link.add("b")
    link.run(5)
    stats = link.nodes[0].view.stats()
    assert stats["announcements_sent"] == 4
    assert stats["list_shares_sent"] == 1
    assert stats["presences_sent"] >= 3


def test_stats_are_a_copy() -> None:
    link = Link()
    a = link.add("a")
    a.view.stats()["messages_published"] = 99
    assert a.view.stats()["messages_published"] == 0
