"""Attempts to reach a port: every way through the diagram at the head of connecting.py."""

from __future__ import annotations

import math

import pytest

from jsonbus.core.channel.connecting import Ask, Dial, Fail
from jsonbus.core.channel.limits import ASK_AFTER_S, FIND_S
from jsonbus.core.channel.wire import Refusal
from jsonbus.core.membership.directory import Place
from jsonbus.errors import ChannelRefusedError
from tests.core.channel.attempt_story import (
    ELSEWHERE,
    LISTED,
    TIMEOUT_S,
    TOLD,
    UNBOUND,
    Story,
    error_of,
    reason_of,
)

ASKS = len(ASK_AFTER_S)
SECOND = Place("id-eve", "bob")


# --- Finding -------------------------------------------------------------------------------------


def test_node_that_told_where_it_is_is_dialed_at_once() -> None:
    story = Story(TOLD)
    assert story.act() == Dial(TOLD)
    assert story.attempt.state == "dialing"
    story.attempt.connected()
    assert story.act() is None
    assert story.attempt.state == "done" and story.attempt.timer_at() == math.inf


@pytest.mark.parametrize("places", [[], [LISTED], [TOLD._replace(port=None)]])
def test_node_that_did_not_tell_is_asked_and_dialed_when_it_does(places: list[Place]) -> None:
    story = Story(*places)
    assert story.act() == Ask("bob")
    step = story.tell()
    assert isinstance(step, Dial) and step.place.port == 40123
    assert story.asked_at == [0.0]


def test_question_is_repeated_in_case_it_was_lost() -> None:
    story = Story(LISTED)
    story.run(FIND_S - 0.01)
    assert story.asked_at == list(ASK_AFTER_S)
    assert isinstance(story.tell(), Dial)


def test_nobody_of_that_name_is_unknown() -> None:
    story = Story()
    story.run(TIMEOUT_S)
    at, step = story.did[-1]
    assert at == FIND_S and reason_of(step) == "unknown"
    assert len(story.did) == ASKS + 1
    assert story.attempt.state == "done"


def test_node_that_is_known_but_does_not_answer_is_gone() -> None:
    story = Story(LISTED)
    story.run(TIMEOUT_S)
    assert reason_of(story.did[-1][1]) == "gone"


def answered(*places: Place, at: float) -> list[Place]:
    return [place._replace(introduced_at=at, answered_at=at) for place in places]


def test_several_of_that_name_that_are_there_are_ambiguous() -> None:
    story = Story(TOLD, SECOND, retry=True)
    assert story.act() == Ask("bob")
    story.places = answered(TOLD, SECOND, at=story.now)
    error = error_of(story.act())
    assert isinstance(error, ChannelRefusedError)
    assert (error.reason, error.nodes) == ("ambiguous", ("id-bob", "id-eve"))
    assert "id-bob, id-eve" in str(error)


def test_several_of_that_name_that_do_not_answer_are_gone() -> None:
    story = Story(TOLD, SECOND)
    story.run(FIND_S)
    assert reason_of(story.did[-1][1]) == "gone"
    assert len(story.asked_at) == ASKS


def test_of_several_with_that_name_the_only_one_that_answers_is_meant() -> None:
    story = Story(TOLD, SECOND)
    story.act()
    story.places = [SECOND, *answered(TOLD, at=story.now)]
    assert story.act() is None  # the other may answer yet
    story.run(FIND_S)
    assert [place.node for place in story.dialed] == ["id-bob"]


def test_of_several_with_that_name_one_that_joins_after_all_questions_is_meant() -> None:
    story = Story(SECOND, retry=True)
    story.run(ASK_AFTER_S[-1])
    story.places = [TOLD._replace(introduced_at=story.now), SECOND]
    story.run(FIND_S)
    assert [place.node for place in story.dialed] == ["id-bob"]


def test_node_that_answers_without_a_port_has_bound_nothing() -> None:
    story = Story(LISTED)
    story.act()
    assert reason_of(story.answer(TOLD._replace(port=None))) == "unbound"


def test_what_a_node_says_unasked_may_be_older_than_its_port() -> None:
    story = Story(LISTED)
    story.act()
    assert story.tell(TOLD._replace(port=None)) is None  # said when it joined, perhaps
    assert isinstance(story.tell(), Dial)


def test_node_that_tells_of_itself_but_does_not_answer_is_gone() -> None:
    story = Story(LISTED)
    story.act()
    story.tell(TOLD._replace(port=None))
    story.run(FIND_S)
    assert reason_of(story.did[-1][1]) == "gone"


def test_own_node_is_never_asked() -> None:
    own = Place("id-bob", "bob", is_self=True)
    assert reason_of(Story(own).act()) == "unbound"
    story = Story(own._replace(host="127.0.0.1", port=7))
    assert isinstance(story.act(), Dial)
    assert reason_of(story.fail_dialing()) == "gone"


# --- What is known may be old --------------------------------------------------------------------


def test_node_that_is_not_where_it_was_is_asked_anew_and_dialed_there() -> None:
    story = Story(TOLD)
    story.act()
    assert story.fail_dialing() == Ask("bob")
    assert story.act() is None  # what it knows already has proved wrong
    step = story.tell(TOLD._replace(port=50_000))
    assert isinstance(step, Dial) and step.place.port == 50_000


def test_another_node_at_that_address_is_as_good_as_nobody() -> None:
    story = Story(TOLD)
    story.act()
    assert story.refuse(ELSEWHERE) == Ask("bob")
    story.tell()
    assert reason_of(story.refuse(ELSEWHERE)) == "gone"


def test_node_that_told_just_now_and_does_not_answer_is_gone() -> None:
    story = Story(TOLD)
    story.act()
    story.fail_dialing()
    story.tell()
    error = error_of(story.fail_dialing("no route to host"))
    assert isinstance(error, ChannelRefusedError)
    assert (error.node, error.reason, error.detail) == ("bob", "gone", "no route to host")
    assert len(story.dialed) == 2


def test_node_that_is_asked_anew_in_vain_is_gone() -> None:
    story = Story(TOLD)
    story.act()
    story.fail_dialing()
    story.run(TIMEOUT_S)
    assert story.asked_at == [round(0.001 + at, 6) for at in ASK_AFTER_S]
    error = error_of(story.did[-1][1])
    assert isinstance(error, ChannelRefusedError)
    assert (error.reason, error.detail) == ("gone", "connection refused")


# --- Refusals ------------------------------------------------------------------------------------


@pytest.mark.parametrize("reason", ["unbound", "taken", "version", "busy"])
def test_refusal_ends_an_attempt_without_retry(reason: str) -> None:
    story = Story(TOLD)
    story.act()
    error = error_of(story.refuse(Refusal("id-bob", "Robert", reason, "why")))
    assert isinstance(error, ChannelRefusedError)
    assert (error.node, error.port, error.reason) == ("Robert", "door", reason)
    assert error.detail == "why"


def test_other_version_ends_an_attempt_with_retry_too() -> None:
    story = Story(TOLD, retry=True)
    story.act()
    assert reason_of(story.refuse(UNBOUND._replace(reason="version"))) == "version"


def test_failure_is_told_once() -> None:
    story = Story(TOLD)
    story.act()
    story.refuse()
    assert story.attempt.step(story.places, story.now) is None


def test_what_comes_after_the_end_is_of_no_interest() -> None:
    story = Story(TOLD)
    story.run(TIMEOUT_S)
    assert isinstance(story.did[-1][1], Fail)
    assert (
        story.fail_dialing() is None and story.refuse() is None and story.refuse(ELSEWHERE) is None
    )
    assert story.attempt.state == "done"
