"""Topics and patterns as arguments, with a hint for those who know the wildcards of another system.

A hint does not forbid the name.
"""

from __future__ import annotations

import click

import jsonbus

_RULE = "* stands for one level, ** for any number, and / separates levels"


class Name(click.types.StringParamType):
    """The type of an argument that is a topic or, with `is_pattern`, a pattern."""

    def __init__(self, *, is_pattern: bool) -> None:
        self._is_pattern = is_pattern

    def hint(self, name: str) -> str | None:
        """Return what to write instead if the name looks like another system's pattern."""
        meant = jsonbus.translate_pattern(name)
        if meant is None:
            return None
        if self._is_pattern:
            return f"{name!r} has a wildcard of another system: {_RULE}. Do you mean {meant!r}?"
        return f"{name!r} is one topic. Wildcards are for subscribers, as in {meant!r}: {_RULE}"


TOPIC = Name(is_pattern=False)
PATTERN = Name(is_pattern=True)
