"""Converts JSON text to a value of a Spark type, one row at a time and as forgiving as `from_json`.

The slow way, for the rows that Arrow's JSON reader does not take (values.py). Numbers are kept as
the text they are until their type is known: 1.50 is "1.50" for a STRING and exact for a DECIMAL.
NaN and Infinity, which are no JSON, are numbers here, as in Spark and in Arrow.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import ROUND_HALF_UP, Decimal, InvalidOperation, localcontext
from functools import partial
from typing import Any

from pyspark.sql import types as T

from ..errors import OptionError

#: Converts parsed JSON to what Arrow takes; ValueError if it does not fit. Never called with null.
Convert = Callable[[Any], Any]

_INTEGER = re.compile(r"-?\d{1,19}")
_INTEGER_BITS: dict[type[T.DataType], int] = {
    T.ByteType: 8,
    T.ShortType: 16,
    T.IntegerType: 32,
    T.LongType: 64,
}
#: Text for numbers that JSON cannot write; as in Spark.
_SPECIAL_NUMBERS = {
    "NaN": float("nan"),
    **dict.fromkeys(("INF", "+INF", "Infinity", "+Infinity"), float("inf")),
    **dict.fromkeys(("-INF", "-Infinity"), float("-inf")),
}
_DECIMAL_DIGITS_MAX = 38


class Number(str):
    """The text of a number."""

    __slots__ = ()


def parse(text: str) -> Any:
    """Parse JSON, keeping numbers as text; ValueError or RecursionError if it is not JSON."""
    return json.loads(text, parse_int=Number, parse_float=Number, parse_constant=Number)


def compile_type(data_type: T.DataType, where: str = "value") -> Convert:
    """Return a function that makes a value of that type; OptionError if JSON cannot hold one."""
    if isinstance(data_type, T.StructType):
        return _compile_struct(data_type, where)
    if isinstance(data_type, T.ArrayType):
        return _compile_array(data_type, where)
    if isinstance(data_type, T.MapType):
        return _compile_map(data_type, where)
    if isinstance(data_type, T.DecimalType):
        whole_digits = data_type.precision - data_type.scale
        step, limit = Decimal(1).scaleb(-data_type.scale), Decimal(10) ** whole_digits
        return partial(_to_decimal, step, limit)
    bits = _INTEGER_BITS.get(type(data_type))
    if bits is not None:
        return partial(_to_integer, 1 << (bits - 1))
    for known, convert in _CONVERTERS.items():
        if isinstance(data_type, known):
            return convert
    raise OptionError(
        f"option valueSchema: {where} is {data_type.simpleString().upper()}, which cannot be read "
        "from JSON here: take the value as STRING, and from_json or parse_json"
    )


def _compile_struct(struct: T.StructType, where: str) -> Convert:
    fields = {}
    for field in struct.fields:
        name = f"{where}.{field.name}"
        if not field.nullable:
            raise OptionError(
                f"option valueSchema: {name} is NOT NULL, but any field may be missing in JSON"
            )
        fields[field.name] = compile_type(field.dataType, name)

    def convert(value: Any) -> Any:
        if type(value) is not dict:
            raise ValueError("no object")
        return {
            name: fields[name](inner)
            for name, inner in value.items()
            if inner is not None and name in fields
        }

    return convert


def _compile_array(array: T.ArrayType, where: str) -> Convert:
    element = compile_type(array.elementType, f"{where}[]")

    def convert(value: Any) -> Any:
        if type(value) is not list:
            raise ValueError("no array")
        return [None if inner is None else element(inner) for inner in value]

    return convert


def _compile_map(mapping: T.MapType, where: str) -> Convert:
    if not isinstance(mapping.keyType, T.StringType):
        raise OptionError(f"option valueSchema: {where} is a MAP whose keys are not STRING")
    item = compile_type(mapping.valueType, f"{where}{{}}")

    def convert(value: Any) -> Any:
        if type(value) is not dict:
            raise ValueError("no object")
        return [
            (_to_text(key), None if inner is None else item(inner)) for key, inner in value.items()
        ]

    return convert


def _to_integer(limit: int, value: Any) -> int:
    if type(value) is not Number or not _INTEGER.fullmatch(value):
        raise ValueError("no integer")
    number = int(value)
    if not -limit <= number < limit:
        raise ValueError("too large")
    return number


def _to_decimal(step: Decimal, limit: Decimal, value: Any) -> Decimal:
    if type(value) not in (Number, str):
        raise ValueError("no number")
    with localcontext(prec=2 * _DECIMAL_DIGITS_MAX):
        try:
            number = Decimal(value).quantize(step, ROUND_HALF_UP)
        except InvalidOperation:
            raise ValueError("no decimal") from None
    if not number.is_finite() or abs(number) >= limit:
        raise ValueError("too large")
    return number


def _to_text(value: Any) -> str:
    """Convert to a string; anything that is not one is written as JSON."""
    text = str(value) if isinstance(value, str) else _dump(value)
    text.encode()  # a lone surrogate is not text that Spark can hold: UnicodeError, a ValueError
    return text


def _to_double(value: Any) -> float:
    if type(value) is Number:
        return float(value)
    if type(value) is str and value in _SPECIAL_NUMBERS:
        return _SPECIAL_NUMBERS[value]
    raise ValueError("no number")


def _to_boolean(value: Any) -> bool:
    if type(value) is not bool:
        raise ValueError("no boolean")
    return value


def _to_date(value: Any) -> date:
    if len(_plain_text(value)) != 10:
        raise ValueError("no date")
    return date.fromisoformat(value)


def _to_timestamp(value: Any) -> datetime:
    """Parse a time; without a zone it is UTC: the session's zone is not known where this runs."""
    if type(value) is Number and _INTEGER.fullmatch(value):
        try:
            return datetime.fromtimestamp(int(value), UTC)
        except (OverflowError, OSError):
            raise ValueError("too large") from None
    instant = datetime.fromisoformat(_plain_text(value))
    return instant.astimezone(UTC) if instant.tzinfo else instant.replace(tzinfo=UTC)


def _to_local_time(value: Any) -> datetime:
    instant = datetime.fromisoformat(_plain_text(value))
    if instant.tzinfo is not None:
        raise ValueError("has a zone")
    return instant


def _to_bytes(value: Any) -> bytes:
    return base64.b64decode(_plain_text(value), validate=True)


def _plain_text(value: Any) -> str:
    if type(value) is not str:
        raise ValueError("no text")
    return value


def _dump(value: Any) -> str:
    if type(value) is dict:
        return "{" + ",".join(f"{_quote(k)}:{_dump(v)}" for k, v in value.items()) + "}"
    if type(value) is list:
        return "[" + ",".join(map(_dump, value)) + "]"
    return str(value) if type(value) is Number else _quote(value)


def _quote(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


_CONVERTERS: dict[type[T.DataType], Convert] = {
    T.StringType: _to_text,
    T.DoubleType: _to_double,
    T.FloatType: _to_double,
    T.BooleanType: _to_boolean,
    T.DateType: _to_date,
    T.TimestampType: _to_timestamp,
    T.TimestampNTZType: _to_local_time,
    T.BinaryType: _to_bytes,
}
