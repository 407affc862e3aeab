"""delayed: the first to speak answers, the others cancel."""

from __future__ import annotations

import random

import pytest

from jsonbus.core.membership.strategies import ShareStrategy
from jsonbus.core.node import Node
from jsonbus.core.settings import NodeSettings
from jsonbus.core.timers import share_delay_s
from jsonbus.core.wire.frames import Frame
from tests.core.link import Link, is_share


def add_fixed(link: Link, **delays_s: float) -> dict[str, Node]:
    nodes = {name: link.add(name, share_delay_s=delay_s) for name, delay_s in delays_s.items()}
    link.run(5)
    link.forget_sent()
    return nodes


def test_random_delay_is_the_formulas_and_drawn_anew() -> None:
    strategy = ShareStrategy(NodeSettings("a", 1, "a", share_delay_s=None))
    dice = random.Random(5)
    delays = [strategy.draw_delay_s(300, dice) for _ in range(5)]
    dice = random.Random(5)
    assert delays == [share_delay_s(300, dice.random()) for _ in range(5)]
    assert len(set(delays)) == 5


def test_fixed_delay_is_fixed() -> None:
    assert (
        ShareStrategy(NodeSettings("a", 1, "a", share_delay_s=0.07)).draw_delay_s(
            300, random.Random(1)
        )
        == 0.07
    )
    assert (
        ShareStrategy(NodeSettings("a", 1, "a", share_delay_s=0.0)).draw_delay_s(
            300, random.Random(1)
        )
        == 0.0
    )


@pytest.mark.parametrize("seed", range(5))
def test_one_answers_within_200_ms_and_the_others_cancel(seed: int) -> None:
    link = Link(seed)
    link.add_many(10)
    link.forget_sent()
    joined_at = link.now
    joiner = link.add("late")
    link.run(0.2)
    assert len(link.senders(is_share)) == 1
    assert joiner.state == "sure"
    assert len(joiner.view.nodes(link.now)) == 11
    link.run(10)
    assert len(link.senders(is_share)) == 1
    (answered_at,) = [at for _, at, frame in link.sent if is_share(frame)]
    assert 0.0 < answered_at - joined_at < 0.2


def test_answers_are_spread_over_the_nodes() -> None:
    answered = set()
    for seed in range(12):
        link = Link(seed)
        link.add_many(4)
        link.forget_sent()
        link.add("late")
        link.run(0.3)
        answered.update(link.senders(is_share))
    assert len(answered) >= 3


def test_fixed_delays_answer_in_order_as_the_fastest_disappear() -> None:
    link = Link()
    nodes = add_fixed(link, slow=0.15, fast=0.02, middle=0.08)
    answered = []
    for number in range(3):
        link.forget_sent()
        begun_at = link.now
        joiner = link.add(f"late{number}", share_delay_s=1.0)
        link.run(0.24)
        assert joiner.state == "sure"
        ((name, at),) = [(name, at) for name, at, frame in link.sent if is_share(frame)]
        answered.append((name, round(at - begun_at, 6)))
        link.remove(nodes[name])
    assert answered == [("fast", 0.02), ("middle", 0.08), ("slow", 0.15)]


def test_share_delay_zero_answers_at_once() -> None:
    link = Link()
    add_fixed(link, a=0.0, b=0.1)
    joiner = link.add("late")
    assert joiner.state == "sure"
    assert link.senders(is_share) == ["a"]
    link.run(1)
    assert link.senders(is_share) == ["a"]


def test_two_nodes_with_the_same_delay_are_harmless() -> None:
    link = Link()
    add_fixed(link, a=0.05, b=0.05)
    joiner = link.add("late")
    link.run(2)
    assert joiner.state == "sure"
    assert len(link.senders(is_share)) <= 2


def test_share_that_the_joiner_missed_is_repeated_for_its_next_announcement() -> None:
    link = Link()
    add_fixed(link, a=0.01, b=0.1)
    lost: list[Frame] = []

    def lose_the_first(sender: Node, receiver: Node, frame: Frame) -> bool:
        if is_share(frame) and receiver.settings.name == "late" and not lost:
            lost.append(frame)
            return True
        return False

    link.drop = lose_the_first
    joiner = link.add("late")
    link.run(0.24)
    assert joiner.state == "joining"
    link.run(0.03)
    assert joiner.state == "sure"


def test_announcement_that_the_answer_overtook_is_not_answered_again() -> None:
    link = Link()
    nodes = add_fixed(link, fast=0.0, middle=0.1)
    link.drop = lambda sender, receiver, frame: (
        sender.settings.name == "late" and receiver is nodes["middle"]
    )
    link.add("late")
    announcement = link.datagrams[0]
    link.heal()
    nodes["middle"].receive_datagram(announcement, ("10.0.0.3", 2416), link.now + 0.005)
    link.run(0.24)
    assert link.senders(is_share) == ["fast"]


def test_different_list_does_not_cancel() -> None:
    # Two joiners, each heard by one half: the share of one half lacks the other's joiner.
    link = Link()
    nodes = add_fixed(link, a=0.05, b=0.1)
    link.drop = lambda sender, receiver, frame: (
        sender.settings.name == "late" and receiver is nodes["a"]
    )
    unheard = link.add("late")
    link.drop = lambda sender, receiver, frame: False
    heard = link.add("other")
    link.run(0.24)
    assert len(unheard.view.nodes(link.now)) == len(heard.view.nodes(link.now)) == 4


def test_late_joins_cost_about_one_share_each() -> None:
    link = Link()
    link.add_many(3)
    link.forget_sent()
    for number in range(20):
        link.add(f"late{number}")
        link.run(3)
    assert len(link.senders(is_share)) <= 24
