"""Matching of patterns and topics.

    *     exactly one level           a/*/c   matches a/b/c
    **    any number, zero included   a/**    matches a, a/b, a/b/c

Reserved names, those that start with `jsonbus.`, are matched only literally: a subscriber to `**`
gets the application's messages and does not appear to serve every request.

Patterns also come from other nodes, so all work here is bounded. A name has at most 128 levels, and
comparing two takes at most (levels of one) x (levels of the other) steps, however many `**` there
are. pattern_map.py looks a topic up among many patterns at once.

Patterns are compared with each other where topics belong to keys: `overlaps` and `covers`.
"""

from __future__ import annotations

from collections.abc import Iterable

from jsonbus.core.wire.names import RESERVED_PREFIX
from jsonbus.core.wire.topics import check_pattern, check_topic

#: Far more than any patterns take that somebody wrote.
_COVER_STEPS_MAX = 10_000


def is_pattern(text: str) -> bool:
    """Return whether a valid pattern has wildcards."""
    return "*" in text


def matches(pattern: str, topic: str) -> bool:
    """Return whether a valid pattern matches a valid topic."""
    if not is_pattern(pattern):
        return pattern == topic
    if topic.startswith(RESERVED_PREFIX):
        return False
    wanted = pattern.split("/")
    levels = topic.split("/")
    place = 0  # index in wanted
    index = 0  # index in levels
    # Where to continue when a later level does not fit: behind the last `**`, which then takes one
    # level more. Earlier `**` need no second try: the last one can take whatever they could.
    retry_place = -1
    retry_index = 0
    while index < len(levels):
        level = wanted[place] if place < len(wanted) else None
        if level == "**":
            place += 1
            retry_place, retry_index = place, index
        elif level == "*" or level == levels[index]:
            place += 1
            index += 1
        elif retry_place >= 0:
            retry_index += 1
            place, index = retry_place, retry_index
        else:
            return False
    return all(level == "**" for level in wanted[place:])


def topic_matches(pattern: str, topic: str) -> bool:
    """Return whether a pattern matches a topic; raise InvalidTopicError if either is not valid."""
    return matches(check_pattern(pattern), check_topic(topic))


def overlaps(first: str, second: str) -> bool:
    """Return whether some topic is matched by both of two valid patterns.

    Only levels are looked at: the answer is True even if such a topic would be too long.
    """
    if not is_pattern(first):
        return matches(second, first)
    if not is_pattern(second):
        return matches(first, second)
    others = second.split("/")
    # Backwards through `first`; row[j]: what is left of `first` and others[j:] have a common topic.
    row = [all(other == "**" for other in others[j:]) for j in range(len(others) + 1)]
    for level in reversed(first.split("/")):
        longer = [False] * len(others) + [level == "**" and row[-1]]
        for j in range(len(others) - 1, -1, -1):
            other = others[j]
            if level == "**" or other == "**":  # it ends here, or takes the level opposite
                longer[j] = row[j] or longer[j + 1]
            else:
                longer[j] = row[j + 1] and (level == other or level == "*" or other == "*")
        row = longer
    return row[0]


def covers(patterns: Iterable[str], narrow: str) -> bool:
    """Return whether each topic that matches `narrow` matches one of the patterns. All are valid.

    Walks through all topics that match `narrow` at once, and keeps the places in the patterns that
    each has come to. To see what `*` and `**` stand for, a level that is in no pattern will do.
    Patterns made to take very many steps are taken for not covering.
    """
    if not is_pattern(narrow):
        return any(matches(pattern, narrow) for pattern in patterns)
    wide = [pattern.split("/") for pattern in patterns]
    levels = narrow.split("/")
    if all(level == "**" for level in levels):
        levels = ["*", "**"]  # a topic has at least one level
    start = 0, _with_nothing_taken(wide, [(number, 0) for number in range(len(wide))])
    met, waiting = {start}, [start]
    while waiting:
        index, places = waiting.pop()
        if not places or len(met) > _COVER_STEPS_MAX:
            return False
        if index == len(levels):
            if not any(place == len(wide[number]) for number, place in places):
                return False
            continue
        level = levels[index]
        if level == "**":
            following = [(index + 1, places), (index, _advance(wide, places, None))]
        else:
            following = [(index + 1, _advance(wide, places, None if level == "*" else level))]
        waiting += [each for each in following if each not in met]
        met.update(following)
    return True


#: The number of a pattern, and a place in it.
_Places = frozenset[tuple[int, int]]


def _advance(patterns: list[list[str]], places: _Places, level: str | None) -> _Places:
    """Return where one level leads; None is a level that no pattern names."""
    ahead = []
    for number, place in places:
        wanted = patterns[number][place] if place < len(patterns[number]) else None
        if wanted == "**":
            ahead.append((number, place))
        elif wanted is not None and wanted in ("*", level):
            ahead.append((number, place + 1))
    return _with_nothing_taken(patterns, ahead)


def _with_nothing_taken(patterns: list[list[str]], places: Iterable[tuple[int, int]]) -> _Places:
    """Return the places, and those behind each `**`, which may take nothing."""
    found = set()
    for number, place in places:
        found.add((number, place))
        while place < len(patterns[number]) and patterns[number][place] == "**":
            place += 1
            found.add((number, place))
    return frozenset(found)
