"""Writes the beginning of a value as JSON.

A value may have megabytes, a line of a screen has a hundred characters: only what is shown is
encoded.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any


def preview(value: Any, length_max: int) -> str:
    """Return the value as compact JSON; if that is too long, its beginning and "…"."""
    parts: list[str] = []
    length = 0
    for part in _write(value, length_max):
        parts.append(part)
        length += len(part)
        if length > length_max:
            return "".join(parts)[: max(0, length_max - 1)] + "…"
    return "".join(parts)


def _write(value: Any, length_max: int) -> Iterator[str]:
    """Yield parts of the JSON, none much longer than what is shown."""
    if isinstance(value, str):
        yield _encode(value[: length_max + 1])
    elif isinstance(value, dict):
        separator = "{"
        for key, inner in value.items():
            yield separator + _encode(str(key)[: length_max + 1]) + ":"
            yield from _write(inner, length_max)
            separator = ","
        yield "}" if value else "{}"
    elif isinstance(value, list | tuple):
        separator = "["
        for inner in value:
            yield separator
            yield from _write(inner, length_max)
            separator = ","
        yield "]" if value else "[]"
    else:
        yield _encode(value)


def _encode(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)
