from __future__ import annotations

from jsonbus.doctor.echo import Answer
from jsonbus.doctor.echo_figures import BACK, THERE, find_fates


def answers(**heard_by_id: int) -> dict[int, Answer]:
    return {int(key[1:]): Answer(0.001, heard) for key, heard in heard_by_id.items()}


def test_between_two_answers_the_count_tells_where_echoes_got_lost() -> None:
    assert find_fates(4, answers(_1=1, _4=2)) == {2: THERE, 3: THERE}
    assert find_fates(4, answers(_1=1, _4=4)) == {2: BACK, 3: BACK}
    assert find_fates(4, answers(_1=1, _4=3)) == {2: None, 3: None}


def test_nothing_is_known_before_the_first_answer_and_after_the_last() -> None:
    assert find_fates(5, answers(_3=1)) == {1: None, 2: None, 4: None, 5: None}
    assert find_fates(2, {}) == {1: None, 2: None}
    assert find_fates(2, answers(_1=1, _2=2)) == {}


def test_a_listener_that_began_to_count_anew_confuses_nobody() -> None:
    assert find_fates(3, answers(_1=500, _3=1)) == {2: THERE}
