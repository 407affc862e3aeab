"""Parses the option valueSchema: columns or a type, as in Spark's SQL.

    id STRING, celsius DOUBLE, tags ARRAY<STRING>, place STRUCT<x: DOUBLE, y: DOUBLE>
    STRUCT<id: STRING>    ARRAY<BIGINT>    MAP<STRING, DOUBLE>

Spark's own parser is in its JVM, and options are read in a process that cannot ask it. This one
knows the types that a value can have (json_rows.py), and says what is wrong with the rest.
"""

from __future__ import annotations

import re

from pyspark.sql import types as T

#: Types without parameters, by every name that SQL has for them.
_ATOMS: dict[str, type[T.DataType]] = {
    "boolean": T.BooleanType,
    **dict.fromkeys(("tinyint", "byte"), T.ByteType),
    **dict.fromkeys(("smallint", "short"), T.ShortType),
    **dict.fromkeys(("int", "integer"), T.IntegerType),
    **dict.fromkeys(("bigint", "long"), T.LongType),
    **dict.fromkeys(("float", "real"), T.FloatType),
    "double": T.DoubleType,
    "string": T.StringType,
    "binary": T.BinaryType,
    "date": T.DateType,
    **dict.fromkeys(("timestamp", "timestamp_ltz"), T.TimestampType),
    "timestamp_ntz": T.TimestampNTZType,
}
_DECIMALS = ("decimal", "dec", "numeric")
_DECIMAL_DIGITS_MAX = 38

_TOKEN = re.compile(r"\s*(?:(`(?:[^`]|``)+`)|('(?:[^'\\]|\\.|'')*')|(\w+)|([<>(),:])|(\S))")


def parse_value_schema(text: str) -> T.DataType:
    """Parse the type of a value; a ValueError says, after the text, what is wrong with it."""
    parser = _Parser(text)
    is_type = re.match(r"\s*(struct|array|map)\s*<", text, re.IGNORECASE) is not None
    parsed = parser.read_type() if is_type else parser.read_fields()
    parser.expect("")
    return parsed


class _Parser:
    """Reads from left to right, one token ahead."""

    def __init__(self, text: str) -> None:
        self._tokens = [match[0].strip() for match in _TOKEN.finditer(text)]
        self._at = 0

    @property
    def _next(self) -> str:
        return self._tokens[self._at] if self._at < len(self._tokens) else ""

    def expect(self, token: str) -> None:
        """Consume this token, the empty one at the end; raise ValueError if another one comes."""
        self._read(re.escape(token), repr(token) if token else "nothing more")

    def read_fields(self) -> T.StructType:
        struct = T.StructType()
        while True:
            name = self._read(r"\w+|`.+`", "the name of a column")
            if name.startswith("`"):
                name = name[1:-1].replace("``", "`")
            self._takes(":")
            data_type = self.read_type()
            if self._takes("not"):
                raise ValueError(f"has NOT NULL for {name}, but any field may be missing in JSON")
            if self._takes("comment"):
                self._at += 1
            if name in struct.names:
                raise ValueError(f"has {name} twice")
            struct.add(name, data_type)
            if not self._takes(","):
                return struct

    def read_type(self) -> T.DataType:
        name = self._next.lower()
        self._at += 1
        if name in _DECIMALS:
            return self._read_decimal()
        if name in ("struct", "array", "map"):
            self.expect("<")
            nested = self._read_inside(name)
            self.expect(">")
            return nested
        if name not in _ATOMS:
            known = "STRUCT, ARRAY, MAP, DECIMAL, " + ", ".join(_ATOMS).upper()
            raise ValueError(
                f"has {name.upper() or 'nothing'!r} where a type is expected that JSON can hold "
                f"({known}); take the value as STRING, and from_json or parse_json, for others"
            )
        return _ATOMS[name]()

    def _read_inside(self, name: str) -> T.DataType:
        """Read what stands between < and >."""
        if name == "struct":
            return self.read_fields()
        first = self.read_type()
        if name == "array":
            return T.ArrayType(first)
        if not isinstance(first, T.StringType):
            raise ValueError("has a MAP whose keys are not STRING: JSON knows no others")
        self.expect(",")
        return T.MapType(first, self.read_type())

    def _read_decimal(self) -> T.DecimalType:
        precision, scale = 10, 0
        if self._takes("("):
            precision = int(self._read(r"\d+", "a number"))
            scale = int(self._read(r"\d+", "a number")) if self._takes(",") else 0
            self.expect(")")
        if not 0 < precision <= _DECIMAL_DIGITS_MAX or scale > precision:
            raise ValueError(f"has DECIMAL({precision},{scale}), which cannot be")
        return T.DecimalType(precision, scale)

    def _read(self, pattern: str, wanted: str) -> str:
        token = self._next
        if not re.fullmatch(pattern, token, re.DOTALL):
            raise ValueError(f"has {token or 'its end'!r} where {wanted} is expected")
        self._at += 1
        return token

    def _takes(self, token: str) -> bool:
        if self._next.lower() != token:
            return False
        self._at += 1
        return True
