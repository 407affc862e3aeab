"""Channels: short stories on real numbers, and random histories."""

from __future__ import annotations

from collections import Counter
from math import inf

import pytest

from jsonbus.core.channel.limits import FIND_S, INBOX_BYTES_MAX, SILENCE_S, UNANSWERED_S
from jsonbus.core.limits import INTRODUCTION_INTERVAL_S
from jsonbus.sim import NetworkOptions, World
from jsonbus.sim.channels import tcp
from jsonbus.sim.channels.checkers import ChannelPromises, find_untaken
from jsonbus.sim.channels.connector import ConnectAttempt
from jsonbus.sim.channels.endpoint import Endpoint
from jsonbus.sim.channels.node import ChannelBounds
from jsonbus.sim.channels.tcp import AGAIN_MAX_S
from jsonbus.sim.history import History
from jsonbus.sim.participants import SimNode
from jsonbus.sim.plan import MODES, draw_plan
from jsonbus.sim.records import Habits
from jsonbus.sim.report import Tally

SEEDS_PER_MODE = 24
BLOCK = 8

NEVER = Habits(take_s=inf)


class Story:
    """A world watched by everything that must hold of channels."""

    def __init__(self, options: NetworkOptions | None = None) -> None:
        self.tally = Tally()
        promises = ChannelPromises(is_lossless=options is None or options.is_lossless)
        self.world = World(1, options, (*promises.checkers, self.tally))
        self.channels = self.world.channels

    def add(self, *names: str) -> list[SimNode]:
        nodes = [self.world.add_node(name) for name in names]
        self.world.run_for(2.0)
        return nodes

    def connect(self, node: SimNode, who: str, habits: Habits | None = None) -> Endpoint:
        call = self.channels.connect(node, who, habits=habits)
        self.world.run_while(lambda: not call.is_over, 5.0)
        assert call.endpoint is not None, call
        return call.endpoint

    def expect_all(self) -> None:
        """Everything that was sent must have been taken by now."""
        assert list(find_untaken(self.channels)) == []

    def finish(self) -> None:
        """Everybody closes everything; nothing may be left."""
        for end in self.channels.endpoints:
            if not end.is_dead:
                end.close()
        self.world.run_for(SILENCE_S + 2.0)
        for checker in self.world.checkers:
            checker.finished()


def reasons(calls: list[ConnectAttempt]) -> Counter[str]:
    return Counter(call.outcome for call in calls)


# --- Storms -----------------------------------------------------------------------------------


def test_two_hundred_nodes_connect_to_one_port_within_a_second() -> None:
    story = Story()
    world = story.world
    group = world.add_agreed_group(201, lambda number: [])
    target, *callers = group
    story.channels.bind(target, habits=Habits(messages=1, closes=True))
    world.run_for(1.0)
    story.tally.reset()
    began_at, calls = world.clock.now, []
    for caller in callers:
        calls.append(story.channels.connect(caller, target.name))
        world.run_for(1 / len(callers))
    world.run_for(1.0)
    assert reasons(calls) == {"connected": 200}
    assert max(call.ended_at for call in calls) - began_at < 1.1
    assert all(call.endpoint is not None and call.endpoint.taken == 1 for call in calls)
    # They know where it is from its own presence, as soon as it has bound its port.
    assert story.tally.datagrams["where"] == 0
    story.finish()


def test_two_hundred_nodes_ask_for_one_at_once_and_are_answered_a_few_times() -> None:
    story = Story()
    world = story.world
    target, *callers = world.add_agreed_group(201, lambda number: [])
    cut = world.network.cut([target.index], [caller.index for caller in callers])
    story.channels.bind(target)  # nobody hears where
    world.run_for(0.1)
    world.network.mend(cut, world.clock.now)
    story.tally.reset()
    began_at, calls = world.clock.now, []
    for caller in callers:
        calls.append(story.channels.connect(caller, target.name))
        world.run_for(1 / len(callers) / 10)
    world.run_for(0.5)
    assert reasons(calls) == {"connected": 200}
    assert max(call.ended_at for call in calls) - began_at < 0.3
    # An answer at most every 50 ms, and all hear it: most callers never had to ask.
    assert story.tally.datagrams["where"] < 50
    answers = target.core.counters.presences_sent
    assert answers <= 10, answers
    story.finish()


