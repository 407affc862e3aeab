"""Matching of patterns and topics.

    *     exactly one level           a/*/c   matches a/b/c
    **    any number, zero included   a/**    matches a, a/b, a/b/c

Reserved names, those that start with `jsonbus.`, are matched only literally: a subscriber to `**`
gets the application's messages and does not appear to serve every request.

Patterns also come from other nodes, so all work here is bounded. A name has at most 128 levels, and
comparing two takes at most (levels of one) x (levels of the other) steps, however many `**` there
are. pattern_map.py looks a topic up among many patterns at once.
"""

from __future__ import annotations

from jsonbus.core.wire.names import RESERVED_PREFIX
from jsonbus.core.wire.topics import check_pattern, check_topic


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
