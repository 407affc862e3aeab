"""How large a value is as JSON."""

from __future__ import annotations

import orjson


def size_of(value: object) -> int:
    """The bytes of a value as compact JSON.

    A value that came over the bus always has that form. One that a program published to itself may
    have keys that are not strings; what has no JSON form at all takes no room.
    """
    try:
        return len(orjson.dumps(value))
    except TypeError:
        try:
            return len(orjson.dumps(value, option=orjson.OPT_NON_STR_KEYS))
        except TypeError:
            return 0
