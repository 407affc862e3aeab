from __future__ import annotations

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

import jsonbus
from jsonbus.survey import Picture, Survey, TopicView, survey, topic
from jsonbus.survey.topic import size_of
from tests.survey.making import make_message, make_node


def look(
    taken: Survey, now: float = 0.0, *nodes: jsonbus.NodeInfo
) -> tuple[Picture, dict[str, TopicView]]:
    picture = taken.picture(now, nodes, {})
    return picture, {view.topic: view for view in picture.topics}


def test_a_topic_shows_its_last_value_and_what_came_of_it() -> None:
    taken = Survey()
    look(taken)
    taken.take([make_message("a", {"x": n}, n, received_at=50.0 + n) for n in range(1, 9)])
    _, topics = look(taken, 2.0, make_node("n1"))
    a = topics["a"]
    assert (a.value, a.message.sequence, a.messages, a.last_at) == ({"x": 8}, 8, 8, 58.0)
    assert (a.rate, a.bytes, a.bytes_per_s, a.size) == (4.0, 8 * 7, 28.0, 7)
    assert (a.publishers, a.subscribers, a.loss) == (("name of n1",), (), 0.0)


def test_the_first_picture_has_no_rates_yet() -> None:
    taken = Survey()
    taken.take([make_message(sequence=1)])
    picture, topics = look(taken, 1000.0)
    assert (topics["a"].messages, topics["a"].rate, picture.overview.rate) == (1, 0.0, 0.0)


def test_a_moment_is_no_basis_for_a_rate() -> None:
    taken = Survey()
    look(taken, 0.0)
    taken.take([make_message(sequence=1)])
    assert look(taken, 0.001)[1]["a"].rate == 0.0
    assert look(taken, 0.5)[1]["a"].rate == 2.0


def test_rates_are_about_the_last_seconds() -> None:
    taken = Survey()
    number = 0
    for second in range(10):
        look(taken, float(second))
        taken.take([make_message(sequence=number + n) for n in range(10)])
        number += 10
    picture, topics = look(taken, 10.0)
    assert topics["a"].rate == picture.overview.rate == 10.0
    for second in range(11, 17):
        picture, topics = look(taken, float(second))
    assert topics["a"].rate == picture.overview.rate == 0.0


@pytest.mark.slow
@given(st.lists(st.floats(0.01, 7.0), max_size=40))
def test_others_who_look_do_not_change_what_one_sees(pauses: list[float]) -> None:
    """100 messages a second, one who looks every second, and another at any time."""
    alone, shared = Survey(), Survey()
    looks = sorted([*map(float, range(30)), *(sum(pauses[:n]) for n in range(len(pauses)))])
    number = 0
    for at in (each for each in looks if each < 30):
        while number < at * 100:
            for each in (alone, shared):
                each.take([make_message(sequence=number)])
            number += 1
        picture, _ = look(shared, at)
        if at >= 1.0:
            assert picture.overview.rate == pytest.approx(100, abs=2)
        if at == int(at):
            expected, _ = look(alone, at)
            assert picture.overview.rate == pytest.approx(expected.overview.rate, abs=2)


def test_who_looks_rarely_gets_the_rate_since_the_last_look() -> None:
    taken = Survey()
    look(taken, 0.0)
    taken.take([make_message(sequence=n) for n in range(30)])
    look(taken, 15.0)
    taken.take([make_message(sequence=30 + n) for n in range(60)])
    _, topics = look(taken, 30.0)
    assert topics["a"].rate == 4.0


def test_a_late_message_counts_but_does_not_replace_a_newer_value() -> None:
    taken = Survey()
    taken.take([make_message("a", n, n) for n in (1, 3, 2)])
    _, topics = look(taken)
    assert (topics["a"].value, topics["a"].messages, topics["a"].late) == (3, 3, 1)


