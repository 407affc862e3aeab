"""Valid topics and patterns, and which of them match.

A topic is 1 to 255 bytes of UTF-8: levels separated by `/`, none of them empty, without `*` and
without control characters. A pattern is a topic in which whole levels may be wildcards:

    *     exactly one level           a/*/c   matches a/b/c
    **    any number, zero included   a/**    matches a, a/b, a/b/c

Names that start with `jsonbus.` are reserved. They are matched only literally: a
subscriber to `**` gets the application's messages and does not appear to serve every request.

Patterns also come from other nodes, so all work here is bounded. A name has at most 128 levels, and
comparing two takes at most (levels of one) x (levels of the other) steps, however many `**` there
are. pattern_map.py looks a topic up among many patterns at once.
"""

from __future__ import annotations

import re

from jsonbus.core.wire.names import RESERVED_PREFIX, SERVED_PREFIX
from jsonbus.errors import InvalidTopicError

TOPIC_BYTES_MAX = 255  # enough for what people write, and small beside a datagram of 1,400 bytes

# C0, DEL and C1. Lone surrogates, which a str may hold and UTF-8 may not, are left to _is_short: a
# set that spans so many characters takes four times as long to compile.
_CONTROL = r"\x00-\x1f\x7f-\x9f"
_LITERAL = rf"[^/*{_CONTROL}]+"
_LEVEL = rf"(?:{_LITERAL}|\*\*?)"
_is_topic = re.compile(rf"(?!jsonbus\.){_LITERAL}(?:/{_LITERAL})*").fullmatch
_is_pattern = re.compile(rf"(?!jsonbus\.){_LEVEL}(?:/{_LEVEL})*").fullmatch


def check_topic(topic: object) -> str:
    """Return the topic as a plain str; raise InvalidTopicError with the reason if invalid."""
    if not (isinstance(topic, str) and is_valid_topic(topic)):
        raise InvalidTopicError(topic, _fault(topic, wildcards=False))
    return _plain(topic)


def check_pattern(pattern: object) -> str:
    """Return the pattern as a plain str; raise InvalidTopicError with the reason if invalid."""
    if not (isinstance(pattern, str) and _is_pattern(pattern) and _is_short(pattern)):
        raise InvalidTopicError(pattern, _fault(pattern, wildcards=True))
    return _plain(pattern)


def is_valid_topic(topic: object) -> bool:
    """Return whether this is a valid topic; False for anything that is not a str."""
    # Check the number of characters first: it bounds the work on a name of 60 KB.
    return (
        isinstance(topic, str)
        and len(topic) <= TOPIC_BYTES_MAX
        and _is_topic(topic) is not None
        and _is_short(topic)
    )


def is_valid_pattern(pattern: object) -> bool:
    """Return whether a list may hold this: a pattern, or SERVED_PREFIX and a topic."""
    if not isinstance(pattern, str):
        return False
    if pattern.startswith(SERVED_PREFIX):
        return is_valid_topic(pattern[len(SERVED_PREFIX) :])
    return (
        len(pattern) <= TOPIC_BYTES_MAX and _is_pattern(pattern) is not None and _is_short(pattern)
    )


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


def _is_short(text: str) -> bool:
    """Return whether UTF-8 can encode the text in at most TOPIC_BYTES_MAX bytes."""
    if text.isascii():
        return len(text) <= TOPIC_BYTES_MAX
    try:
        return len(text.encode()) <= TOPIC_BYTES_MAX
    except UnicodeEncodeError:
        return False


def _plain(text: str) -> str:
    """Return a plain str. Members of `class Room(str, Enum)` are valid topics, but str() would
    give "Room.HALL".
    """
    return text if type(text) is str else str.__str__(text)


def _fault(name: object, wildcards: bool) -> str:
    """Return why a name is not valid, and how to correct it. Not on any hot path."""
    if not isinstance(name, str):
        return f"it is a {type(name).__name__}, give a str"
    if not name:
        return "it is empty, give at least one character"
    if forbidden := re.search(rf"[{_CONTROL}\ud800-\udfff]", name):
        return f"U+{ord(forbidden.group()):04X} is a control character or half a character"
    if not _is_short(name):
        return f"it takes {len(name.encode()):,} bytes of UTF-8, the limit is {TOPIC_BYTES_MAX}"
    if name.startswith(RESERVED_PREFIX):
        return f"names that start with {RESERVED_PREFIX!r} are reserved"
    if "" in name.split("/"):
        return "levels must not be empty, use '/' only between two of them"
    if wildcards:
        return "a wildcard is a whole level, '*' for one and '**' for any number of levels"
    return "'*' belongs in patterns, publish under the name itself"