def test_a_node_that_is_asked_for_all_the_time_answers_twenty_times_a_second() -> None:
    story = Story()
    one, two = story.add("one", "two")
    before = two.core.counters.presences_sent
    calls = []
    for _ in range(500):
        calls.append(story.channels.connect(one, "two"))
        story.world.run_for(0.002)
    assert reasons(calls)["unbound"] > 400
    answers = two.core.counters.presences_sent - before
    assert answers <= 1 / INTRODUCTION_INTERVAL_S + 2
    story.finish()


def test_two_hundred_nodes_connect_to_each_other() -> None:
    story = Story()
    world = story.world
    group = world.add_agreed_group(200, lambda number: [])
    for node in group:
        story.channels.bind(node, habits=Habits(messages=1))
    calls = []
    for number, node in enumerate(group):
        for step in (1, 7, 50):
            calls.append(story.channels.connect(node, group[(number + step) % 200].name))
    world.run_for(1.0)
    assert reasons(calls) == {"connected": 600}
    story.expect_all()
    story.finish()


def test_callers_that_nobody_accepts_are_told_that_it_is_busy() -> None:
    story = Story()
    target, *callers = story.add("target", *(f"c{number}" for number in range(5)))
    story.channels.bounds = ChannelBounds(accept_max=3)
    story.channels.bind(target, accept_s=inf)
    calls = [story.channels.connect(caller, "target") for caller in callers]
    story.world.run_for(1.0)
    assert reasons(calls) == {"connected": 3, "busy": 2}
    story.channels.unbind(target)  # and closes those that wait
    story.world.run_for(0.1)
    assert not story.channels.open_endpoints()
    story.finish()


# --- Closing ----------------------------------------------------------------------------------


def test_both_sides_may_close_at_once() -> None:
    story = Story()
    one, two = story.add("one", "two")
    story.channels.bind(two, habits=Habits(messages=50, bytes_max=20_000))
    for wait_us in range(0, 20_000, 500):
        end = story.connect(one, "two", Habits(messages=50, bytes_max=20_000))
        other = end.other
        assert other is not None
        story.world.run_for(wait_us / 1e6)
        end.close()
        story.world.run_for(wait_us / 4e6)
        other.close()
        story.world.run_for(1.0)
        assert end.core.is_over and other.core.is_over
        assert end.core.is_confirmed or end.core.is_peer_closed
        assert not end.core.is_lost and not other.core.is_lost
    story.finish()


def test_a_channel_that_is_closed_at_once_has_brought_its_messages() -> None:
    story = Story()
    one, two = story.add("one", "two")
    story.channels.bind(two, habits=Habits(messages=5, closes=True))
    for _ in range(50):
        end = story.connect(one, "two")
        story.world.run_for(0.1)
        assert end.taken == 5
        assert end.core.reason == "two closed it"
    story.finish()


def test_a_close_is_confirmed_when_a_slow_application_has_taken_enough() -> None:
    story = Story()
    one, two = story.add("one", "two")
    story.channels.bind(two, habits=Habits(take_s=0.05))
    end = story.connect(one, "two", Habits(messages=400, bytes_max=40_000, closes=True))
    other = end.other
    assert other is not None
    story.world.run_for(8.0)
    assert end.core.state == "closing"
    assert story.world.run_while(lambda: not end.core.is_over, 30.0)
    assert end.core.is_confirmed and other.taken < 400
    assert story.world.run_while(lambda: other.taken < 400, 30.0)
    story.finish()


