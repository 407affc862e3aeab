"""Finds which nodes want a topic."""

from __future__ import annotations

from collections.abc import Sequence

import jsonbus


class Subscribers:
    """Names of the nodes whose patterns match a topic.

    The nodes' lists change rarely, topics are looked up all the time: so callers cache the answer
    until `generation` changes.
    """

    def __init__(self) -> None:
        #: Changes whenever an answer may have changed.
        self.generation = 0
        self._seen: list[tuple[str, str, tuple[str, ...]]] = []
        self._store: jsonbus.SubscriptionStore[tuple[str, str]] = jsonbus.SubscriptionStore()

    def update(self, nodes: Sequence[jsonbus.NodeInfo]) -> None:
        """Take the nodes' lists; cheap if nothing changed."""
        seen = [(info.name, info.node, info.patterns) for info in nodes]
        if seen == self._seen:
            return
        self._seen = seen
        self.generation += 1
        store: jsonbus.SubscriptionStore[tuple[str, str]] = jsonbus.SubscriptionStore()
        for info in nodes:
            for pattern in info.wants:
                store.subscribe(pattern, (info.name, info.node))
        self._store = store

    def of(self, topic: str) -> tuple[str, ...]:
        """Return the names, sorted; nodes with the same name are all there."""
        return tuple(sorted(name for name, _ in self._store.subscribers_of(topic)))
