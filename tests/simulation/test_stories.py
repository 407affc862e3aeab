"""Short stories: one situation each, with names instead of seeds."""

from __future__ import annotations

from math import inf

import pytest

from jsonbus.core.events import Event, MasterMissing
from jsonbus.core.limits import HEARTBEAT_MIN_S
from jsonbus.core.membership import subscription_list
from jsonbus.sim import Checker, NetworkOptions, World
from jsonbus.sim.group_checkers import (
    AllAgree,
    NobodyStorms,
    ProbesArrive,
    QuietGroupsAreQuiet,
)
from jsonbus.sim.list_checkers import (
    NothingIsWasted,
    NothingIsWithheld,
    VersionsNeverGoBack,
    settling_s,
)
from jsonbus.sim.participants import SimNode
from jsonbus.sim.reliable_checkers import ReliableIsExact
from jsonbus.sim.report import Tally
from tests.sim.test_group_checkers import FixedDelaysAnswerInOrder


class Story:
    """A world watched by everything that must hold in it."""

    def __init__(self, options: NetworkOptions | None = None, *more: Checker) -> None:
        self.tally = Tally()
        self._agree, self._probes, self._quiet = (
            AllAgree(),
            ProbesArrive(True),
            QuietGroupsAreQuiet(),
        )
        self._storms = NobodyStorms()
        self._storms.is_armed = True
        is_calm = options is None or not options.loss
        self.world = World(
            1,
            options,
            (
                self.tally,
                VersionsNeverGoBack(),
                NothingIsWithheld(is_calm=is_calm, judges_plain=True),
                NothingIsWasted(),
                self._storms,
                self._agree,
                self._probes,
                self._quiet,
                *more,
            ),
        )

    def expect_delivery(self) -> None:
        """What is published from now on must have arrived when the world has settled."""
        self._probes.is_armed = True

    def settle(self) -> None:
        """Leave the world in peace; all must agree then, stay quiet, and get what they want."""
        self.world.network.options = NetworkOptions()
        self.world.run_for(settling_s(len(self.world.participants)))
        self._agree.finished()
        self._quiet.quiet_since = self.world.clock.now
        self.world.run_for(10.0)
        self._quiet.quiet_since = inf
        self.expect_delivery()
        for node in self.world.nodes:
            for topic in ("a", "b", "c"):
                self.world.publish(node, topic)
        self.world.run_for(1.0)
        self._probes.finished()
        self._probes.is_armed = False