def test_a_message_that_comes_twice_counts_once() -> None:
    taken = Survey()
    taken.take([make_message("a", n, n) for n in (1, 2, 3, 2, 3, 1)])
    picture, topics = look(taken)
    assert (topics["a"].value, topics["a"].messages, topics["a"].duplicates) == (3, 3, 3)
    assert (picture.overview.messages, picture.overview.duplicates) == (3, 3)


def test_a_publisher_that_starts_again_begins_a_new_sequence() -> None:
    taken = Survey()
    taken.take([make_message("a", "old", 900), make_message("a", "new", 1, incarnation=2)])
    _, topics = look(taken)
    assert (topics["a"].value, topics["a"].late, topics["a"].messages) == ("new", 0, 2)


def test_messages_without_a_sequence_count_as_they_come() -> None:
    taken = Survey()
    taken.take([make_message("a", 1, node="plain:1.2.3.4:5"), make_message("a", 2)])
    _, topics = look(taken)
    assert (topics["a"].value, topics["a"].messages) == (2, 2)


def test_the_later_value_of_several_publishers_is_shown() -> None:
    taken = Survey()
    taken.take([make_message("a", 1, 50, node="n1"), make_message("a", 2, 3, node="n2")])
    _, topics = look(taken, 0.0, make_node("n1"), make_node("n2"))
    assert topics["a"].value == 2
    assert topics["a"].publishers == ("name of n1", "name of n2")


def test_a_retained_value_is_shown_until_there_is_a_new_one_and_never_counted() -> None:
    taken = Survey()
    taken.take([make_message("a", "past", 7, is_retained=True)])
    picture, topics = look(taken)
    assert (topics["a"].value, topics["a"].messages) == ("past", 0)
    assert picture.overview.messages == 0
    taken.take([make_message("a", "present", 7), make_message("a", "past", 6, is_retained=True)])
    _, topics = look(taken)
    assert (topics["a"].value, topics["a"].messages) == ("present", 1)


def test_the_topics_that_were_silent_longest_make_room_and_are_counted() -> None:
    taken = Survey(topics_max=3)
    taken.take([make_message(each, 1, received_at=n) for n, each in enumerate("abc")])
    taken.take([make_message("a", 2, received_at=10.0), make_message("d", 1, received_at=11.0)])
    picture, topics = look(taken)
    assert topics.keys() == {"a", "c", "d"}
    assert (picture.overview.topics, picture.overview.topics_forgotten) == (3, 1)
    assert picture.overview.messages == 5


def test_a_topic_that_was_forgotten_comes_back_without_its_past() -> None:
    taken = Survey(topics_max=1)
    taken.take([make_message("a", 1, n) for n in range(100)])
    look(taken, 0.0)
    taken.take([make_message("b", 1, 100), make_message("a", 1, 101)])
    picture, topics = look(taken, 1.0)
    assert (topics["a"].messages, topics["a"].rate) == (1, 1.0)
    assert picture.overview.rate == 2.0


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 90)), max_size=300))
def test_nothing_grows_beyond_its_bounds(messages: list[tuple[int, int]]) -> None:
    taken = Survey(topics_max=10)
    for number, (name, node) in enumerate(messages):
        taken.take([make_message(f"t{name}", 1, number, node=f"n{node}", received_at=number)])
        assert len(taken._topics) <= 10
        assert taken._publishers == sum(len(each.publishers) for each in taken._topics.values())
        assert taken._publishers <= survey.PUBLISHERS_PER_TOPIC * 10 + 10
    picture, _ = look(taken)
    assert picture.overview.messages == len(messages)


def test_publishers_of_a_topic_are_bounded_and_those_forgotten_counted() -> None:
    taken = Survey()
    taken.take([make_message("a", 1, 1, node=f"n{n}") for n in range(survey.PUBLISHERS_MAX + 5)])
    picture, topics = look(taken)
    assert len(topics["a"].publishers) == survey.PUBLISHERS_MAX
    assert (picture.overview.publishers_forgotten, topics["a"].messages) == (
        5,
        survey.PUBLISHERS_MAX + 5,
    )


