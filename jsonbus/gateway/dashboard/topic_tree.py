"""Topics as a tree by their levels, of which some branches are open.

Made anew when topics come or go, which is seldom; every look in between only reads it. Levels that
have nothing beside them are one row (`plant/hall-2/line-7`), so deep trees stay readable.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import jsonbus


class Branch:
    """One row of the tree: a topic, or what topics have in common, or both."""

    __slots__ = ("branches", "depth", "is_topic", "name", "path")

    def __init__(self, name: str, path: str, depth: int = 0) -> None:
        self.name = name
        self.path = path
        self.depth = depth
        self.is_topic = False
        self.branches: dict[str, Branch] = {}

    def topics(self) -> Iterator[str]:
        """All topics here and below."""
        if self.is_topic:
            yield self.path
        for branch in self.branches.values():
            yield from branch.topics()


class TopicTree:
    """See the head of this file."""

    def __init__(self) -> None:
        self._given: tuple[str, list[str]] = ("", [])
        self._root = Branch("", "")
        self._open: set[str] = set()
        self._is_all_open = False
        self._rows: list[Branch] | None = None

    def update(self, topics: Iterable[str], wanted: str = "") -> None:
        """These are the topics; `wanted` is what people type to see some of them: a pattern, or a
        part of the name. All of the tree is open then."""
        given = (wanted, list(topics))
        if given == self._given:
            return
        self._given = given
        self._is_all_open = bool(wanted)
        self._root = _grow(sorted(filter_topics(given[1], wanted)))
        self._rows = None

    def toggle(self, path: str) -> None:
        """Open a branch, or close it."""
        self._open ^= {path}
        if len(self._open) > 10_000:  # somebody else than a person
            self._open.clear()
        self._rows = None

    def is_open(self, branch: Branch) -> bool:
        return self._is_all_open or branch.path in self._open

    def open_to(self, topic: str) -> None:
        """Open all branches on the way to a topic."""
        steps = topic.split("/")
        self._open.update("/".join(steps[:count]) for count in range(1, len(steps)))
        self._rows = None

    def open_first(self, rows_max: int) -> None:
        """Open what fits on a screen, from the outside in."""
        waiting = list(self._root.branches.values())
        rows = len(waiting)
        for branch in waiting:
            rows += len(branch.branches)
            if rows > rows_max:
                break
            if branch.branches:
                self._open.add(branch.path)
                waiting += branch.branches.values()
        self._rows = None

    def rows(self) -> list[Branch]:
        """What is to be seen, from top to bottom."""
        if self._rows is None:
            self._rows = list(self._list(self._root))
        return self._rows

    def _list(self, branch: Branch) -> Iterator[Branch]:
        for each in branch.branches.values():
            yield each
            if each.branches and self.is_open(each):
                yield from self._list(each)


def filter_topics(topics: Iterable[str], wanted: str) -> list[str]:
    """Those that match a pattern, or have the text in their name, whatever its case."""
    if not wanted:
        return list(topics)
    if "*" in wanted:
        try:
            pattern = jsonbus.check_pattern(wanted)
        except ValueError:
            return []
        return [topic for topic in topics if jsonbus.topic_matches(pattern, topic)]
    text = wanted.lower()
    return [topic for topic in topics if text in topic.lower()]


def _grow(topics: list[str]) -> Branch:
    root = Branch("", "")
    for topic in topics:
        branch = root
        path = ""
        for level in topic.split("/"):
            path = f"{path}/{level}" if path else level
            branch = branch.branches.setdefault(level, Branch(level, path))
        branch.is_topic = True
    _settle(root, -1)
    return root


def _settle(branch: Branch, depth: int) -> None:
    """Join levels that have nothing beside them, and count how deep the others are."""
    branch.depth = depth
    for name, below in list(branch.branches.items()):
        while len(below.branches) == 1 and not below.is_topic:
            (only,) = below.branches.values()
            only.name = f"{below.name}/{only.name}"
            below = only
        branch.branches[name] = below
        _settle(below, depth + 1)
