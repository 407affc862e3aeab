"""Parses the option valueSchema: columns or a type, as in Spark's SQL.

    id STRING, celsius DOUBLE, tags ARRAY<STRING>, place STRUCT<x: DOUBLE, y: DOUBLE>
    STRUCT<id: STRING>    ARRAY<BIGINT>    MAP<STRING, DOUBLE>

Spark's own parser is in its JVM, and options are read in a process that cannot ask it. This one
knows the types that a value can have (json_rows.py), and says what is wrong with the rest.
"""

from __future__ import annotations

import re

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

#: Types without parameters, by every name that SQL has for them.
_ATOMS: dict[str, type[DataType]] = {
    "boolean": BooleanType,
    **dict.fromkeys(("tinyint", "byte"), ByteType),
    **dict.fromkeys(("smallint", "short"), ShortType),
    **dict.fromkeys(("int", "integer"), IntegerType),
    **dict.fromkeys(("bigint", "long"), LongType),
    **dict.fromkeys(("float", "real"), FloatType),
    "double": DoubleType,
    "string": StringType,
    "binary": BinaryType,
    "date": DateType,
    **dict.fromkeys(("timestamp", "timestamp_ltz"), TimestampType),
    "timestamp_ntz": TimestampNTZType,
}
_DECIMALS = ("decimal", "dec", "numeric")
_DECIMAL_DIGITS_MAX = 38

_TOKEN = re.compile(r"\s*(?:(`(?:[^`]|``)+`)|('(?:[^'\\]|\\.|'')*')|(\w+)|([<>(),:])|(\S))")


def parse_value_schema(text: str) -> DataType:
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
        if not self._takes(token):
            wanted = repr(token) if token else "nothing more"
            raise ValueError(f"has {self._next or 'its end'!r} where {wanted} is expected")

    def read_fields(self) -> StructType:
        struct = StructType()
        while True:
            name = self._read_name()
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

    def read_type(self) -> DataType:
        name = self._next.lower()
        self._at += 1
        if name == "struct":
            self.expect("<")
            struct = self.read_fields()
            self.expect(">")
            return struct
        if name == "array":
            self.expect("<")
            element = self.read_type()
            self.expect(">")
            return ArrayType(element)
        if name == "map":
            return self._read_map()
        if name in _DECIMALS:
            return self._read_decimal()
        if name not in _ATOMS:
            known = "STRUCT, ARRAY, MAP, DECIMAL, " + ", ".join(_ATOMS).upper()
            raise ValueError(
                f"has {name.upper() or 'nothing'!r} where a type is expected that JSON can hold "
                f"({known}); take the value as STRING, and from_json or parse_json, for others"
            )
        return _ATOMS[name]()

    def _read_map(self) -> MapType:
        self.expect("<")
        if not isinstance(self.read_type(), StringType):
            raise ValueError("has a MAP whose keys are not STRING: JSON knows no others")
        self.expect(",")
        value = self.read_type()
        self.expect(">")
        return MapType(StringType(), value)

    def _read_decimal(self) -> DecimalType:
        precision, scale = 10, 0
        if self._takes("("):
            precision = self._read_number()
            scale = self._read_number() if self._takes(",") else 0
            self.expect(")")
        if not 0 < precision <= _DECIMAL_DIGITS_MAX or scale > precision:
            raise ValueError(f"has DECIMAL({precision},{scale}), which cannot be")
        return DecimalType(precision, scale)

    def _read_number(self) -> int:
        token = self._next
        if not token.isdecimal():
            raise ValueError(f"has {token or 'its end'!r} where a number is expected")
        self._at += 1
        return int(token)

    def _read_name(self) -> str:
        token = self._next
        if not re.fullmatch(r"\w+|`.+`", token, re.DOTALL):
            raise ValueError(f"has {token or 'its end'!r} where the name of a column is expected")
        self._at += 1
        return token[1:-1].replace("``", "`") if token.startswith("`") else token

    def _takes(self, token: str) -> bool:
        if self._next.lower() != token:
            return False
        self._at += 1
        return True
