"""Several nodes of the name that is meant: two that are there, or one that came back."""

from __future__ import annotations

from jsonbus.core.channel_limits import ASK_AFTER_S, FIND_S
from jsonbus.core.connecting import Ask, Attempt, Dial, Fail
from jsonbus.core.whereabouts import Place
from jsonbus.errors import ChannelRefusedError

START = 100.0
OLD = Place("id-old", "bob", host="10.0.0.1", port=1, told_at=START - 1, answered_at=START - 1)
NEW = OLD._replace(node="id-new", port=2)


def begin(*, retry: bool = False) -> Attempt:
    """One that has asked, since it knows two of that name."""
    attempt = Attempt("bob", "news", 10.0, START, retry=retry)
    assert attempt.step([NEW, OLD], START) == Ask("bob")
    return attempt


def tell(place: Place, after_s: float) -> Place:
    return place._replace(told_at=START + after_s, answered_at=START + after_s)


def test_one_that_came_back_under_its_name_is_the_one_that_is_meant() -> None:
    attempt = begin()
    places = [tell(NEW, 0.01), OLD]
    assert attempt.step(places, START + 0.01) is None  # the other has its chance
    assert attempt.step(places, START + ASK_AFTER_S[1]) == Ask("bob")
    assert attempt.step(places, START + ASK_AFTER_S[2]) == Dial(places[0])


def test_two_that_answer_are_ambiguous_at_once() -> None:
    step = begin(retry=True).step([tell(NEW, 0.01), tell(OLD, 0.02)], START + 0.02)
    assert isinstance(step, Fail) and isinstance(step.error, ChannelRefusedError)
    assert (step.error.reason, step.error.nodes) == ("ambiguous", ("id-new", "id-old"))


def test_none_that_answers_is_dialed_or_called_ambiguous() -> None:
    attempt = begin()
    while (step := attempt.step([NEW, OLD], START + FIND_S)) == Ask("bob"):
        pass
    assert isinstance(step, Fail) and isinstance(step.error, ChannelRefusedError)
    assert step.error.reason == "gone"
