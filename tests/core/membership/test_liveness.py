"""Heartbeats, suspicion, expiry."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import pytest

from jsonbus.core.limits import PLAIN_LEASE_S, SUSPECTS_PER_DATAGRAM
from jsonbus.core.membership.liveness import Liveness, heartbeat_s, lease_s
from jsonbus.core.membership.subscription_list import SubscriptionList, make_plain_entry
from jsonbus.core.wire.frames import Entry

LEASE = 7.0
GRACE = 1.0


class Watch:
    """Liveness of node "own" over a list, with its clock."""

    def __init__(self, *others: str, seed: int = 1) -> None:
        self.list = SubscriptionList()
        self.list.put(Entry("own", 1, 1), 0.0)
        self.liveness = Liveness("own", self.list, random.Random(seed))
        for node in others:
            self.list.put(Entry(node, 1, 1), 0.0)
        self.liveness.watch(0.0)

    def run(self, until: float) -> list[tuple[str, float]]:
        """What happened: "ask x" and "x gone", and when."""
        happened = []
        while (at := self.liveness.timer_at()) <= until:
            for entry in self.liveness.check(at):
                self.list.bury(replace(entry, gone=True), at)
                self.liveness.forget(entry.node)
                happened.append((f"{entry.node} gone", at))
            happened += [(f"ask {node}", at) for node, _ in self.liveness.take_question(at)]
        return happened


@pytest.mark.parametrize(
    ("known_nodes", "expected_s"),
    [(1, 2.0), (400, 2.0), (401, 2.005), (1_000, 5.0), (10_000, 50.0)],
)
def test_heartbeat_is_two_seconds_or_longer_in_large_groups(
    known_nodes: int, expected_s: float
) -> None:
    assert heartbeat_s(known_nodes) == pytest.approx(expected_s)
    assert lease_s(known_nodes) == pytest.approx(3.5 * expected_s)


def test_silent_node_is_asked_for_and_gone_after_lease_and_grace() -> None:
    watch = Watch("x")
    (asked, asked_at), (gone, gone_at) = watch.run(60.0)
    assert (asked, gone) == ("ask x", "x gone")
    assert LEASE <= asked_at <= LEASE + 0.2
    assert gone_at == pytest.approx(asked_at + GRACE)


def test_node_that_is_heard_is_never_asked_for() -> None:
    watch = Watch("x")
    for second in range(0, 60, 2):
        watch.list.hear("x", float(second))
        assert watch.run(second + 2.0) == []


def test_suspected_node_that_answers_within_the_grace_survives() -> None:
    watch = Watch("x")
    assert [what for what, _ in watch.run(LEASE + 0.3)] == ["ask x"]
    watch.list.hear("x", LEASE + 0.5)
    assert watch.run(LEASE + 0.5 + LEASE - 0.1) == []


def test_node_that_survived_is_asked_for_anew_when_it_falls_silent_again() -> None:
    watch = Watch("x")
    watch.run(LEASE + 0.3)
    watch.list.hear("x", LEASE + 0.5)
    (asked, asked_at), (gone, gone_at) = watch.run(60.0)
    assert (asked, gone) == ("ask x", "x gone")
    assert asked_at >= LEASE + 0.5 + LEASE
    assert gone_at == pytest.approx(asked_at + GRACE)


def test_silent_node_heard_just_before_the_question_is_still_watched() -> None:
    watch = Watch("x")
    at = watch.liveness.timer_at()
    watch.liveness.check(at)  # silent: the question is planned
    watch.list.hear("x", at)
    assert [what for what, _ in watch.run(60.0)] == ["ask x", "x gone"]


def test_question_of_another_node_starts_the_grace_here() -> None:
    watch = Watch("x", "y")
    watch.list.hear("y", 6.0)
    at = watch.liveness.timer_at()
    watch.liveness.check(at)
    assert not watch.liveness.hear_question("x", at)  # silent here, too
    (gone, gone_at), *_ = watch.run(at + 2.0)
    assert gone == "x gone"
    assert gone_at == pytest.approx(at + GRACE)


def test_node_heard_here_is_known_to_be_alive_when_another_asks() -> None:
    watch = Watch("x")
    watch.list.hear("x", 5.0)
    assert watch.liveness.hear_question("x", 8.0)
    assert watch.run(11.9) == []


def test_question_for_a_stranger_or_a_plain_peer_is_none_of_ours() -> None:
    watch = Watch("x")
    watch.list.put(make_plain_entry("plain:10.0.0.7", ["t"]), 0.0)
    assert not watch.liveness.hear_question("nobody", 1.0)
    assert not watch.liveness.hear_question("plain:10.0.0.7", 1.0)


def test_node_that_comes_back_is_asked_for_anew() -> None:
    watch = Watch("x")
    watch.run(LEASE + 0.3)  # asked
    watch.list.bury(Entry("x", 1, 2, left=True), 8.0)  # answers with its goodbye
    watch.liveness.forget("x")
    watch.run(30.0)
    watch.list.put(Entry("x", 2, 1), 30.0)
    watch.liveness.watch(30.0)
    (asked, asked_at), (gone, gone_at) = watch.run(60.0)
    assert (asked, gone) == ("ask x", "x gone")
    assert asked_at >= 30.0 + LEASE


def test_many_suspects_are_asked_for_in_datagrams_that_fit() -> None:
    names = [f"n{number:03d}" for number in range(2 * SUSPECTS_PER_DATAGRAM + 1)]
    watch = Watch(*names)
    happened = watch.run(60.0)
    asked: dict[float, list[str]] = {}
    for what, at in happened:
        if what.startswith("ask"):
            asked.setdefault(at, []).append(what)
    assert [len(group) for group in asked.values()] == [SUSPECTS_PER_DATAGRAM] * 2 + [1]
    first, second, third = asked
    assert second - first == pytest.approx(0.1)
    assert third - second == pytest.approx(0.1)
    assert sum(what.endswith("gone") for what, _ in happened) == len(names)


def test_own_entry_is_never_suspected() -> None:
    watch = Watch()
    assert watch.run(1_000.0) == []
    assert watch.liveness.timer_at() == math.inf


def test_plain_peer_expires_after_ten_minutes_without_a_question() -> None:
    watch = Watch()
    watch.list.put(make_plain_entry("plain:10.0.0.7", ["t"]), 0.0)
    assert watch.run(PLAIN_LEASE_S - 0.1) == []
    assert watch.run(PLAIN_LEASE_S + 1) == [("plain:10.0.0.7 gone", PLAIN_LEASE_S)]


def test_timer_never_asks_for_an_instant_that_was_handled() -> None:
    watch = Watch(*[f"n{number}" for number in range(30)])
    last = 0.0
    for _ in range(200):
        at = watch.liveness.timer_at()
        if at == math.inf:
            break
        watch.run(at)
        assert watch.liveness.timer_at() > last
        last = at
    assert watch.liveness.timer_at() == math.inf


def test_node_added_while_only_plain_peers_are_watched_is_checked_in_time() -> None:
    watch = Watch()
    watch.list.put(make_plain_entry("plain:10.0.0.7", ["t"]), 0.0)
    watch.run(20.0)  # the next check is for the plain peer, minutes ahead
    watch.list.put(Entry("x", 1, 1), 17.0)  # by a list that says: heard 3 s ago
    watch.liveness.watch(20.0)
    (asked, asked_at), (gone, _) = watch.run(60.0)
    assert (asked, gone) == ("ask x", "x gone")
    assert asked_at <= 20.0 + LEASE + 0.2
