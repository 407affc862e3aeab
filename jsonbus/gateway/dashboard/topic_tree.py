"""Topics as a tree by their levels, with some branches open.

The tree is rebuilt when topics come or go, which is rare; snapshots in between only read it. Levels
without siblings share one row (`plant/hall-2/line-7`), so deep trees stay readable.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import jsonbus


class Branch:
    """One row of the tree: a topic, a common prefix of topics, or both."""

    __slots__ = ("branches", "depth", "is_topic", "name", "path")

    def __init__(self, name: str, path: str, depth: int = 0) -> None:
        self.name = name
        self.path = path
        self.depth = depth
        self.is_topic = False
        self.branches: dict[str, Branch] = {}

    def topics(self) -> Iterator[str]:
        """Return all topics here and below."""
        if self.is_topic:
            yield self.path
        for branch in self.branches.values():
            yield from branch.topics()


class TopicTree:
    """The tree of one page."""

    def __init__(self) -> None:
        self._given: tuple[str, list[str]] = ("", [])
        self._root = Branch("", "")
        self._open: set[str] = set()
        self._is_all_open = False
        self._rows: list[Branch] | None = None

    def update(self, topics: Iterable[str], wanted: str = "") -> None:
        """Set the topics; `wanted` filters them by a pattern or a part of the name. A filtered tree
        is all open."""
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
        if len(self._open) > 10_000:  # more than a person would open
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
        """Open branches that fit on a screen, from the outside in."""
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
        """Return the visible rows, from top to bottom."""
        if self._rows is None:
            self._rows = list(self._list(self._root))
        return self._rows

    def _list(self, branch: Branch) -> Iterator[Branch]:
        for each in branch.branches.values():
            yield each
            if each.branches and self.is_open(each):
                yield from self._list(each)


def filter_topics(topics: Iterable[str], wanted: str) -> list[str]:
    """Return the topics that match a pattern, or contain the text in any case."""
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
    """Join levels without siblings, and note the depth of the others."""
    branch.depth = depth
    for name, below in list(branch.branches.items()):
        while len(below.branches) == 1 and not below.is_topic:
            (only,) = below.branches.values()
            only.name = f"{below.name}/{only.name}"
            below = only
        branch.branches[name] = below
        _settle(below, depth + 1)
