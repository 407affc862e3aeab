"""Who wants what: the subscriptions of this process, and the patterns other nodes asked for.

Both are read for every message and written seldom, so writers pay. Neither has a lock. Reading
(`subscribers_of`, `wants`, `generation`, `in`, `len`) is safe from any thread at any time: each
result is an immutable snapshot, put together without waiting. Whoever writes must keep other
writers out; a front end's lock does that.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Generic, TypeVar

from jsonbus.core.routing.pattern_map import PatternMap
from jsonbus.core.routing.topics import is_pattern

S = TypeVar("S", bound=Hashable)


class SubscriptionStore(Generic[S]):
    """Pattern to subscribers and subscriber to patterns, each found by one look-up.

    A subscriber is any hashable object. A pattern whose last subscriber goes is forgotten, and so
    is a subscriber without patterns.
    """

    __slots__ = ("_patterns_of", "_subscribers", "generation")

    def __init__(self) -> None:
        self._subscribers: PatternMap[S] = PatternMap()
        self._patterns_of: dict[S, dict[str, None]] = {}  # the inner dict is an ordered set
        #: Raised by every change, after it can be seen: while it stays, so do all results.
        self.generation = 0

    def __len__(self) -> int:
        """How many patterns have a subscriber."""
        return len(self._subscribers)

    def __contains__(self, pattern: object) -> bool:
        """Whether exactly this pattern has a subscriber."""
        return pattern in self._subscribers

    def subscribe(self, pattern: str, subscriber: S) -> bool:
        """Note a subscription to a valid pattern; False, and no change, if it is known already."""
        if not self._subscribers.add(pattern, subscriber):
            return False
        self._patterns_of.setdefault(subscriber, {})[pattern] = None
        self.generation += 1
        return True

    def unsubscribe(self, pattern: str, subscriber: S) -> bool:
        """End one subscription; False, and no change, if there is none."""
        if not self._subscribers.discard(pattern, subscriber):
            return False
        patterns = self._patterns_of[subscriber]
        del patterns[pattern]
        if not patterns:
            del self._patterns_of[subscriber]
        self.generation += 1
        return True

    def remove(self, subscriber: S) -> tuple[str, ...]:
        """End all subscriptions of one subscriber at once; returns the patterns it had."""
        patterns = tuple(self._patterns_of.pop(subscriber, ()))
        if patterns:
            self._subscribers.discard_all(patterns, subscriber)
            self.generation += 1
        return patterns

    def subscribers_of(self, topic: str) -> tuple[S, ...]:
        """Exactly those who want the topic now, each once, oldest subscription first.

        Later changes do not touch the tuple: whoever visits it may subscribe and unsubscribe
        meanwhile. A name that is not a valid topic has no subscribers.
        """
        return self._subscribers.match(topic)

    def patterns_of(self, subscriber: S) -> tuple[str, ...]:
        """What one subscriber asked for, oldest first. For writers and those they keep out."""
        return tuple(self._patterns_of.get(subscriber, ()))

    def patterns(self) -> list[str]:
        """All patterns with a subscriber, oldest first. For writers and those they keep out."""
        return self._subscribers.patterns()


class Interest:
    """The patterns of other nodes, counted: several nodes may want the same."""

    __slots__ = ("_counts", "_wildcards", "generation")

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self._wildcards: PatternMap[bool] = PatternMap()  # exact topics are in _counts alone
        #: Raised when a pattern appears or disappears: while it stays, so do all results.
        self.generation = 0

    def __len__(self) -> int:
        """How many different patterns are wanted."""
        return len(self._counts)

    def __contains__(self, pattern: object) -> bool:
        """Whether somebody asked for exactly this pattern."""
        return pattern in self._counts

    def add(self, patterns: Iterable[str]) -> None:
        """One more node wants these."""
        for pattern in patterns:
            count = self._counts.get(pattern, 0)
            self._counts[pattern] = count + 1
            if count == 0:
                if is_pattern(pattern):
                    self._wildcards.add(pattern, True)
                self.generation += 1

    def remove(self, patterns: Iterable[str]) -> None:
        """One node less wants these; they must have been added before."""
        for pattern in patterns:
            count = self._counts[pattern]
            if count > 1:
                self._counts[pattern] = count - 1
                continue
            del self._counts[pattern]
            if is_pattern(pattern):
                self._wildcards.discard(pattern, True)
            self.generation += 1

    def wants(self, topic: str) -> bool:
        """Whether any node wants a topic. Reserved names are wanted only by their full name."""
        return topic in self._counts or self._wildcards.matches_any(topic)
