"""Values to JSON text and back: the only module of the core that imports orjson.

A value can be published if orjson writes it: the JSON types, dataclasses, datetimes (ISO 8601),
enums (their value) and UUIDs. NaN and the infinities, which JSON lacks, are written as null.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import orjson

from jsonbus.core.wire.names import NESTING_LEVELS_MAX
from jsonbus.errors import PayloadError

# UTF-8 JSON text to a value; raises ValueError. The bare function, because a wrapper would cost a
# tenth of the time that a small datagram takes to decode. The last value of a repeated key counts;
# a number beyond 64 bits becomes a float; at most 1,024 levels.
loads: Callable[[bytes | str], Any] = orjson.loads

# A value to JSON text; raises TypeError. Callers then try `dumps`.
dumps_plain: Callable[[Any], bytes] = orjson.dumps


def dumps(value: object) -> bytes:
    """Return the value as compact UTF-8 JSON; raise PayloadError, with a remedy, if it has none.

    Keys that are not strings (integers, enums, datetimes, None, …) are written as their text. Two
    keys of one dict with the same text, as in {1: …, "1": …}, are both written: nodes of jsonbus
    then see the later one.
    """
    try:
        return orjson.dumps(value)
    except TypeError:
        # Most likely a key that is not a string. The option that allows those makes each dict half
        # as slow again, so it is tried only now.
        return _dumps_any_key(value)


def nests_too_deeply(value: object) -> bool:
    """Return whether a value that was loaded is nested too deeply to be dumped again.

    Dumping it is the fastest test: a loaded value can fail for no other reason, and orjson is
    several times faster than a loop in Python.
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
    """Return one sentence for orjson's message, with a remedy."""
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


# By words of orjson's messages; for any other message there is the general sentence.
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
