"""JSON text and back: the only module of the core that imports orjson.

What may be published is what orjson writes: the JSON types, dataclasses, datetimes (ISO 8601),
enums (their value) and UUIDs. NaN and the infinities, which JSON lacks, are written as null.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import orjson

from jsonbus.core.wire.names import NESTING_LEVELS_MAX
from jsonbus.errors import PayloadError

# UTF-8 JSON text to a value; ValueError if it is none. The bare function, since a wrapper would
# cost a tenth of the time that a small datagram takes to decode. A repeated key's last value
# counts; a number beyond 64 bits becomes a float; at most 1,024 levels.
loads: Callable[[bytes | str], Any] = orjson.loads

# A value to JSON text, or TypeError: for who goes on to `dumps` in that case.
dumps_plain: Callable[[Any], bytes] = orjson.dumps


def dumps(value: object) -> bytes:
    """The value as compact UTF-8 JSON; PayloadError, with what to do about it, if it has none.

    Keys that are not strings (integers, enums, datetimes, None, …) are written as their text. Two
    keys of one dict with the same text, as in {1: …, "1": …}, are both written: receivers of
    ours then see the later one.
    """
    try:
        return orjson.dumps(value)
    except TypeError:
        # Most likely a key that is no string. The option that allows those makes each dict half
        # as slow again, so it is tried only now.
        return _dumps_any_key(value)


def nests_too_deeply(value: object) -> bool:
    """Whether a value that was loaded is nested too deeply to be dumped again.

    Writing it is the fastest way to know: depth is all that a loaded value can fail on, and
    orjson writes several times faster than a walk in Python visits.
    """
    try:
        orjson.dumps(value)
    except TypeError:
        return True
    return False


def _dumps_any_key(value: object) -> bytes:
    try:
        return orjson.dumps(value, option=orjson.OPT_NON_STR_KEYS)
    except TypeError as error:
        raise PayloadError(_explain(str(error))) from error


def _explain(reason: str) -> str:
    """One sentence for what orjson's says, with what to do."""
    for words, sentence in _SENTENCES.items():
        if words in reason:
            return sentence
    _, _, type_name = reason.partition("not JSON serializable: ")
    if type_name:
        return (
            f"a value of type {type_name} has no JSON form: publish numbers, strings, booleans, "
            "None, lists, dicts, dataclasses, enums, UUIDs or datetimes"
        )
    return f"the value cannot be written as JSON ({reason}): publish plain JSON types"


# By words of orjson's own messages; one that changes falls through to the general sentence.
_SENTENCES = {
    "surrogates": (
        "a string has a lone surrogate, which UTF-8 cannot carry: "
        'clean it with text.encode(errors="replace").decode()'
    ),
    "64-bit range": "an integer is beyond 64 bits: publish it as a string or a float",
    "Recursion limit": (
        f"the value is nested more than {NESTING_LEVELS_MAX} levels deep or contains itself: "
        "publish a flatter value"
    ),
    "Dict key": (
        "a dict has a key without a JSON form: use strings, numbers, booleans, None, enums, UUIDs "
        "or datetimes as keys"
    ),
}
