from __future__ import annotations

from jsonbus.survey import Rhythms
from tests.survey.making import make_message


def test_every_topic_has_its_own_rhythm() -> None:
    taken = Rhythms()
    taken.take([make_message("b", 1, n, sent_at=n) for n in range(3)])
    taken.take([make_message("a", 1, n, sent_at=n / 10) for n in range(3, 9)])
    views = taken.views(2.0)
    assert list(views) == ["a", "b"]
    assert [view.messages for view in views.values()] == [6, 3]
    assert views["b"].rate == 1.0
    assert taken.taken == 9


def test_no_more_messages_are_taken_than_wanted() -> None:
    taken = Rhythms()
    taken.take([make_message("a", 1, n) for n in range(9)], 5)
    taken.take([make_message("a", 1, 9)], 5)
    assert (taken.taken, taken.views(0.0)["a"].messages) == (5, 5)


def test_retained_messages_are_no_topics_rhythm() -> None:
    taken = Rhythms()
    taken.take([make_message("a", 1, 1, is_retained=True)])
    assert (taken.taken, taken.views(0.0)) == (0, {})


def test_the_topic_that_was_silent_longest_makes_room() -> None:
    taken = Rhythms(topics_max=2)
    for at, name in enumerate("abac"):
        taken.take([make_message(name, 1, at, received_at=at)])
    assert (list(taken.views(0.0)), taken.forgotten) == (["a", "c"], 1)
