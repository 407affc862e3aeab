"""Topics as a tree."""

from __future__ import annotations

from jsonbus.gateway.dashboard.topic_tree import TopicTree, filter_topics

TOPICS = ["plant/b/temp", "plant/a/temp", "plant/a/load", "door", "plant/a"]


def shown(tree: TopicTree) -> list[str]:
    return ["  " * row.depth + row.name for row in tree.rows()]


def test_branches_are_closed_until_somebody_opens_them() -> None:
    tree = TopicTree()
    tree.update(TOPICS)
    assert shown(tree) == ["door", "plant"]
    tree.toggle("plant")
    assert shown(tree) == ["door", "plant", "  a", "  b/temp"]
    tree.toggle("plant/a")
    assert shown(tree) == ["door", "plant", "  a", "    load", "    temp", "  b/temp"]
    tree.toggle("plant")
    assert shown(tree) == ["door", "plant"]


def test_a_branch_may_be_a_topic_as_well() -> None:
    tree = TopicTree()
    tree.update(TOPICS)
    tree.open_to("plant/a/load")
    branch = next(row for row in tree.rows() if row.path == "plant/a")
    assert branch.is_topic
    assert sorted(branch.topics()) == ["plant/a", "plant/a/load", "plant/a/temp"]


def test_levels_with_nothing_beside_them_are_one_row() -> None:
    deep = "/".join(map(str, range(60)))
    tree = TopicTree()
    tree.update([deep])
    (row,) = tree.rows()
    assert (row.name, row.path, row.depth, row.is_topic) == (deep, deep, 0, True)
    tree.update([deep, "0/1/x"])
    tree.toggle("0/1")
    assert [row.path for row in tree.rows()] == ["0/1", deep, "0/1/x"]


def test_what_was_open_stays_open_when_topics_come_and_go() -> None:
    tree = TopicTree()
    tree.update(TOPICS)
    tree.open_to("plant/a/load")
    tree.update([*TOPICS, "plant/a/new"])
    assert "    new" in shown(tree)
    tree.update(["door"])
    tree.update(TOPICS)
    assert "    load" in shown(tree)


def test_at_first_as_much_is_open_as_fits() -> None:
    tree = TopicTree()
    tree.update([f"{a}/{b}/{c}" for a in "xyz" for b in "ab" for c in range(20)])
    tree.open_first(20)
    assert len(tree.rows()) == 9
    tree.open_first(1_000)
    assert len(tree.rows()) == 129


def test_a_search_opens_all_that_it_finds() -> None:
    tree = TopicTree()
    tree.update(TOPICS, "TEMP")
    assert shown(tree) == ["plant", "  a/temp", "  b/temp"]
    tree.update(TOPICS, "plant/*/temp")
    assert shown(tree) == ["plant", "  a/temp", "  b/temp"]
    tree.update(TOPICS, "nothing")
    assert shown(tree) == []
    tree.update(TOPICS, "")
    assert shown(tree) == ["door", "plant"]


def test_a_pattern_that_is_none_finds_nothing() -> None:
    assert filter_topics(TOPICS, "plant/*x") == []
    assert filter_topics(TOPICS, "**") == TOPICS
