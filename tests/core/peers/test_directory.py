"""Where nodes are: who is found, and who answers when it is asked for."""

from __future__ import annotations

import pytest

from jsonbus.core.limits import INTRODUCED_S
from jsonbus.core.membership.directory import Place
from jsonbus.core.wire.frames import Entry, WhereFrame
from tests.core.link import Link
from tests.core.rpc.asking import MODES, add_group, ask, forge_about, is_answer, ports_of

# --- Asking --------------------------------------------------------------------------------------


@pytest.mark.parametrize("by", ["node", "name"])
def test_only_the_node_that_is_meant_answers(by: str) -> None:
    link = Link()
    a, b, _ = add_group(link)
    who = getattr(b.settings, by)
    (place,) = ask(link, a, who)
    assert place == Place(b.settings.node, "n1", False, "10.0.0.2", 2, link.now, link.now)
    assert link.senders(is_answer) == ["n1"]
    assert [frame.who for frame in link.frames("n0", WhereFrame)] == [who]


@pytest.mark.parametrize("mode", MODES)
def test_late_joiner_finds_a_node_in_one_round_trip(mode: str) -> None:
    link = Link()
    nodes = link.add_many(3, mode=mode)
    nodes[2].directory.set_channel_port(77, link.now)
    link.run(5)
    late = link.add("late", opened=False, mode=mode)
    link.open(late)
    link.forget_sent()
    (place,) = ask(link, late, "n2")
    assert (place.host, place.port, place.introduced_at) == ("10.0.0.3", 77, link.now)
    assert len(link.frames("late", WhereFrame)) == 1
    assert link.senders(is_answer)[-1:] == ["n2"]


def test_node_that_no_list_has_yet_is_found_once_it_has_told_and_only_for_a_while() -> None:
    link = Link()
    a = link.add("a")
    link.run(5)
    link.inject(forge_about("b", port=7))
    assert ports_of(link, a, "b") == [7] and ports_of(link, a, "stranger") == [7]
    link.now += INTRODUCED_S
    assert ports_of(link, a, "b") == [7]
    link.now += 0.001
    assert ports_of(link, a, "b") == []


def test_nodes_of_mode_basic_find_each_other() -> None:
    link = Link()
    a, b = add_group(link, 2, mode="basic")
    assert [place.port for place in ask(link, a, "n1")] == [2]
    assert [place.port for place in ask(link, b, a.settings.node)] == [1]


def test_nodes_of_different_modes_find_each_other() -> None:
    link = Link()
    a, b = link.add("a", mode="basic"), link.add("b")
    link.run(5)
    a.directory.set_channel_port(1, link.now)
    b.directory.set_channel_port(2, link.now)
    link.run(5)
    assert [place.port for place in ask(link, a, "b")] == [2]
    assert [place.port for place in ask(link, b, "a")] == [1]


def test_nobody_is_found_where_nobody_is() -> None:
    link = Link()
    a, *_ = add_group(link)
    assert ask(link, a, "nobody") == []
    assert link.senders(is_answer) == []


@pytest.mark.parametrize("who", ["", "x" * 256, "a\x1b[2J", "\ud800", "x" * 100_000])
def test_what_nobody_can_be_called_is_not_asked_for(who: str) -> None:
    link = Link()
    a, b, _ = add_group(link)
    assert ask(link, a, who) == []
    assert link.frames("n0", WhereFrame) == []
    assert b.counters.rejected == {}


def test_closed_node_asks_nobody() -> None:
    link = Link()
    a = link.add("a")
    a.close(link.now)
    a.outbox.take(link.now)
    a.directory.ask("b", link.now)
    assert a.outbox.take(link.now) == []


# --- Finding -------------------------------------------------------------------------------------


def test_own_node_is_found_by_id_and_by_name_without_an_address() -> None:
    link = Link()
    a, *_ = add_group(link)
    own = Place(a.settings.node, "n0", is_self=True)
    assert a.directory.find("n0", link.now) == a.directory.find(a.settings.node, link.now) == [own]


def test_all_nodes_of_one_name_are_found_in_the_order_of_their_ids() -> None:
    link = Link()
    a = link.add("a")
    link.add("twin", node="zwei")
    link.add("twin", node="eins")
    link.run(5)
    assert [place.node for place in ask(link, a, "twin")] == ["eins", "zwei"]
    assert [place.node for place in a.directory.find("zwei", link.now)] == ["zwei"]


def test_id_comes_before_a_name() -> None:
    link = Link()
    a = link.add("a")
    b = link.add("b", node="key")
    link.add("key")
    link.run(5)
    assert [place.node for place in a.directory.find("key", link.now)] == [b.settings.node]


def test_node_known_only_from_a_list_is_found_without_a_place() -> None:
    link = Link()
    a = link.add_member("a", [Entry("far-id", 1, 1, "far")])
    assert (
        a.directory.find("far", link.now)
        == a.directory.find("far-id", link.now)
        == [Place("far-id", "far")]
    )


@pytest.mark.parametrize("mode", MODES)
def test_node_that_left_is_not_found(mode: str) -> None:
    link = Link()
    a, b, _ = add_group(link, mode=mode)
    assert ask(link, a, "n1")
    link.close(b)
    assert a.directory.find("n1", link.now) == a.directory.find(b.settings.node, link.now) == []
    assert ask(link, a, "n1") == []


def test_node_that_fell_silent_is_not_found_once_it_is_gone() -> None:
    link = Link()
    a, b, _ = add_group(link)
    link.remove(b)
    link.run(30)
    assert a.directory.find("n1", link.now) == a.directory.find(b.settings.node, link.now) == []


def test_plain_peer_is_never_found() -> None:
    link = Link()
    a = link.add("a")
    link.run(5)
    link.inject(b'{"topic":"jsonbus.topics","payload":["jsonbus.topics","b"]}', "10.0.0.7")
    (plain,) = [info for info in a.view.nodes(link.now) if info.is_plain]
    for who in (plain.node, plain.name):
        assert a.directory.find(who, link.now) == []