def test_both_sides_may_close_at_once_and_have_much_to_say(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tcp, "PIPE_BYTES", (4 << 10,))
    story = Story(NetworkOptions(delay_min_s=0.015, delay_max_s=0.03))
    one, two = story.add("one", "two")
    much = Habits(messages=12, bytes_max=4_000_000)
    story.channels.bind(two, habits=much)
    end = story.connect(one, "two", much)
    other = end.other
    assert other is not None
    story.world.run_for(0.5)
    end.close()
    other.close()
    assert story.world.run_while(lambda: not (end.core.is_over and other.core.is_over), 150.0)
    assert end.over_at - end.opened_at > 2 * SILENCE_S  # neither sends beats any more
    assert end.core.is_confirmed and other.core.is_confirmed
    story.finish()


@pytest.mark.parametrize("with_host", [False, True])
def test_who_closes_and_is_no_more_is_not_waited_for(with_host: bool) -> None:
    story = Story()
    one, two = story.add("one", "two")
    story.channels.bind(two, habits=Habits(messages=1000, bytes_max=20_000))
    end = story.connect(one, "two", NEVER)
    other = end.other
    assert other is not None
    story.world.run_for(5.0)
    assert not other.core.has_room
    end.close()
    assert story.world.run_while(lambda: not other.core.is_peer_closed, 1.0)
    # It has no room for its E, and will never have.
    story.world.network.partition([one.index], [two.index])
    story.world.crash(one, with_host=with_host)
    story.world.run_for(SILENCE_S + 0.1)
    assert other.core.is_over and not other.core.is_lost
    story.finish()


# --- Refusals ---------------------------------------------------------------------------------


def test_a_port_that_is_bound_later_is_reached_by_who_tries_again() -> None:
    story = Story()
    one, two = story.add("one", "two")
    once = story.channels.connect(one, "two")
    again = story.channels.connect(one, "two", retry=True)
    story.world.run_for(2.0)
    assert once.outcome == "unbound" and again.outcome == "under way"
    bound_at = story.world.clock.now
    story.channels.bind(two)
    story.world.run_for(1.0)
    assert again.outcome == "connected"
    assert again.ended_at - bound_at < 0.05  # it hears of it, instead of waiting
    story.finish()


def test_a_node_that_starts_later_is_reached_by_who_tries_again() -> None:
    story = Story()
    (one,) = story.add("one")
    once = story.channels.connect(one, "two")
    again = story.channels.connect(one, "two", retry=True)
    story.world.run_for(1.5)
    assert once.outcome == "unknown" and once.ended_at - once.at == pytest.approx(FIND_S)
    started_at = story.world.clock.now
    story.channels.bind(story.world.add_node("two"))
    story.world.run_for(2.0)
    assert again.outcome == "connected" and again.ended_at - started_at < 1.0
    story.finish()


def test_ports_that_come_and_go_while_callers_come_refuse_truly() -> None:
    story = Story()
    world = story.world
    target, *callers = story.add("target", *(f"c{number}" for number in range(10)))
    calls = []
    for round_number in range(60):
        if round_number % 3 == 0:
            story.channels.bind(target, exclusive=round_number % 2 == 0)
        elif round_number % 3 == 2:
            story.channels.unbind(target)
        for caller in callers:
            calls.append(story.channels.connect(caller, "target", habits=Habits(closes=True)))
            world.run_for(0.0007)
    world.run_for(3.0)
    found = reasons(calls)
    assert sum(found.values()) == 600 and found["connected"] > 50
    assert found["unbound"] > 50 and found["taken"] > 20
    story.finish()


def test_everybody_gets_an_exclusive_port_in_turn() -> None:
    story = Story()
    target, *callers = story.add("target", *(f"c{number}" for number in range(20)))
    story.channels.bind(target, exclusive=True)
    once = [story.channels.connect(caller, "target", habits=NEVER) for caller in callers]
    story.world.run_for(1.0)
    assert reasons(once) == {"connected": 1, "taken": 19}
    for call in once:
        if call.endpoint is not None:
            call.endpoint.close()
    habits = Habits(messages=3, closes=True)
    patient = [
        story.channels.connect(caller, "target", timeout_s=30.0, retry=True, habits=habits)
        for caller in callers
    ]
    story.world.run_for(30.0)
    assert reasons(patient) == {"connected": 20}
    story.finish()


