"""Values to structs: what fits, what does not, and that it is all the same how they are read."""

from __future__ import annotations

import json
import math
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
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
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
    VariantType,
)

from spark_bridge.source.columns import arrow_schema
from spark_bridge.source.errors import OptionError
from spark_bridge.source.json import values
from spark_bridge.source.json.values import ValueReader

MISFIT = object()


def make_reader(data_type: DataType) -> ValueReader:
    schema = StructType().add("value", data_type)
    return ValueReader(data_type, arrow_schema(schema).field("value").type)


def read(data_type: DataType, *texts: str | None) -> list[Any]:
    """The values; MISFIT where a text does not fit."""
    array, misfits = make_reader(data_type).read(pa.array(texts, pa.string()))
    schema = StructType().add("value", data_type)
    assert array.type == arrow_schema(schema).field("value").type
    array.validate(full=True)
    found = array.to_pylist()
    for row in misfits:
        assert found[row] is None
        found[row] = MISFIT
    return found


STRUCT = StructType().add("a", IntegerType()).add("b", StringType())


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a":1,"b":"x"}', {"a": 1, "b": "x"}),
        ('{"b":"x","c":[{}]}', {"a": None, "b": "x"}),
        ("{}", {"a": None, "b": None}),
        ('{"a":null}', {"a": None, "b": None}),
        ("null", None),
        (None, None),
        ('{\n  "a": 1\n}\n', {"a": 1, "b": None}),
        ('{"b":"line\\nline"}', {"a": None, "b": "line\nline"}),
        ('{"b":"\\u00e9\\ud83d\\ude00"}', {"a": None, "b": "é😀"}),
        ('{"A":1}', {"a": None, "b": None}),
        # What Arrow does not take, and from_json does.
        ('{"a":1,"a":2}', {"a": 2, "b": None}),
        ('{"b":5}', {"a": None, "b": "5"}),
        ('{"b":1.50}', {"a": None, "b": "1.50"}),
        ('{"b":true}', {"a": None, "b": "true"}),
        ('{"b":{"x": [1, "é", null]}}', {"a": None, "b": '{"x":[1,"é",null]}'}),
        # What nobody takes.
        ("5", MISFIT),
        ("[1]", MISFIT),
        ('[{"a":1}]', MISFIT),
        ('"x"', MISFIT),
        ('{"a":1.0}', MISFIT),
        ('{"a":1e2}', MISFIT),
        ('{"a":"1"}', MISFIT),
        ('{"a":true}', MISFIT),
        ('{"a":2147483648}', MISFIT),
        ('{"b":"\\ud800"}', MISFIT),
        ('{"a":1', MISFIT),
        ('{"a":1} {"a":2}', MISFIT),
        ("", MISFIT),
        ("[" * 100_000, MISFIT),
    ],
)
def test_an_object_is_a_struct(text: str | None, value: Any) -> None:
    assert read(STRUCT, text) == [value]


def field(data_type: DataType, text: str) -> Any:
    (found,) = read(StructType().add("f", data_type), f'{{"f":{text}}}')
    return found if found is MISFIT else found["f"]


UTC_2024 = datetime(2024, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("data_type", "text", "value"),
    [
        (ByteType(), "-128", -128),
        (ByteType(), "128", MISFIT),
        (LongType(), "9223372036854775807", (1 << 63) - 1),
        (LongType(), "9223372036854775808", MISFIT),
        (DoubleType(), "1", 1.0),
        (DoubleType(), "1e300", 1e300),
        (DoubleType(), "1e400", math.inf),
        (DoubleType(), '"-Infinity"', -math.inf),
        (DoubleType(), '"1.5"', MISFIT),
        (FloatType(), "0.5", 0.5),
        (BooleanType(), "true", True),
        (BooleanType(), "1", MISFIT),
        (DecimalType(10, 2), "1.5", Decimal("1.50")),
        (DecimalType(10, 2), '"1.5"', Decimal("1.50")),
        (DecimalType(10, 2), "1.235", Decimal("1.24")),
        (DecimalType(10, 2), "-1.005", Decimal("-1.01")),
        (DecimalType(10, 2), "99999999.99", Decimal("99999999.99")),
        (DecimalType(10, 2), "99999999.999", MISFIT),
        (DecimalType(10, 2), "123456789", MISFIT),
        (DecimalType(10, 2), '"x"', MISFIT),
        (DecimalType(38, 0), "9" * 38, Decimal("9" * 38)),
        (TimestampType(), '"2024-01-01T00:00:00Z"', UTC_2024),
        (TimestampType(), '"2024-01-01T02:00:00+02:00"', UTC_2024),
        (TimestampType(), '"2024-01-01 00:00:00"', UTC_2024),
        (TimestampType(), '"2024-01-01"', UTC_2024),
        (TimestampType(), '"2024-01-01T00:00:00.123456789Z"', UTC_2024.replace(microsecond=123456)),
        (TimestampType(), "1704067200", UTC_2024),
        (TimestampType(), "9999999999999999", MISFIT),
        (TimestampType(), '"soon"', MISFIT),
        (TimestampNTZType(), '"2024-01-01T00:00:00"', datetime(2024, 1, 1)),
        (TimestampNTZType(), '"2024-01-01T00:00:00Z"', MISFIT),
        (DateType(), '"2024-02-29"', date(2024, 2, 29)),
        (DateType(), '"2023-02-29"', MISFIT),
        (DateType(), "5", MISFIT),
        (BinaryType(), '"YWJj"', b"abc"),
        (BinaryType(), '"a!"', MISFIT),
        (ArrayType(IntegerType()), "[1,null]", [1, None]),
        (ArrayType(IntegerType()), "[]", []),
        (ArrayType(IntegerType()), '[1,"x"]', MISFIT),
        (ArrayType(IntegerType()), "{}", MISFIT),
        (MapType(StringType(), LongType()), '{"a":1,"b":null}', [("a", 1), ("b", None)]),
        (MapType(StringType(), LongType()), "{}", []),
        (MapType(StringType(), LongType()), "[]", MISFIT),
        (
            ArrayType(STRUCT),
            '[{"a":1},null,{}]',
            [{"a": 1, "b": None}, None, {"a": None, "b": None}],
        ),
    ],
)
def test_fields_have_their_types(data_type: DataType, text: str, value: Any) -> None:
    assert field(data_type, text) == value


