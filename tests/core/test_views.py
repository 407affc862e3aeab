"""What a node tells people: nodes, subscriptions, and why a publish is sent or not."""

from __future__ import annotations

import dataclasses

import pytest

from jsonbus.core.views import Explanation
from jsonbus.core.wire.encode import encode_ping
from jsonbus.errors import InvalidTopicError
from tests.core.link import Link, forge


def test_nodes_are_listed_self_first_then_by_name() -> None:
    link = Link()
    a = link.add("me")
    link.add("zoe", mode="basic")
    b = link.add("anna")
    link.subscribe(b, "t")
    link.inject(b'{"topic":"jsonbus.topics","payload":["hello"]}')
    link.run(5)
    link.publish(b, "x", 1)
    infos = a.view.nodes(link.now)
    assert [info.name for info in infos] == ["me", "anna", "plain:10.9.9.9", "zoe"]
    me, anna, plain, zoe = infos
    assert (me.is_self, me.heard_s_ago, me.address) == (True, 0.0, None)
    assert (anna.node, anna.incarnation) == (b.settings.node, b.settings.incarnation)
    assert (anna.entry_version, anna.patterns) == (b.own_entry().version, ("t",))
    assert (anna.address, anna.mode, anna.is_self, anna.is_plain) == (
        "10.0.0.3:2416",
        "delayed",
        False,
        False,
    )
    assert 0.0 <= anna.heard_s_ago <= 2.0
    assert (plain.mode, plain.is_plain, plain.address) == ("plain", True, "10.9.9.9")
    assert (zoe.mode, zoe.patterns) == ("basic", ("**",))


def test_the_clock_of_a_node_is_known_once_it_was_heard_and_followed() -> None:
    link = Link()
    a, b = link.add("a"), link.add("b")
    b.outbox.wall_offset_s += 3600.0
    link.run(5)
    me, other = a.view.nodes(link.now)
    assert me.clock_ahead_s is None
    assert other.clock_ahead_s == pytest.approx(3600.0, abs=0.1)
    assert b.view.nodes(link.now)[1].clock_ahead_s == pytest.approx(-3600.0, abs=0.1)
    b.outbox.wall_offset_s -= 3600.0  # set right, while it has nothing new to say
    link.run(30)
    assert a.view.nodes(link.now)[1].clock_ahead_s == pytest.approx(0.0, abs=0.1)


def test_nodes_show_masters_and_counts() -> None:
    link = Link()
    a = link.add("a", mode="master")
    m = link.add("m", mode="master", is_master=True)
    link.subscribe(a, "t")
    link.run(3)
    link.publish(m, "t", 1)
    link.cut_off(a)
    link.publish(m, "t", 2)
    link.heal()
    link.publish(m, "t", 3)
    _, info = a.view.nodes(link.now)
    assert (info.is_master, info.mode) == (True, "master")
    assert (info.received, info.lost) == (2, 1)


def test_subscriptions_are_sorted_and_name_every_node() -> None:
    link = Link()
    a, b = link.add("a"), link.add("b")
    link.subscribe(a, "t", "a/*")
    link.subscribe(b, "t")
    link.run(3)
    both = [a.settings.node, b.settings.node]
    assert list(a.view.subscriptions()) == ["a/*", "t"]
    assert sorted(a.view.subscriptions()["t"]) == both
    assert a.view.subscriptions()["a/*"] == [a.settings.node]


def test_explain_follows_the_node_through_its_states() -> None:
    link = Link()
    a = link.add("a")
    held = a.view.explain("t")
    assert (held.verdict, held.state) == ("held", "joining")
    assert str(held).startswith("t is held: this node is still joining")
    link.run(3)
    assert a.view.explain("t").verdict == "suppressed"
    assert str(a.view.explain("t")) == "t is suppressed: no node subscribes to it"
    link.subscribe(a, "t")
    local = a.view.explain("t")
    assert (local.verdict, local.local, local.wanted_by) == ("local", 1, ())
    b = link.add("b")
    link.subscribe(b, "*")
    link.run(3)
    sent = a.view.explain("t")
    assert (sent.verdict, sent.wanted_by) == ("sent", ("b",))
    assert str(sent) == "t is sent: wanted by b"
    a.doubt_network("the network interfaces changed", link.now)
    doubt = a.view.explain("u/v")
    assert (doubt.verdict, doubt.state) == ("sent", "doubting")
    assert "the network interfaces changed" in doubt.reason


@pytest.mark.parametrize("topic", ["t", "u"])
def test_explanation_and_publish_agree(topic: str) -> None:
    link = Link()
    a, b = link.add("a"), link.add("b")
    link.subscribe(b, "t")
    for _ in range(40):
        verdict = a.view.explain(topic).verdict
        before = a.view.stats()
        a.publish(topic, 1, link.now)
        after = a.view.stats()
        changed = {key for key in after if after[key] != before.get(key)}
        counter = {
            "sent": "messages_published",
            "held": "messages_held",
            "suppressed": "messages_suppressed",
        }[verdict]
        assert counter in changed
        link.run(0.1)


def test_mode_basic_explains_itself() -> None:
    link = Link()
    a = link.add("a", mode="basic")
    explanation = a.view.explain("t")
    assert (explanation.verdict, explanation.reason) == ("sent", "mode basic sends everything")


def test_many_names_are_summed_up() -> None:
    link = Link()
    a = link.add("a")
    for number in range(5):
        link.subscribe(link.add(f"n{number}"), "t")
    link.run(3)
    explanation = a.view.explain("t")
    assert str(explanation) == "t is sent: wanted by n0, n1, n2 and 2 more"
    assert len(explanation.wanted_by) == 5


def test_explain_wants_a_topic() -> None:
    link = Link()
    with pytest.raises(InvalidTopicError):
        link.add("a").view.explain("a/*")


def test_nodes_that_only_serve_a_topic_do_not_want_it() -> None:
    link = Link()
    a, b = link.add("a"), link.add("b")
    b.requests.serve("add", "sink", link.now)
    link.run(3)
    assert a.view.explain("add").verdict == "suppressed"


def test_views_are_frozen() -> None:
    explanation = Explanation("t", "sent", "", "sure", (), 0)
    with pytest.raises(dataclasses.FrozenInstanceError):
        explanation.topic = "u"  # type: ignore[misc]


def test_heard_s_ago_grows_with_silence_and_falls_with_any_datagram() -> None:
    link = Link()
    a, b = link.add("a"), link.add("b")
    link.run(5)
    link.remove(b)
    link.run(3)
    (info,) = [each for each in a.view.nodes(link.now) if each.name == "b"]
    assert info.heard_s_ago >= 3.0
    link.inject(
        forge(
            encode_ping,
            node=b.settings.node,
            incarnation=b.settings.incarnation,
            counter=1_000,
            ping_id=1,
        )
    )
    (info,) = [each for each in a.view.nodes(link.now) if each.name == "b"]
    assert info.heard_s_ago == 0.0


def test_what_a_node_serves_is_told_apart_from_what_it_wants() -> None:
    link = Link()
    a = link.add("a")
    link.subscribe(a, "x/*", "y")
    a.requests.serve("add", "service", link.now)
    (info,) = a.view.nodes(link.now)
    assert info.patterns == ("jsonbus.request/add", "x/*", "y")
    assert (info.wants, info.serves) == (("x/*", "y"), ("add",))
