"""Values to JSON text and back: the only module of the core that imports orjson.

What orjson writes by itself takes one call: the JSON types, dataclasses, datetimes (ISO 8601),
enums (their value) and UUIDs. Whatever else has a form in JSON takes a second try, which would be
too slow for every message:

- keys of dicts that are not strings, as their text;
- a Decimal, as a number with all its digits;
- a namedtuple or another kind of tuple, as an array: `as_type` reads a NamedTuple from one, too;
- scalars and arrays of NumPy.

JSON lacks NaN and the infinities. orjson writes them as null, but null means something else: no
value, or, with retain, that a value ends. So they are refused, unless `nan_as_null` asks for null.
Only values whose text has a null are searched for them.
"""

from __future__ import annotations

import dataclasses
import enum
import math
from collections.abc import Callable
from dataclasses import fields
from typing import Any

import orjson

from jsonbus.core.wire.names import NESTING_LEVELS_MAX
from jsonbus.errors import PayloadError

# UTF-8 JSON text to a value; raises ValueError. The bare function, because a wrapper would cost a
# tenth of the time that a small datagram takes to decode. The last value of a repeated key counts;
# a number beyond 64 bits becomes a float; at most 1,024 levels.
loads: Callable[[bytes | str], Any] = orjson.loads

# A value to JSON text; raises TypeError. Callers then try `dumps`. They also have to look for a
# null in the text, and then to `find_nan` in the value.
dumps_plain: Callable[[Any], bytes] = orjson.dumps

# Whether text has a null, told as fast as can be, here and in the short way of both front ends: one
# byte is found five times as fast as four, so most text is done with; and `in` with four bytes
# takes three times as long as `partition`, because it tries them as a number first.
LETTER_OF_NULL = ord("l")


def dumps(value: object, *, nan_as_null: bool = False) -> bytes:
    """Return the value as compact UTF-8 JSON; raise PayloadError, with a remedy, if it has none.

    Keys that are not strings (integers, enums, datetimes, None, …) are written as their text. Two
    keys of one dict with the same text, as in {1: …, "1": …}, are both written: nodes of jsonbus
    then see the later one.
    """
    try:
        text = orjson.dumps(value)
    except TypeError:
        text = _dumps_slowly(value)
    if LETTER_OF_NULL in text and text.partition(b"null")[1] and not nan_as_null:
        found = find_nan(value)
        if found is not None:
            raise PayloadError(
                f"{found}, and JSON has no such number: publish None or leave it out, or open the "
                "bus with nan_as_null=True"
            )
    return text


def find_nan(value: Any) -> str | None:
    """Return where a value has a number that JSON lacks, as in `value.rooms[3].temp is nan`.

    Only for values that orjson has written: it finds those that contain themselves.
    """
    found = _find(value, _tell_nan)
    return None if found is None else f"value{found}"


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


def _tell_nan(value: Any) -> str | None:
    if _is_decimal(value):
        is_finite = value.is_finite()  # math.isfinite raises ValueError for a signaling NaN
    else:
        is_finite = not isinstance(value, float) or math.isfinite(value)
    return None if is_finite else f" is {value}"


def _find(value: Any, tell: Callable[[Any], str | None]) -> str | None:
    """Return the rest of the path to the first leaf that `tell` says something of, and what."""
    if isinstance(value, dict):
        for key, item in value.items():
            number = key.value if isinstance(key, enum.Enum) else key
            if type(number) is float and not math.isfinite(number):
                return f" has the key {number}"
            found = None if type(item) in _PLAIN_TYPES else _find(item, tell)
            if found is not None:
                is_name = isinstance(key, str) and key.isidentifier()
                return f".{key}{found}" if is_name else f"[{key!r}]{found}"
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            found = None if type(item) in _PLAIN_TYPES else _find(item, tell)
            if found is not None:
                return f"[{index}]{found}"
    elif isinstance(value, enum.Enum):
        return _find(value.value, tell)
    elif dataclasses.is_dataclass(value):
        # As orjson does; a class with slots has no dictionary.
        names = getattr(value, "__dict__", None) or (each.name for each in fields(value))
        return _find({name: getattr(value, name) for name in names if name[0] != "_"}, tell)
    elif _is_numpy(value):
        return _find(value.tolist(), tell)
    else:
        return tell(value)
    return None


#: Looked at without a call. Most items of most values are of these types.
_PLAIN_TYPES = frozenset((str, int, bool, type(None)))


def _dumps_slowly(value: object) -> bytes:
    # The option that allows other keys makes each dict half as slow again.
    option = orjson.OPT_NON_STR_KEYS | orjson.OPT_SERIALIZE_NUMPY
    try:
        return orjson.dumps(value, default=_replace, option=option)
    except TypeError as error:
        if isinstance(error.__cause__, PayloadError):
            raise error.__cause__ from None
        raise PayloadError(_explain(str(error), value)) from error


def _replace(value: Any) -> Any:
    """Return what to write for an object that orjson does not know."""
    if isinstance(value, tuple):
        return list(value)
    if _is_decimal(value):
        if not value.is_finite():
            return None  # and found afterwards
        if math.isinf(float(value)):
            raise PayloadError(
                f"{value} is beyond what a number of JSON may be: publish it as a string"
            )
        return orjson.Fragment(str(value))
    if _is_numpy(value):  # an array that is not contiguous, for one
        return value.tolist()
    raise TypeError


def _is_decimal(value: object) -> bool:
    from decimal import Decimal  # takes as long to import as all of this module

    return isinstance(value, Decimal)


def _is_numpy(value: object) -> bool:
    return hasattr(value, "dtype") and hasattr(value, "tolist")


def _explain(reason: str, value: object) -> str:
    """Return one sentence for orjson's message, with a remedy."""
    for words, sentence in _SENTENCES.items():
        if words in reason:
            return sentence
    _, _, type_name = reason.partition("not JSON serializable: ")
    if type_name:
        try:
            found = _find(value, lambda leaf: "" if type(leaf).__name__ == type_name else None)
        except RecursionError:  # it contains itself, too
            found = None
        where = f" (value{found})" if found else ""
        return (
            f"a value of type {type_name}{where} has no JSON form: publish numbers, strings, "
            "booleans, None, lists, tuples, dicts, dataclasses, enums, UUIDs, datetimes or NumPy "
            "arrays"
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
