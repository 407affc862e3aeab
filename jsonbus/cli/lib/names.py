"""Topics and patterns as arguments, with a hint for those who know the wildcards of another system.

`+`, `#` and `>` are characters like others here, and `.` separates nothing. So `sub 'sensors/+/x'`
is right, but it waits in silence for a topic of that very name. A hint does not forbid the name.
"""

from __future__ import annotations

import click

#: Wildcards of MQTT (+ and #), AMQP (#) and NATS (>), and ours for them.
_OURS = {"+": "*", "#": "**", ">": "**"}
_WILDCARDS = {"*", "**", *_OURS}

_RULE = "* stands for one level, ** for any number, and / separates levels"


class Name(click.types.StringParamType):
    """The type of an argument that is a topic or, with `is_pattern`, a pattern."""

    def __init__(self, *, is_pattern: bool) -> None:
        self._is_pattern = is_pattern

    def hint(self, name: str) -> str | None:
        """Return what to write instead if the name looks like another system's pattern."""
        meant = translate(name)
        if meant is None:
            return None
        if self._is_pattern:
            return f"{name!r} has no wildcard of jsonbus: {_RULE}. Do you mean {meant!r}?"
        return f"{name!r} is one topic. Wildcards are for subscribers, as in {meant!r}: {_RULE}"


TOPIC = Name(is_pattern=False)
PATTERN = Name(is_pattern=True)


def translate(name: str) -> str | None:
    """Return the pattern of another system in our syntax, None if it does not look like one."""
    levels = name.split("/")
    if len(levels) == 1 and not _WILDCARDS.isdisjoint(words := name.split(".")):
        levels = words
    meant = "/".join(_OURS.get(each, each) for each in levels)
    return None if meant == name else meant
