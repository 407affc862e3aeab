"""The subscriptions of this process, and the patterns that other nodes want.

Both are read for every message and written rarely, so writers pay. Neither has a lock. Reading
(`subscribers_of`, `wants`, `generation`, `in`, `len`) is safe from any thread at any time: each
result is an immutable snapshot, made without waiting. A writer must exclude other writers; a front
end's lock does that.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Generic, TypeVar

from jsonbus.core.routing.matching import is_pattern
from jsonbus.core.routing.pattern_map import PatternMap

S = TypeVar("S", bound=Hashable)


class SubscriptionStore(Generic[S]):
    """Maps patterns to subscribers and subscribers to patterns, each with one look-up.

    A subscriber is any hashable object. A pattern is forgotten with its last subscriber, and a
    subscriber with its last pattern.
    """

    __slots__ = ("_patterns_of", "_subscribers", "generation")

    def __init__(self) -> None:
        self._subscribers: PatternMap[S] = PatternMap()
        self._patterns_of: dict[S, dict[str, None]] = {}  # the inner dict is an ordered set
        #: Incremented after every change becomes visible: all results stay valid until then.
        self.generation = 0

    def __len__(self) -> int:
        """Return the number of patterns that have a subscriber."""
        return len(self._subscribers)

    def __contains__(self, pattern: object) -> bool:
        """Return whether exactly this pattern has a subscriber."""
        return pattern in self._subscribers

    def subscribe(self, pattern: str, subscriber: S) -> bool:
        """Add a subscription to a valid pattern; return False, without a change, if it exists."""
        if not self._subscribers.add(pattern, subscriber):
            return False
        self._patterns_of.setdefault(subscriber, {})[pattern] = None
        self.generation += 1
        return True

    def unsubscribe(self, pattern: str, subscriber: S) -> bool:
        """End one subscription; return False, without a change, if there is none."""
        if not self._subscribers.discard(pattern, subscriber):
            return False
        patterns = self._patterns_of[subscriber]
        del patterns[pattern]
        if not patterns:
            del self._patterns_of[subscriber]
        self.generation += 1
        return True

    def remove(self, subscriber: S) -> tuple[str, ...]:
        """End all subscriptions of one subscriber at once; return the patterns it had."""
        patterns = tuple(self._patterns_of.pop(subscriber, ()))
        if patterns:
            self._subscribers.discard_all(patterns, subscriber)
            self.generation += 1
        return patterns

    def subscribers_of(self, topic: str) -> tuple[S, ...]:
        """Return the subscribers that want the topic now, each once, oldest subscription first.

        Later changes do not affect the tuple, so a caller may subscribe and unsubscribe while
        iterating over it. The topic must be valid.
        """
        return self._subscribers.find(topic)

    def patterns_of(self, subscriber: S) -> tuple[str, ...]:
        """Return the patterns of one subscriber, oldest first. Call it only where writers may."""
        return tuple(self._patterns_of.get(subscriber, ()))

    def patterns(self) -> tuple[str, ...]:
        """Return all patterns with a subscriber, oldest first. Call it only where writers may."""
        return tuple(self._subscribers.patterns())


class Interest:
    """The patterns of other nodes, counted, because several nodes may want the same one."""

    __slots__ = ("_counts", "_wildcards")

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self._wildcards: PatternMap[bool] = PatternMap()  # exact topics are in _counts alone

    def add(self, patterns: Iterable[str]) -> None:
        """Count these patterns for one more node."""
        for pattern in patterns:
            count = self._counts.get(pattern, 0)
            self._counts[pattern] = count + 1
            if count == 0 and is_pattern(pattern):
                self._wildcards.add(pattern, True)

    def remove(self, patterns: Iterable[str]) -> None:
        """Count these patterns for one node less; they must have been added before."""
        for pattern in patterns:
            count = self._counts[pattern]
            if count > 1:
                self._counts[pattern] = count - 1
                continue
            del self._counts[pattern]
            if is_pattern(pattern):
                self._wildcards.discard(pattern, True)

    def wants(self, topic: str) -> bool:
        """Return whether any node wants a topic; reserved names count by their full name only."""
        return topic in self._counts or bool(self._wildcards.find(topic))