def test_a_publisher_that_left_is_shown_no_more_and_a_plain_one_a_minute_longer() -> None:
    taken = Survey()
    look(taken, 0.0)
    taken.take([make_message("a", 1, 1), make_message("a", 1, node="plain:1.2.3.4:5")])
    _, topics = look(taken, 1.0, make_node("n1"))
    assert topics["a"].publishers == ("name of n1", "name of plain:1.2.3.4:5")
    for second in range(2, 20):
        _, topics = look(taken, float(second))
    assert topics["a"].publishers == ("name of plain:1.2.3.4:5",)
    for second in range(20, 20 + topic.PLAIN_SAMPLES):
        _, topics = look(taken, float(second))
    assert topics["a"].publishers == ()


def test_loss_is_that_of_all_its_publishers() -> None:
    taken = Survey()
    taken.take([make_message("a", 1, 1, node="n1"), make_message("a", 1, 1, node="n2")])
    taken.take([make_message("b", 1, 2, node="n2")])
    picture, topics = look(
        taken, 0.0, make_node("n1", received=80, lost=20), make_node("n2", received=100)
    )
    assert (topics["a"].loss, topics["b"].loss) == (0.1, 0.0)
    assert [view.loss for view in picture.nodes] == [0.2, 0.0]
    assert (picture.overview.lost_here, picture.overview.loss_here) == (20, 0.1)


def test_a_value_too_large_to_keep_is_left_out_and_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(survey, "VALUES_BYTES_MAX", 5_000)
    taken = Survey()
    taken.take([make_message("a", "x" * 3_000, 1), make_message("b", "y" * 3_000, 2)])
    taken.take([make_message("c", "z" * 900, 3)])
    _, topics = look(taken)
    assert [topics[each].is_value_kept for each in "abc"] == [True, False, True]
    assert (topics["b"].value, topics["b"].message.value, topics["b"].size) == (None, None, 3_002)
    taken.take([make_message("a", 1, 4), make_message("b", "y" * 3_000, 5)])
    _, topics = look(taken)
    assert topics["b"].is_value_kept and taken._large_bytes == 3_002


@pytest.mark.slow
def test_sizes_of_a_busy_topic_are_sampled_and_its_counts_are_not() -> None:
    taken = Survey()
    look(taken, 0.0)
    taken.take([make_message("a", n, n) for n in range(100_000, 110_000)])
    look(taken, 1.0)
    taken.take([make_message("a", n, n) for n in range(110_000, 120_000)])
    _, topics = look(taken, 2.0)
    assert (topics["a"].messages, topics["a"].rate) == (20_000, 10_000.0)
    assert 20_000 * 6 - topics["a"].bytes < survey.STRIDE * 6
    assert topics["a"].value == 119_999


def test_one_thread_takes_while_others_look() -> None:
    taken = Survey(topics_max=50)
    done = threading.Event()
    seen: list[int] = []

    def watch() -> None:
        while not done.is_set():
            seen.append(
                taken.picture(float(len(seen)), [make_node("n1", "t1")], {}).overview.topics
            )

    watchers = [threading.Thread(target=watch) for _ in range(2)]
    for each in watchers:
        each.start()
    for number in range(300):
        taken.take([make_message(f"t{(number + n) % 99}", n, node=f"n{n % 9}") for n in range(20)])
    done.set()
    for each in watchers:
        each.join()
    assert max(seen) <= 50
    assert taken.picture(1e9, [], {}).overview.messages == 6_000


def test_sizes_are_those_of_compact_json() -> None:
    assert size_of({"é": [1, None]}) == len('{"é":[1,null]}'.encode())
    assert size_of({1: 2}) == len('{"1":2}')
    assert size_of(object()) == 0