def test_nodes_of_one_name_are_ambiguous_and_have_ids() -> None:
    story = Story()
    caller, first, second = story.add("caller", "twin", "twin")
    for twin in (first, second):
        story.channels.bind(twin)
    call = story.channels.connect(caller, "twin")
    story.world.run_for(1.0)
    assert call.outcome == "ambiguous"
    assert getattr(call.error, "nodes", ()) == tuple(sorted((first.node_id, second.node_id)))
    for twin in (first, second):
        other = story.connect(caller, twin.node_id).other
        assert other is not None and other.node is twin
    story.finish()


# --- Crashes and cuts -------------------------------------------------------------------------


@pytest.mark.parametrize("with_host", [False, True])
@pytest.mark.parametrize("keeps_id", [False, True])
def test_a_node_that_comes_back_at_another_port_is_asked_anew(
    with_host: bool, keeps_id: bool
) -> None:
    story = Story()
    caller, target = story.add("caller", "target")
    story.channels.bind(target)
    end = story.connect(caller, "target")
    old_id = target.node_id
    story.world.crash(target, with_host=with_host)
    story.world.run_for(0.5)
    # It tells where it is now, but the caller does not hear that.
    cut = story.world.network.cut([target.index], [caller.index])
    story.world.start(target, node_id=old_id if keeps_id else None)
    story.channels.bind(target)
    story.world.run_for(1.0)
    story.world.network.mend(cut, story.world.clock.now)
    again = story.channels.connect(caller, "target")
    story.world.run_for(2.0)
    assert again.outcome == "connected"
    assert again.ended_at - again.at < 2 * FIND_S
    story.world.run_for(SILENCE_S)
    assert end.core.is_over and end.core.is_lost
    story.finish()


def test_who_calls_a_crashed_node_is_told_so() -> None:
    story = Story()
    caller, target = story.add("caller", "target")
    story.channels.bind(target)
    story.connect(caller, "target")
    story.world.crash(target)
    call = story.channels.connect(caller, "target")
    story.world.run_for(2.0)
    assert call.outcome == "gone"
    story.finish()


def test_a_cut_that_is_mended_before_the_silence_costs_nothing() -> None:
    story = Story()
    one, two = story.add("one", "two")
    busy = Habits(messages=200, bytes_max=100_000, send_s=0.02)
    story.channels.bind(two, habits=busy)
    end = story.connect(one, "two", busy)
    story.world.run_for(1.0)
    cuts = story.world.network.partition([one.index], [two.index])
    story.world.run_for(UNANSWERED_S - AGAIN_MAX_S - 0.2)
    assert 0 < end.taken < 200
    for cut in cuts:
        story.world.network.mend(cut, story.world.clock.now)
    story.world.run_for(10.0)
    assert end.core.state == "open"
    story.expect_all()
    assert end.taken == 200
    story.finish()


def test_a_cut_that_lasts_longer_than_the_silence_ends_the_channel_on_both_sides() -> None:
    story = Story()
    one, two = story.add("one", "two")
    busy = Habits(messages=2000, bytes_max=100_000, send_s=0.02)
    story.channels.bind(two, habits=busy)
    end = story.connect(one, "two", busy)
    other = end.other
    assert other is not None
    story.world.run_for(1.0)
    cuts = story.world.network.partition([one.index], [two.index])
    story.world.run_for(SILENCE_S + 0.2)
    for each in (end, other):
        assert each.core.is_over and each.core.is_lost
        assert "was not heard for" in each.core.reason
    for cut in cuts:
        story.world.network.mend(cut, story.world.clock.now)
    story.world.run_for(5.0)
    assert story.connect(one, "two").core.state == "open"
    story.finish()


