"""The numbers in a value: their paths and names, and how to find them in the next value."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from typing import Any

#: Keys of objects and places in arrays, from the outside in; () is the value itself.
Path = tuple[str | int, ...]

#: As many numbers as a person can choose from, and the limits of the search.
FIELDS_MAX = 200
DEPTH_MAX = 8
SEARCHED_MAX = 2_000

_is_plain_key = re.compile(r"[^\W\d][\w-]*").fullmatch


def find_fields(value: Any) -> dict[Path, float]:
    """Return every number in the value by its path, in order."""
    found: dict[Path, float] = {}
    for searched, (path, number) in enumerate(_walk(value, ())):
        if number is not None:
            found[path] = number
        if len(found) >= FIELDS_MAX or searched >= SEARCHED_MAX:
            break
    return found


def field_at(value: Any, path: Path) -> float | None:
    """Return the number at that path, or None."""
    for step in path:
        if isinstance(step, str) and isinstance(value, dict):
            value = value.get(step)
        elif isinstance(step, int) and isinstance(value, list) and step < len(value):
            value = value[step]
        else:
            return None
    return _number(value)


def name_field(path: Path) -> str:
    """Return the name to show: `position.axes[2]`; the value itself is `value`."""
    text = ""
    for step in path:
        if isinstance(step, int):
            text += f"[{step}]"
        elif _is_plain_key(step):
            text += f".{step}" if text else step
        else:
            text += f"[{json.dumps(step, ensure_ascii=False)}]"
    return text or "value"


def _walk(value: Any, path: Path) -> Iterator[tuple[Path, float | None]]:
    if isinstance(value, dict | list):
        yield path, None
        if len(path) >= DEPTH_MAX:
            return
        members: Any = value.items() if isinstance(value, dict) else enumerate(value)
        for step, member in members:
            yield from _walk(member, (*path, step))
    else:
        yield path, _number(value)


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:  # an integer of hundreds of digits
        return None
    return number if math.isfinite(number) else None
