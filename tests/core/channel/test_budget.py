"""The memory of all channels: its bound, and that somebody always may go on."""

from __future__ import annotations

from copy import deepcopy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jsonbus.core.channel.budget import Budget
from tests.core.generated import unhurried

MAX, EACH = 1000, 100


def make_budget(**held: tuple[int, int]) -> Budget:
    budget = Budget(MAX, EACH)
    for channel, (complete, partial) in held.items():
        budget.note(channel, complete, partial)
    return budget


def readers(budget: Budget, *channels: str) -> set[str]:
    """Who of them could go on now; each is asked for itself."""
    return {channel for channel in channels if deepcopy(budget).may_read(channel)}


def test_everybody_may_read_while_there_is_memory() -> None:
    budget = make_budget(a=(500, 0), b=(0, 499))
    assert not budget.is_short and budget.held_bytes == 999
    assert readers(budget, "a", "b", "c") == {"a", "b", "c"}


def test_small_ones_may_read_when_it_is_short() -> None:
    budget = make_budget(a=(0, 99), b=(99, 0), c=(100, 0), d=(801, 0))
    assert budget.is_short
    assert readers(budget, "a", "b", "c", "d", "new") == {"a", "b", "new"}


def test_one_message_at_a_time_is_completed_when_it_is_short() -> None:
    budget = make_budget(a=(0, 400), b=(0, 400), c=(200, 0))
    assert readers(budget, "a", "b", "c") == {"a", "b"}
    assert budget.may_read("b")
    assert readers(budget, "a", "b", "c") == {"b"}
    assert not budget.note("b", 0, 450)
    assert budget.note("b", 500, 0)
    assert readers(budget, "a", "b", "c") == {"a"}


def test_it_is_anothers_turn_although_the_next_message_has_begun() -> None:
    budget = make_budget(a=(0, 500), b=(0, 500))
    assert budget.may_read("b")
    assert budget.note("b", 600, 150)
    assert budget.may_read("a")
    assert not budget.may_read("b")


def test_favourite_that_ends_leaves_its_place() -> None:
    budget = make_budget(a=(0, 1000), b=(0, 1000))
    assert budget.may_read("a") and not budget.may_read("b")
    assert budget.note("a", 0, 0)
    assert budget.may_read("b")


def test_nobody_is_completed_while_applications_have_all_of_it() -> None:
    budget = make_budget(a=(MAX, 0), b=(0, 500))
    assert readers(budget, "a", "b") == set()
    assert budget.note("a", MAX - 1, 0)  # still short: but now one may go on
    assert readers(budget, "a", "b") == {"b"}


def test_who_waits_is_told_when_there_is_memory_again() -> None:
    budget = make_budget(a=(MAX, 0), b=(200, 0))
    assert readers(budget, "a", "b") == set()
    assert not budget.note("a", MAX - 100, 0)
    assert budget.note("a", 0, 0)
    assert not budget.note("b", 0, 0)
    assert budget.held_bytes == 0


@pytest.mark.slow
@unhurried
@given(st.lists(st.tuples(st.sampled_from("abcd"), st.integers(0, 600), st.integers(0, 600))))
def test_what_is_noted_is_all_that_counts(notes: list[tuple[str, int, int]]) -> None:
    budget, held = Budget(MAX, EACH), dict[str, tuple[int, int]]()
    waiting: set[str] = set()
    for channel, complete, partial in notes:
        was_told = budget.note(channel, complete, partial)
        held[channel] = complete, partial
        assert budget.held_bytes == sum(map(sum, held.values()))
        assert budget.is_short == (budget.held_bytes >= MAX)
        may_go_on = readers(budget, *held)
        if not was_told:
            # Nobody but the channel itself waits any longer than it has to.
            assert not (waiting - {channel}) & may_go_on
        partials = {each for each in held if held[each][1]}
        if partials and sum(complete for complete, _ in held.values()) < MAX:
            assert partials & may_go_on
        waiting = {each for each in held if not budget.may_read(each)}
        assert len({each for each in held if sum(held[each]) >= EACH} - waiting) <= 1 or (
            not budget.is_short
        )


PIECE, MESSAGE = 60, 700


@pytest.mark.slow
@unhurried
@given(st.data())
def test_bound_holds_and_every_message_is_taken_in_the_end(data: st.DataObject) -> None:
    """Channels that each bring messages, read in pieces; applications that take when they like."""
    budget = Budget(MAX, EACH)
    channels = [f"channel {number}" for number in range(data.draw(st.integers(1, 12)))]
    left = {channel: data.draw(st.integers(0, 3)) * MESSAGE for channel in channels}
    partial, complete = dict.fromkeys(channels, 0), dict.fromkeys(channels, 0)

    def note(channel: str) -> None:
        budget.note(channel, complete[channel], partial[channel])
        assert budget.held_bytes <= 2 * MAX + MESSAGE + len(channels) * (EACH + PIECE)

    def read(channel: str) -> bool:
        count = min(PIECE, left[channel])
        # As an end does: what waits for its application has a bound of its own.
        if not count or complete[channel] >= MESSAGE or not budget.may_read(channel):
            return False
        left[channel] -= count
        partial[channel] += count
        if partial[channel] >= MESSAGE:
            complete[channel] += MESSAGE
            partial[channel] -= MESSAGE
        note(channel)
        return True

    def take(channel: str) -> None:
        if complete[channel]:
            complete[channel] -= MESSAGE
            note(channel)

    for channel, reads in data.draw(
        st.lists(st.tuples(st.sampled_from(channels), st.integers(0, 12)), max_size=60)
    ):
        if reads == 0:
            take(channel)
        while reads and read(channel):
            reads -= 1
    while any(left.values()):
        if not any([read(channel) for channel in channels]):
            assert any(complete.values()), "nobody may go on, and nobody is waited for"
            for channel in channels:
                take(channel)
    assert not any(partial.values())
