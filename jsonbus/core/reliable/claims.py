"""Since when a topic is subscribed to here: there is no claim to what was published before."""

from __future__ import annotations

from jsonbus.core.routing.matching import is_pattern, matches


class Claims:
    """The numbers of the oldest subscriptions, by pattern. Numbers only grow."""

    __slots__ = ("_last", "_numbers", "_wide")

    def __init__(self) -> None:
        self._last = 0
        self._numbers: dict[str, int] = {}
        self._wide: dict[str, int] = {}  # those with wildcards

    def add(self, patterns: list[str]) -> int:
        """Note the first subscriptions to these patterns; return their number."""
        self._last += 1
        for pattern in patterns:
            self._numbers[pattern] = self._last
            if is_pattern(pattern):
                self._wide[pattern] = self._last
        return self._last

    def remove(self, patterns: list[str]) -> None:
        """Note that nobody subscribes to these patterns any more."""
        for pattern in patterns:
            del self._numbers[pattern]
            self._wide.pop(pattern, None)

    def oldest(self, topic: str) -> int:
        """Return the number of the oldest subscription that wants the topic; there has to be one.

        Takes one look-up and a comparison with each pattern that has wildcards.
        """
        made = [number for pattern, number in self._wide.items() if matches(pattern, topic)]
        if topic in self._numbers:
            made.append(self._numbers[topic])
        return min(made)