class Events(Checker):
    """Keeps what nodes report."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, Event]] = []

    def told(self, node: SimNode, event: Event) -> None:
        self.seen.append((node.name, event))


def knows(node: SimNode, other: SimNode) -> bool:
    return node.subscription_list.get(other.node_id) is not None


def test_a_late_joiner_gets_the_list_in_one_share() -> None:
    story = Story()
    world = story.world
    world.add_agreed_group(10, lambda number: ["a"])
    world.run_for(1.0)
    joiner = world.add_node("joiner", patterns=["b"])
    assert world.run_while(lambda: joiner.core.state != "sure", 1.0)
    assert len(joiner.subscription_list) == 11
    world.run_for(1.0)
    assert story.tally.shares <= 2
    story.settle()


def test_a_joiner_holds_its_first_messages_until_it_knows_who_wants_them() -> None:
    story = Story()
    world = story.world
    world.add_agreed_group(5, lambda number: ["a"])
    joiner = world.add_node("joiner")
    story.expect_delivery()
    for topic in ("a", "unwanted", "a"):
        assert world.publish(joiner, topic).accepted
    world.run_for(1.0)
    assert joiner.core.state == "sure"
    assert joiner.core.view.stats()["held_suppressed"] == 1
    story.settle()


def test_many_nodes_that_start_at_once_agree_with_few_shares() -> None:
    story = Story()
    for number in range(40):
        story.world.add_node(patterns=[("a", "b", "c")[number % 3]])
        story.world.run_for(0.01)
    story.settle()
    assert story.tally.shares <= 40


def test_a_master_answers_and_two_masters_do_no_harm() -> None:
    story = Story()
    world = story.world
    for name in ("master", "second master"):
        world.add_node(name, mode="master", is_master=True, patterns=["a"])
    worker = world.add_node("worker", mode="master", patterns=["b"])
    world.run_for(2.0)
    joiner = world.add_node("joiner", mode="master")
    assert world.run_while(lambda: joiner.core.state != "sure", 1.0)
    assert knows(joiner, worker)
    story.settle()


def test_without_a_master_joiners_say_so_and_send_everything_until_one_comes() -> None:
    events = Events()
    story = Story(None, events)
    world = story.world
    master = world.add_node("master", mode="master", is_master=True)
    world.add_node("reader", mode="master", patterns=["a"])
    world.run_for(2.0)
    world.crash(master)
    joiner = world.add_node("joiner", mode="master")
    world.run_for(5.0)
    assert ("joiner", MasterMissing()) in events.seen
    assert world.publish(joiner, "a").accepted
    world.start(master)
    story.settle()


def test_everybody_hears_everything_from_a_basic_node_and_sends_it_everything() -> None:
    story = Story()
    world = story.world
    delayed = world.add_node("delayed", patterns=["a"])
    basic = world.add_node("basic", mode="basic", patterns=["b"])
    world.run_for(2.0)
    assert world.publish(delayed, "unwanted").accepted
    story.settle()
    world.leave(basic)
    world.run_for(0.1)
    assert not world.publish(delayed, "unwanted").accepted


@pytest.mark.parametrize("mode", ["basic", "delayed"])
def test_requests_reach_a_basic_node_and_come_from_one(mode: str) -> None:
    story = Story()
    world = story.world
    server = world.add_node("server", mode="basic")
    asker = world.add_node("asker", mode=mode)
    world.serve(server, "echo")
    world.run_for(2.0)
    world.request(asker, "echo")
    world.run_for(1.0)
    assert server.core.view.stats()["requests_served"] == 1


def test_fixed_delays_answer_in_order_also_when_the_fastest_disappear() -> None:
    order = FixedDelaysAnswerInOrder()
    story = Story(None, order)
    world = story.world
    group = [
        world.add_node(name, share_delay_s=delay_s)
        for name, delay_s in (("fast", 0.01), ("middle", 0.05), ("slow", 0.1))
    ]
    world.run_for(2.0)
    order.answers.clear()
    for fastest in group[:2]:
        late = world.add_node("late", share_delay_s=1.0)
        world.run_for(1.0)
        world.leave(late)
        world.crash(fastest)
        world.run_for(0.2)
    world.add_node("last", share_delay_s=1.0)
    world.run_for(1.0)
    assert order.answers == ["fast", "middle", "slow"]
    story.settle()


def test_two_halves_of_a_group_agree_again_after_a_partition() -> None:
    story = Story()
    world = story.world
    nodes = [world.add_node(patterns=["a"]) for _ in range(6)]
    world.run_for(2.0)
    halves = [0, 1, 2], [3, 4, 5]
    world.network.partition(*halves)
    world.run_for(20.0)
    assert not knows(nodes[0], nodes[5])
    world.subscribe(nodes[0], "b")
    world.unsubscribe(nodes[5], "a")
    world.run_for(5.0)
    world.network.mend_all(world.clock.now)
    story.settle()


def test_who_is_heard_by_others_is_not_given_up() -> None:
    story = Story()
    world = story.world
    reader = world.add_node("reader", patterns=["a"])
    writer = world.add_node("writer")
    world.add_node("witness")
    world.run_for(2.0)
    world.network.cut([reader.index], [writer.index])  # only the other way is open
    for _ in range(60):
        world.run_for(1.0)
        assert world.publish(writer, "a").accepted
    world.network.mend_all(world.clock.now)
    story.settle()


@pytest.mark.parametrize("seconds", [3.0, 60.0])
def test_a_node_that_slept_does_not_take_the_others_for_gone(seconds: float) -> None:
    story = Story()
    world = story.world
    sleeper = world.add_node("sleeper", patterns=["a"])
    others = [world.add_node(patterns=["b"]) for _ in range(4)]
    world.run_for(2.0)
    world.freeze(sleeper)
    world.run_for(seconds)
    world.subscribe(others[0], "c")
    world.run_for(2.0)
    world.thaw(sleeper)
    for _ in range(40):
        for topic in ("b", "c"):
            assert world.publish(sleeper, topic).accepted
        world.run_for(0.05)
    story.settle()


def test_a_group_that_crashes_as_a_whole_and_restarts_agrees_again() -> None:
    story = Story()
    world = story.world
    nodes = [world.add_node(patterns=["a"]) for _ in range(8)]
    world.run_for(3.0)
    for node in nodes:
        world.crash(node)
    world.run_for(0.3)
    for node in nodes:
        world.start(node, ["b"])
    story.settle()


def test_a_restart_under_the_same_id_takes_the_place_of_the_life_before() -> None:
    story = Story()
    world = story.world
    node = world.add_node("node", patterns=["a"])
    other = world.add_node("other", patterns=["c"])
    world.run_for(2.0)
    world.crash(node)
    world.run_for(0.5)
    world.start(node, ["b"], node_id=node.node_id)
    world.run_for(1.0)
    entry = other.subscription_list.get(node.node_id)
    assert entry is not None
    assert entry.patterns == ("b",)
    story.settle()


def test_clocks_that_are_hours_apart_change_nothing() -> None:
    story = Story()
    world = story.world
    for number, wall_s in enumerate((0.0, -86_400.0, 7_200.0)):
        world.add_node(patterns=["a"], clock_offset_s=1_000.0 * number, wall_s=wall_s)
    story.settle()


@pytest.mark.parametrize("loss", [0.05, 0.2])
def test_changes_become_known_although_datagrams_are_lost(loss: float) -> None:
    story = Story(NetworkOptions(loss=loss, repeat=0.1, late=0.1))
    world = story.world
    nodes = [world.add_node(patterns=["a"]) for _ in range(6)]
    for round_number in range(10):
        node = nodes[round_number % 6]
        if "b" in node.sinks:
            world.unsubscribe(node, "b")
        else:
            world.subscribe(node, "b")
        world.run_for(1.0)
    story.settle()


def test_a_group_too_large_for_one_datagram_repairs_what_differs() -> None:
    story = Story(NetworkOptions(loss=0.05))
    world = story.world
    group = world.add_agreed_group(60, lambda number: ["a"])
    world.run_for(1.0)
    joiner = world.add_node("joiner", patterns=["b"])
    world.network.partition([joiner.index], [node.index for node in group[:30]])
    world.run_for(3.0)
    world.network.mend_all(world.clock.now)
    world.unsubscribe(group[3], "a")
    story.settle()


def test_plain_peers_get_what_they_want_and_are_heard() -> None:
    story = Story()
    world = story.world
    world.add_node("node", patterns=["b"])
    world.run_for(1.0)
    peer = world.add_plain("peer", topics=["a"])
    world.run_for(1.0)
    late = world.add_node("late", patterns=["c"])
    world.run_for(1.0)
    assert world.publish(late, "a").accepted
    world.publish(peer, "b")
    story.settle()


def test_what_a_plain_peer_wants_spreads_from_a_node_that_never_answers() -> None:
    story = Story()
    world = story.world
    master = world.add_node("master", mode="master", is_master=True)
    world.add_node("worker", mode="master")
    world.run_for(2.0)
    cut = world.network.cut([2], [master.index])  # the peer, which will be the third
    world.add_plain("peer", topics=["a"], answers=False)
    world.run_for(1.0)
    world.network.mend(cut, world.clock.now)
    world.run_for(5.0)
    assert world.publish(master, "a").accepted
    story.settle()


def test_the_last_node_of_a_group_does_not_doubt_for_ever() -> None:
    story = Story()
    world = story.world
    last = world.add_node("last")
    world.add_plain("peer", topics=["a"])
    others = [world.add_node() for _ in range(3)]
    world.run_for(2.0)
    world.change_interfaces(last)
    for node in others:
        world.crash(node)
    story.settle()
    assert not world.publish(last, "unwanted").accepted


def test_a_node_that_crashes_while_a_plain_peer_is_known_is_expired_in_time() -> None:
    story = Story()
    world = story.world
    node = world.add_node("node")
    world.add_plain("peer", topics=["a"], answers=False)
    world.run_for(20.0)
    visitor = world.add_node("visitor", patterns=["b"])
    world.run_for(1.0)
    world.crash(visitor)
    world.run_for(settling_s(3))
    assert not knows(node, visitor)


def test_joiners_left_alone_by_the_settled_learn_of_each_other() -> None:
    story = Story()
    world = story.world
    settled = [world.add_node(patterns=["c"]) for _ in range(3)]
    world.run_for(2.0)
    early = [world.add_node(patterns=["a"]) for _ in range(2)]
    for node in settled:
        world.crash(node)
    world.run_for(0.6)
    late = world.add_node("late")
    world.publish(late, "a")
    assert world.run_while(lambda: late.core.state == "joining", 3.0)
    assert all(knows(late, node) for node in early)
    story.settle()


def test_lists_that_are_too_full_to_become_equal_are_shared_once_per_heartbeat(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(subscription_list, "LIST_ENTRIES_MAX", 3)
    tally = Tally()
    world = World(1, None, (tally,))
    for number in range(6):
        world.add_node(f"n{number}", patterns=["a"])
    world.run_for(20.0)
    assert {node.core.state for node in world.nodes} == {"doubting"}
    before = tally.shares
    world.run_for(10.0)
    assert tally.shares - before <= 6 * (10.0 / HEARTBEAT_MIN_S + 1)


def test_a_change_of_interfaces_makes_a_node_ask_anew() -> None:
    story = Story()
    world = story.world
    reader = world.add_node("reader", patterns=["a"])
    writer = world.add_node("writer")
    world.run_for(2.0)
    world.network.partition([reader.index], [writer.index])
    world.subscribe(reader, "b")
    world.run_for(1.0)
    world.network.mend_all(world.clock.now)
    world.change_interfaces(writer)
    assert world.publish(writer, "b").accepted  # in doubt everything is sent
    assert world.run_while(lambda: writer.core.state != "sure", 5.0)
    assert world.publish(writer, "b").accepted
    story.settle()


def test_a_node_that_hears_itself_is_not_confused() -> None:
    story = Story(NetworkOptions(loops_back=True))
    world = story.world
    node = world.add_node("node", patterns=["a"])
    world.run_for(2.0)
    assert node.core.state == "sure"
    assert len(node.subscription_list) == 1
    world.add_node("other", patterns=["a"])
    world.run_for(1.0)
    story.settle()


def test_who_hears_but_is_not_heard_gets_all_reliable_messages_once_it_is() -> None:
    exact = ReliableIsExact()
    story = Story(None, exact)
    world = story.world
    reader, writer = world.add_node("reader", patterns=["a"]), world.add_node("writer")
    world.run_for(2.0)
    world.publish(writer, "a", is_reliable=True)
    world.run_for(0.1)
    cut = world.network.cut([reader.index], [writer.index])  # its NAKs are lost
    world.network.options = NetworkOptions(loss=0.5)
    for _ in range(10):
        world.publish(writer, "a", is_reliable=True)
        world.run_for(0.05)
    world.network.options = NetworkOptions()
    world.network.mend(cut, world.clock.now)
    story.settle()
    exact.finished()
    assert reader.core.view.stats()["messages_given_up"] == 0