def test_a_value_need_not_be_an_object() -> None:
    assert read(ArrayType(LongType()), "[1,2]", "null", "5") == [[1, 2], None, MISFIT]
    assert read(DoubleType(), "1", "2.5", '"x"') == [1.0, 2.5, MISFIT]


def test_misfits_are_found_among_many_that_fit() -> None:
    texts = [json.dumps({"a": number, "b": "x"}) for number in range(5000)]
    for row in (0, 63, 64, 2500, 4999):
        texts[row] = '{"a":"no number"}'
    texts[77] = '{"b":7}'
    found = read(STRUCT, *texts)
    assert [row for row, value in enumerate(found) if value is MISFIT] == [0, 63, 64, 2500, 4999]
    assert found[77] == {"a": None, "b": "7"}
    assert found[4998] == {"a": 4998, "b": "x"}


def test_a_part_of_a_column_is_read_from_its_place() -> None:
    column = pa.array([json.dumps({"a": number}) for number in range(200)])
    found, misfits = make_reader(STRUCT).read(column.slice(150, 20))
    assert [value["a"] for value in found.to_pylist()] == list(range(150, 170))
    assert misfits == []
    assert make_reader(STRUCT).read(column.slice(0, 0))[0].to_pylist() == []


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(1 << 70), 1 << 70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5)
    | st.sampled_from(["2024-01-01", "2024-01-01T00:00:00Z", "1.25", "NaN", "\ud83d"]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abcdef"), inner, max_size=4)
    ),
    max_leaves=8,
)
ANYTHING = (
    StructType()
    .add("a", LongType())
    .add("b", StringType())
    .add("c", ArrayType(DoubleType()))
    .add("d", StructType().add("a", BooleanType()).add("b", DecimalType(12, 3)))
    .add("e", TimestampType())
    .add("f", DateType())
)


@pytest.mark.slow
@settings(max_examples=100, deadline=None)  # machines may be busy
@given(st.lists(st.dictionaries(st.sampled_from("abcdef"), JSON, max_size=6), max_size=4))
def test_what_is_read_at_once_is_what_is_read_one_by_one(given_values: list[Any]) -> None:
    reader = make_reader(ANYTHING)
    texts = pa.array([json.dumps(value) for value in given_values], pa.string())
    at_once, misfits = reader.read(texts)
    expected_misfits: list[int] = []
    expected = reader._read_one_by_one(texts, 0, expected_misfits)
    assert repr(at_once.to_pylist()) == repr(expected.to_pylist())  # nan is not equal to itself
    assert misfits == expected_misfits


@pytest.mark.parametrize(
    ("data_type", "complaint"),
    [
        (VariantType(), "value is VARIANT"),
        (MapType(LongType(), LongType()), "keys are not STRING"),
        (StructType().add("a", LongType(), nullable=False), "value.a is NOT NULL"),
        (ArrayType(StructType().add("x", VariantType())), r"value\[\].x is VARIANT"),
    ],
)
def test_types_that_json_cannot_hold_are_refused(data_type: DataType, complaint: str) -> None:
    with pytest.raises(OptionError, match=complaint):
        values.compile_type(data_type)