def test_a_dial_over_a_cut_link_hangs_until_it_is_mended_or_the_time_is_over() -> None:
    story = Story()
    one, two = story.add("one", "two")
    story.channels.bind(two)
    story.world.run_for(0.1)
    cuts = story.world.network.partition([one.index], [two.index])
    short = story.channels.connect(one, "two", timeout_s=1.0)
    long = story.channels.connect(one, "two", timeout_s=6.0)
    story.world.run_for(2.0)
    assert short.outcome == "timeout" and short.ended_at - short.at == pytest.approx(1.0)
    for cut in cuts:
        story.world.network.mend(cut, story.world.clock.now)
    story.world.run_for(AGAIN_MAX_S + 0.1)
    assert long.outcome == "connected"
    story.finish()


# --- Slow applications ------------------------------------------------------------------------


def test_applications_that_take_nothing_are_not_silent() -> None:
    story = Story()
    one, two = story.add("one", "two")
    many = Habits(messages=1000, bytes_max=20_000, take_s=inf)
    story.channels.bind(two, habits=many)
    end = story.connect(one, "two", many)
    other = end.other
    assert other is not None
    story.world.run_for(120.0)
    for each in (end, other):
        assert each.core.state == "open" and not each.core.has_room
        assert each.core.inbox_bytes >= INBOX_BYTES_MAX
    for each in (end, other):
        left = each.left
        each.use(Habits(messages=left, bytes_max=20_000))
    story.world.run_for(60.0)
    assert end.taken == other.taken == 1000
    story.finish()


def test_an_application_that_takes_nothing_does_not_stop_the_large_messages_of_others() -> None:
    story = Story()
    target, *callers = story.add("target", *(f"c{number}" for number in range(12)))
    story.channels.bounds = ChannelBounds(memory_bytes_max=2_000_000, memory_each_bytes=8_000)
    story.channels.bind(target, "lazy", habits=NEVER)
    story.channels.bind(target, "eager")
    habits = Habits(messages=60, bytes_max=500_000)
    lazy = story.channels.connect(callers[0], "target", "lazy", habits=habits)
    eager = [story.channels.connect(c, "target", "eager", habits=habits) for c in callers[1:]]
    story.world.run_for(30.0)
    assert lazy.endpoint is not None and lazy.endpoint.core.state == "open"
    for call in eager:
        assert call.endpoint is not None and call.endpoint.other is not None
        assert call.endpoint.other.taken == 60
    story.finish()


def test_a_channel_can_be_closed_while_applications_that_take_nothing_fill_the_memory() -> None:
    story = Story()
    target, one, two = story.add("target", "one", "two")
    story.channels.bounds = ChannelBounds(memory_bytes_max=100_000, memory_each_bytes=8_000)
    story.channels.bind(target, "lazy", habits=NEVER)
    story.channels.bind(target, "eager")
    story.channels.connect(one, "target", "lazy", habits=Habits(messages=200, bytes_max=20_000))
    story.world.run_for(1.0)
    assert story.channels.of(target).budget.is_short
    large = Habits(messages=10, bytes_max=1_000_000)
    call = story.channels.connect(two, "target", "eager", habits=large)
    story.world.run_for(1.0)
    assert call.endpoint is not None and call.endpoint.other is not None
    assert call.endpoint.other.reads_since == inf and call.endpoint.core.output_bytes
    call.endpoint.other.close()
    story.world.run_for(1.0)
    assert call.endpoint.other.core.is_confirmed
    assert call.endpoint.core.reason == "target closed it"
    story.finish()


# --- Seeds ------------------------------------------------------------------------------------


@pytest.mark.parametrize("first", range(0, SEEDS_PER_MODE, BLOCK))
@pytest.mark.parametrize("mode", MODES)
def test_every_history_with_channels_ends_well(mode: str, first: int) -> None:
    for seed in range(first, first + BLOCK):
        plan = draw_plan(seed, mode, has_channels=True)
        try:
            History(plan).run()
        except Exception as error:
            raise AssertionError(f"{error}\nrepeat: {plan.command}") from error
