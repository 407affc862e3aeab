"""Valid topics and patterns.

A topic is 1 to 255 bytes of UTF-8: levels separated by `/`, none of them empty, without `*` and
without control characters. A pattern is a topic in which whole levels may be wildcards, `*` for one
level and `**` for any number; routing/matching.py compares the two. Names that start with
`jsonbus.` are reserved.
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

# Wildcards of MQTT (+ and #), AMQP (#) and NATS (>), and ours for them.
_OURS = {"+": "*", "#": "**", ">": "**"}
_WILDCARDS = {"*", "**", *_OURS}


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


def translate_pattern(name: str) -> str | None:
    """Return the pattern of another system in our syntax, None if it does not look like one.

    For hints only: `+`, `#` and `>` are characters like others here, and `.` separates nothing. So
    `sensors/+/x` is valid, but it waits in silence for a topic of that very name.
    """
    levels = name.split("/")
    if len(levels) == 1 and not _WILDCARDS.isdisjoint(words := name.split(".")):
        levels = words
    meant = "/".join(_OURS.get(each, each) for each in levels)
    return None if meant == name else meant


def is_valid_topic(topic: object) -> bool:
    """Return whether this is a valid topic; False for anything that is not a str."""
    # Check the number of characters first: it bounds the work on a name of 60 KB.
    return (
        isinstance(topic, str)
        and len(topic) <= TOPIC_BYTES_MAX
        and _is_topic(topic) is not None
        and (topic.isascii() or _is_short(topic))
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
