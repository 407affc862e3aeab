from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import jsonbus
from jsonbus.survey import Survey
from tests.survey.making import make_message, make_node

LEVELS = st.sampled_from(["a", "b", "c"])
TOPICS = st.lists(LEVELS, min_size=1, max_size=4).map("/".join)
PATTERNS = st.lists(LEVELS | st.sampled_from(["*", "**"]), min_size=1, max_size=4).map("/".join)


@pytest.mark.slow
@given(st.lists(TOPICS, min_size=1), st.lists(st.lists(PATTERNS, max_size=4), max_size=4))
def test_subscribers_are_the_nodes_whose_patterns_match(
    topics: list[str], wishes: list[list[str]]
) -> None:
    taken = Survey()
    taken.take([make_message(each) for each in topics])
    nodes = [make_node(f"n{n}", *patterns) for n, patterns in enumerate(wishes)]
    for view in taken.picture(0.0, nodes, {}).topics:
        assert view.subscribers == tuple(
            info.name
            for info in nodes
            if any(jsonbus.topic_matches(each, view.topic) for each in info.patterns)
        )


def test_changes_of_the_lists_are_seen_in_the_next_picture() -> None:
    taken = Survey()
    taken.take([make_message("a/b")])
    for nodes, expected in (
        ([make_node("n1", "a/*")], ("name of n1",)),
        ([make_node("n1", "a/*"), make_node("n2", "**", "a/b")], ("name of n1", "name of n2")),
        ([make_node("n2", "c")], ()),
        ([make_node("n2", "a/b", name="renamed")], ("renamed",)),
        ([make_node("n3", "a/b", name="same"), make_node("n4", "**", name="same")], ("same",) * 2),
    ):
        assert taken.picture(0.0, nodes, {}).topics[0].subscribers == expected


def test_who_serves_requests_of_a_topic_is_no_subscriber_of_it() -> None:
    taken = Survey()
    taken.take([make_message("add")])
    nodes = [make_node("n1", "jsonbus.request/add")]
    assert taken.picture(0.0, nodes, {}).topics[0].subscribers == ()
