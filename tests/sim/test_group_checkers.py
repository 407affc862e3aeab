"""Each checker watches a world that is broken on purpose, and must say so."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import pytest

from jsonbus.core.wire.frames import Frame, ListFrame
from jsonbus.sim import BrokenInvariantError, Checker, NetworkOptions, World
from jsonbus.sim.group_checkers import (
    STORM_LISTS,
    AllAgree,
    JoinersAreServed,
    NobodyStorms,
    ProbesArrive,
    QuietGroupsAreQuiet,
)
from jsonbus.sim.list_checkers import settling_s
from jsonbus.sim.participants import Participant, SimNode


class FixedDelaysAnswerInOrder(Checker):
    """With fixed share delays, the node with the lowest delay answers first.

    For worlds in which every node has a fixed delay, nothing is lost, and joins are rare. Delays
    that differ by less than the travel time of a datagram count as equal.
    """

    invariant = "the live node with the lowest fixed share delay answers, and only that one"

    def __init__(self) -> None:
        self._joined_at = -inf
        self._answered = True
        self.answers: list[str] = []  # who answered each joiner, in order

    def sent(self, sender: Participant, frame: Frame, data: bytes) -> None:
        if not isinstance(sender, SimNode) or not isinstance(frame, ListFrame):
            return
        if frame.covers is None:
            if not frame.settled:
                self._joined_at, self._answered = self.world.clock.now, False
        elif frame.part[0] == 0:
            self._judge(sender)

    def _judge(self, sender: SimNode) -> None:
        if self._answered:
            self.fail(f"{sender.name} answered too")
        self._answered = True
        self.answers.append(sender.name)
        delay_s = sender.settings["share_delay_s"] - self.world.network.options.delay_max_s
        for node in self.world.nodes:
            is_witness = node.started_at < self._joined_at and node.core.state != "joining"
            if is_witness and node.settings["share_delay_s"] < delay_s:
                self.fail(f"{sender.name} answered, although {node.name} has a lower delay")


def make_group(*checkers: Checker) -> tuple[World, SimNode, SimNode, SimNode]:
    """A reader of "a", a reader of "b" and a writer, all of them sure."""
    world = World(1, checkers=checkers)
    first = world.add_node("first", patterns=["a"])
    second = world.add_node("second", patterns=["b"])
    writer = world.add_node("writer")
    world.run_for(2.0)
    return world, first, second, writer


def test_honest_nodes_break_nothing() -> None:
    agree, probes, quiet, storms = AllAgree(), ProbesArrive(), QuietGroupsAreQuiet(), NobodyStorms()
    world, first, _, writer = make_group(agree, probes, quiet, storms)
    agree.finished()
    storms.is_armed = True
    quiet.quiet_since = world.clock.now
    world.run_for(20.0)
    quiet.quiet_since = inf
    probes.is_armed = True
    for topic in "abc":
        world.publish(writer, topic)
    world.run_for(0.1)
    probes.finished()
    world.crash(first)
    world.run_for(settling_s(3) + 1)
    agree.finished()


def test_a_full_share_in_a_quiet_group_is_noticed() -> None:
    quiet = QuietGroupsAreQuiet()
    world, _, _, _ = make_group(quiet)
    quiet.quiet_since = world.clock.now
    world.add_node("late")
    with pytest.raises(BrokenInvariantError, match="sent a full share"):
        world.run_for(1.0)


def test_a_node_that_is_not_sure_in_the_end_is_noticed() -> None:
    agree = AllAgree()
    world, _, _, _ = make_group(agree)
    world.add_node("late")
    with pytest.raises(BrokenInvariantError, match="late is joining"):
        agree.finished()


def test_lists_that_are_not_the_truth_in_the_end_are_noticed() -> None:
    agree = AllAgree()
    world, first, _, _ = make_group(agree)
    world.crash(first)  # a moment ago: the others still believe in it
    with pytest.raises(BrokenInvariantError, match="believes"):
        agree.finished()


def test_lists_that_differ_in_versions_are_noticed() -> None:
    agree = AllAgree()
    world, first, _, writer = make_group(agree)
    entry = first.core.own_entry()
    writer.subscription_list.put(replace(entry, version=entry.version + 1), 0.0)
    with pytest.raises(BrokenInvariantError, match="digests differ"):
        agree.finished()


def test_a_joiner_that_nobody_answers_is_noticed() -> None:
    served = JoinersAreServed(within_s=1.0, settling_s=5.0)
    world, first, second, writer = make_group(served)
    world.add_node("glad")
    world.run_for(2.0)
    for node in world.nodes:
        node.core.receive_frame = lambda *frame: None  # type: ignore[method-assign]
    world.add_node("sad")
    with pytest.raises(BrokenInvariantError, match="sad, here since .* never knew first"):
        world.run_for(2.0)


def test_a_joiner_that_took_a_known_node_for_gone_is_not_judged() -> None:
    world, first, second, writer = make_group(JoinersAreServed(within_s=10.0, settling_s=5.0))
    late = world.add_node("late")
    world.run_for(1.0)
    gone = late.subscription_list.get(first.node_id)
    assert gone is not None
    late.subscription_list.bury(replace(gone, gone=True), late.local(world.clock.now))
    for node in (first, second, writer):
        node.core.receive_frame = lambda *frame: None  # type: ignore[method-assign]
    late.core.receive_frame = lambda *frame: None  # type: ignore[method-assign]
    world.run_for(10.0)
    assert late.subscription_list.get(first.node_id) is None


def test_a_joiner_is_not_judged_where_links_are_cut_or_nobody_answers() -> None:
    served = JoinersAreServed(within_s=1.0, settling_s=5.0)
    world, first, second, writer = make_group(served)
    world.network.partition([0, 1, 2], [3])
    world.add_node("cut off")
    world.run_for(2.0)
    world.network.mend_all(world.clock.now)
    world.run_for(20.0)
    for node in (first, second, writer):
        node.core.receive_frame = lambda *frame: None  # type: ignore[method-assign]
        node.settings["mode"] = "master"  # none of them a master
    world.leave(world.nodes[3])
    world.add_node("alone")
    world.run_for(2.0)


@pytest.mark.parametrize("is_broken", [True, False])
def test_a_joiner_that_its_only_master_cannot_reach_is_not_judged(is_broken: bool) -> None:
    served = JoinersAreServed(within_s=10.0, settling_s=5.0)
    world = World(1, checkers=(served,))
    master = world.add_node("master", mode="master", is_master=True)
    other = world.add_node("other", mode="master")
    world.run_for(3.0)
    joiner = world.add_node("joiner", mode="master")
    for node in (master, other):  # what it hears of them tells it nothing
        node.core.receive_frame = lambda *frame: None  # type: ignore[method-assign]
    joiner.core.receive_frame = lambda *frame: None  # type: ignore[method-assign]
    if is_broken:
        link = (master.index, joiner.index)
        world.network._losing[link] = (world.clock.now, world.clock.now + 5.0)
        world.run_for(12.0)
    else:
        with pytest.raises(BrokenInvariantError, match="joiner, here since .* never knew master"):
            world.run_for(12.0)


def make_fixed_delays(checker: Checker) -> World:
    world = World(1, checkers=(checker,))
    for number, delay_s in enumerate((0.05, 0.1, 0.2)):
        world.add_node(f"d{number}", share_delay_s=delay_s)
    world.run_for(2.0)
    return world


def test_an_answer_out_of_the_order_of_fixed_delays_is_noticed() -> None:
    world = make_fixed_delays(FixedDelaysAnswerInOrder())
    world.nodes[2].settings["share_delay_s"] = 0.01  # its core was told 0.2
    with pytest.raises(BrokenInvariantError, match="although d2 has a lower delay"):
        world.add_node("late", share_delay_s=1.0)
        world.run_for(1.0)


def test_a_second_answer_is_noticed() -> None:
    world = make_fixed_delays(FixedDelaysAnswerInOrder())
    first, second, _ = world.nodes
    world.network.cut([first.index], [second.index])  # it cannot know of the first answer
    with pytest.raises(BrokenInvariantError, match="d1 answered too"):
        world.add_node("late", share_delay_s=1.0)
        world.run_for(1.0)


def test_a_probe_that_does_not_arrive_is_noticed() -> None:
    probes = ProbesArrive()
    world, _, _, writer = make_group(probes)
    probes.is_armed = True
    world.network.options = NetworkOptions(loss=1.0)
    world.publish(writer, "a")
    world.run_for(0.1)
    with pytest.raises(BrokenInvariantError, match="first never got publication 0 to a"):
        probes.finished()


def test_a_plain_peer_that_is_passed_over_is_noticed() -> None:
    probes = ProbesArrive(judges_plain=True)
    world, _, _, writer = make_group(probes)
    peer = world.add_plain("peer", topics=["p"])
    world.run_for(1.0)
    probes.is_armed = True
    world.publish(writer, "p")
    world.run_for(0.1)
    probes.finished()
    peer.heard.clear()
    with pytest.raises(BrokenInvariantError, match="peer never got publication 0 to p"):
        probes.finished()


def test_a_node_that_sends_list_after_list_is_noticed() -> None:
    storms = NobodyStorms()
    world, first, _, _ = make_group(storms)
    storms.is_armed = True
    with pytest.raises(BrokenInvariantError, match="first did"):
        for number in range(STORM_LISTS + 1):
            world.subscribe(first, f"c/{number}")
            world.run_for(0.02)
