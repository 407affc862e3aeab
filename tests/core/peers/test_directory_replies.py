"""What a node tells of where it is, at once and when it is asked, and how often."""

from __future__ import annotations

import pytest

from jsonbus.core.events import DatagramRejected, NodeIntroduced
from jsonbus.core.limits import INTRODUCTION_INTERVAL_S
from jsonbus.core.node import Node
from jsonbus.core.wire.encode import encode_where
from jsonbus.core.wire.frames import About, PresenceFrame
from jsonbus.core.wire.names import WHERE
from tests.core.link import Link, forge
from tests.core.rpc.asking import MODES, add_group, ask, forge_about, is_answer, ports_of


@pytest.mark.parametrize("mode", MODES)
def test_changed_port_is_told_at_once_and_known_everywhere(mode: str) -> None:
    link = Link()
    nodes = add_group(link, mode=mode)
    nodes[0].directory.set_channel_port(50_000, link.now)
    link.move()
    for node in nodes[1:]:
        assert ports_of(link, node, nodes[0].settings.node) == [50_000]
    for node in nodes:
        infos = {info.name: info.channel_port for info in node.view.nodes(link.now)}
        assert infos["n0"] == 50_000
    assert nodes[0].view.nodes(link.now)[0].channel_port == 50_000


def test_port_that_was_set_before_the_node_opened_is_in_its_first_words() -> None:
    link = Link()
    a = link.add("a")
    link.run(5)
    b = link.add("b", opened=False)
    b.directory.set_channel_port(7, link.now)
    assert not b.outbox.has_output
    link.open(b)
    assert ports_of(link, a, "b") == [7]


def test_pongs_tell_the_port_of_today() -> None:
    link = Link()
    a, b, _ = add_group(link)
    link.drop = lambda sender, receiver, frame: isinstance(frame, PresenceFrame)
    b.directory.set_channel_port(60_000, link.now)
    link.move()
    assert ports_of(link, a, "n1") == [2]
    a.ping(link.now)
    link.move()
    assert ports_of(link, a, "n1") == [60_000]


def test_presence_with_suspects_erases_nothing_that_is_known() -> None:
    link = Link()
    a = link.add("a")
    link.run(5)
    link.inject(forge_about("b", 7))
    introduced_at = link.now
    link.now += 1
    link.inject(forge_about("b", None, counter=2, suspects=(("x", 1),), about=About()))
    assert [(place.port, place.introduced_at) for place in a.directory.find("b", link.now)] == [
        (7, introduced_at)
    ]
    link.inject(forge_about("b", None, counter=3))
    assert ports_of(link, a, "b") == [None]


def test_events_come_only_while_somebody_seeks() -> None:
    link = Link()
    a, b, _ = add_group(link)

    def events() -> list[NodeIntroduced]:
        found = link.events_of("n0", NodeIntroduced)
        link.events["n0"].clear()
        return found

    ask(link, a, "n1")
    assert events() == []
    a.directory.start_lookup()
    a.directory.start_lookup()
    link.run(INTRODUCTION_INTERVAL_S)
    a.take_attention()
    ask(link, a, "n1")
    assert events() == [NodeIntroduced(b.settings.node)]
    assert a.take_attention()
    a.directory.stop_lookup()
    link.run(INTRODUCTION_INTERVAL_S)
    ask(link, a, "n1")
    assert events() == [NodeIntroduced(b.settings.node)]
    a.directory.stop_lookup()
    link.run(10)
    ask(link, a, "n1")
    assert events() == []


# --- How often -----------------------------------------------------------------------------------


def ask_often(link: Link, node: Node, seconds: float, every_s: float) -> None:
    until = link.now + seconds
    while link.now < until:
        node.directory.ask("n1", link.now)
        link.move()
        link.run(every_s)


@pytest.mark.parametrize("every_s", [0.001, 0.0249, 0.049, 0.051])
def test_node_answers_at_most_so_often(every_s: float) -> None:
    link = Link()
    a, *_ = add_group(link)
    ask_often(link, a, 3.0, every_s)
    at = link.times("n1", is_answer)
    gaps = [later - earlier for earlier, later in zip(at, at[1:], strict=False)]
    # Heartbeats and the like are no answers, and come when they come.
    assert sum(gap < INTRODUCTION_INTERVAL_S - 1e-4 for gap in gaps) <= 3
    assert max(gaps) <= max(every_s, INTRODUCTION_INTERVAL_S) + 0.051


def test_flood_of_questions_is_no_flood_of_answers() -> None:
    link = Link()
    add_group(link)
    for counter in range(1, 2001):
        link.inject(forge(encode_where, counter=counter, who="n1"))
        if counter % 20 == 0:
            link.run(0.01)  # 2,000 in a second
    assert 15 <= len([name for name in link.senders(is_answer) if name == "n1"]) <= 25


def test_who_asks_too_soon_after_another_gets_its_answer_later() -> None:
    link = Link()
    a, _, c = add_group(link)
    assert ask(link, a, "n1")
    link.now += 0.01
    c.directory.ask("n1", link.now)
    link.move()
    asked_at = link.now
    assert max(place.introduced_at for place in c.directory.find("n1", link.now)) < asked_at
    link.run(INTRODUCTION_INTERVAL_S)
    assert max(place.introduced_at for place in c.directory.find("n1", link.now)) > asked_at


def test_answer_that_waits_is_given_although_suspects_were_told_meanwhile() -> None:
    link = Link()
    a, b, _ = add_group(link)
    ask(link, a, "n1")
    link.now += 0.01
    a.directory.ask("n1", link.now)
    link.move()
    asked_at = link.now
    b._membership._announcer.send_presence(link.now, (("somebody", 1),))
    link.move()
    link.run(INTRODUCTION_INTERVAL_S)
    assert a.directory.find("n1", link.now)[0].introduced_at > asked_at


# --- Bad questions -------------------------------------------------------------------------------


@pytest.mark.parametrize("fields", [b"", b',"who":""', b',"who":7', b',"who":"a\\u001b"'])
def test_bad_question_is_counted_and_not_answered(fields: bytes) -> None:
    link = Link()
    a, *_ = add_group(link, 1)
    jb = b'"jb":{"n":"x","i":1,"q":1,"m":1,"t":1' + fields + b"}}"
    link.inject(b'{"topic":"%b","payload":null,' % WHERE.encode() + jb)
    assert a.counters.rejected == {"bad_fields": 1}
    (event,) = link.events_of("n0", DatagramRejected)
    assert event.cause == "bad_fields"
    assert link.senders(is_answer) == []
