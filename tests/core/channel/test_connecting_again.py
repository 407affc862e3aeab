"""Attempts that try again, their deadlines, and that none runs in circles."""

from __future__ import annotations

import random

import pytest

from jsonbus.core.channel.connecting import Ask, Dial, Fail
from jsonbus.core.channel.limits import FIND_S, RETRY_MAX_S, RETRY_MIN_S
from jsonbus.core.channel.wire import Refusal
from jsonbus.errors import ChannelTimeoutError
from tests.core.channel.attempt_story import (
    LISTED,
    START,
    TIMEOUT_S,
    TOLD,
    Story,
    error_of,
    reason_of,
)


@pytest.mark.parametrize("reason", ["unbound", "taken", "busy"])
def test_refused_attempt_rests_and_tries_again(reason: str) -> None:
    story = Story(TOLD, retry=True)
    story.act()
    assert story.refuse(Refusal("id-bob", "bob", reason)) is None
    assert story.attempt.state == "resting"
    story.now = story.attempt.timer_at()
    assert story.act() == Ask("bob")
    assert isinstance(story.tell(), Dial)


def test_pauses_grow_to_their_longest() -> None:
    story = Story(TOLD, retry=True, timeout_s=60.0)
    story.act()
    pauses = []
    for _ in range(8):
        story.refuse()
        pauses.append(round(story.attempt.timer_at() - story.now, 6))
        story.now = story.attempt.timer_at()
        story.act()
        story.tell()
    assert pauses[:4] == [RETRY_MIN_S * factor for factor in (1, 2, 4, 8)]
    assert set(pauses[4:]) == {RETRY_MAX_S}


def rest(story: Story) -> None:
    """Be refused until the pauses are long."""
    story.act()
    for _ in range(6):
        story.refuse()
        story.now = story.attempt.timer_at()
        story.act()
        story.tell(story.places[0])
    story.refuse()
    assert story.attempt.state == "resting"


def test_news_of_the_node_end_a_rest() -> None:
    story = Story(TOLD, retry=True)
    rest(story)
    story.places = [TOLD._replace(port=50_000, introduced_at=story.now)]
    story.now += 0.001
    assert story.act() == Ask("bob")
    assert isinstance(story.tell(TOLD._replace(port=50_000)), Dial)


def test_node_that_appears_ends_a_rest() -> None:
    story = Story(retry=True)
    story.run(FIND_S + 0.01)
    assert story.attempt.state == "resting"
    story.places = [LISTED]
    assert story.act() == Ask("bob")


def test_node_that_tells_the_same_again_ends_no_rest() -> None:
    story = Story(TOLD, retry=True)
    rest(story)
    assert story.tell() is None and story.tell() is None
    assert story.attempt.state == "resting"


def test_two_who_try_again_do_not_wake_each_other() -> None:
    stories = [Story(TOLD, retry=True), Story(TOLD, retry=True)]
    now, answered = START, 0
    while now < START + TIMEOUT_S - 0.1:
        asked = sum(len(story.asked_at) for story in stories)
        for number, story in enumerate(stories):
            if now < START + 0.03 * number:
                continue  # so that they do not rest at the same time
            story.now = now
            if story.attempt.state == "dialing":
                story.refuse()
            if asked > answered:  # both hear the answer, whoever asked
                story.tell()
            else:
                story.act()
        now, answered = now + 0.01, asked
    for story in stories:
        assert 10 < len(story.asked_at) <= TIMEOUT_S / RETRY_MAX_S + 5


# --- The deadline --------------------------------------------------------------------------------


def test_attempt_that_is_not_answered_ends_at_its_deadline() -> None:
    story = Story(TOLD, timeout_s=2.0)
    story.run(5)
    at, step = story.did[-1]
    error = error_of(step)
    assert at == 2.0 and isinstance(error, ChannelTimeoutError)
    assert str(error) == "bob did not answer within 2 s (bob, 'door')"


def test_deadline_ends_a_search() -> None:
    story = Story(timeout_s=0.2)
    story.run(5)
    at, step = story.did[-1]
    assert at == 0.2 and isinstance(error_of(step), ChannelTimeoutError)


def test_attempt_with_retry_ends_with_the_last_refusal() -> None:
    story = Story(TOLD, retry=True, timeout_s=2.0)
    rest(story)
    story.refuse()
    story.run(5)
    at, step = story.did[-1]
    assert at == 2.0 and reason_of(step) == "unbound"


def test_nothing_is_begun_at_the_deadline_of_a_rest() -> None:
    story = Story(TOLD, retry=True, timeout_s=0.02)
    story.act()
    story.refuse()
    story.run(1)
    assert [type(step) for _, step in story.did] == [Dial, Fail]


def test_refusal_at_the_deadline_is_the_last() -> None:
    story = Story(TOLD, retry=True, timeout_s=0.02)
    story.act()
    assert reason_of(story.refuse(after_s=0.02)) == "unbound"


# --- Whatever happens ----------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(60))
def test_attempt_always_comes_to_an_end_and_never_runs_in_circles(seed: int) -> None:
    rng = random.Random(seed)
    story = Story(*rng.choice([[], [LISTED], [TOLD]]), retry=rng.random() < 0.7, timeout_s=3.0)
    happenings = [
        lambda: story.tell(TOLD._replace(port=rng.choice([None, 1, 2]))),
        lambda: story.refuse(Refusal("id-bob", "bob", rng.choice(["unbound", "taken", "gone"]))),
        lambda: story.fail_dialing(),
        lambda: story.places.clear(),
        lambda: story.run(rng.random() * 0.3),
    ]
    while story.attempt.state != "done":
        assert story.now < START + 3.5
        rng.choice(happenings)()
        story.act()
    fails = [step for _, step in story.did if isinstance(step, Fail)]
    assert len(fails) == 1 and isinstance(story.did[-1][1], Fail)
    assert len(story.did) < 300
