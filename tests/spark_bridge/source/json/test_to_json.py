"""Columns of any type as JSON text."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("pyspark")

from pyspark.sql.types import (
    ArrayType,
    DataType,
    DayTimeIntervalType,
    MapType,
    StringType,
    StructType,
    TimestampType,
    VariantType,
    YearMonthIntervalType,
)

from spark_bridge.source.json.to_json import find_unwritable, to_json

TEXT = StringType()
NOON = dt.datetime(2024, 5, 1, 12, 0, 0, 250)
PARIS = pa.timestamp("us", tz="Europe/Paris")


@pytest.mark.parametrize(
    ("array", "texts"),
    [
        (pa.array([1, None, -3], pa.int8()), ["1", None, "-3"]),
        (pa.array([2**63 - 1]), ["9223372036854775807"]),
        (pa.array([True, False, None]), ["true", "false", None]),
        (pa.array([1.0, -2.5, 1e300, 0.1]), ["1.0", "-2.5", "1e+300", "0.1"]),
        (pa.array([0.1, 3.0], pa.float32()), ["0.1", "3.0"]),
        (pa.array([float("nan"), float("inf"), float("-inf")]), [None, None, None]),
        (pa.array([Decimal("1.20"), Decimal("-100.00")]), ["1.20", "-100.00"]),
        (pa.array(["é", 'a"b\\c', None]), ['"é"', '"a\\"b\\\\c"', None]),
        (pa.array(["line\nnext", "\x00", "tab\t"]), ['"line\\nnext"', '"\\u0000"', '"tab\\t"']),
        (pa.array(["x"], pa.large_string()), ['"x"']),
        (pa.array(["x", "y", "x"]).dictionary_encode(), ['"x"', '"y"', '"x"']),
        (pa.array([b"\x00\xff", None]), ['"AP8="', None]),
        (pa.array([NOON, None], PARIS), ['"2024-05-01T12:00:00.000250Z"', None]),
        (pa.array([NOON], pa.timestamp("us")), ['"2024-05-01T12:00:00.000250"']),
        (pa.array([dt.date(2024, 5, 1)]), ['"2024-05-01"']),
        (pa.array([dt.time(1, 2, 3)], pa.time64("ns")), ['"01:02:03.000000"']),
        (pa.nulls(2), [None, None]),
        (pa.array([], pa.int64()), []),
        (
            pa.array([{"a": 1, "b": {"c": None}}, None, {"a": None, "b": None}]),
            ['{"a":1,"b":{"c":null}}', None, '{"a":null,"b":null}'],
        ),
        (pa.array([{}], pa.struct([])), ["{}"]),
        (pa.array([{'k"': 1}]), ['{"k\\"":1}']),
        (pa.array([[1.5, None], [], None]), ["[1.5,null]", "[]", None]),
        (pa.array([["a"]], pa.large_list(pa.string())), ['["a"]']),
        (
            pa.array([[("a", 1), ("b", None)], [], None], pa.map_(pa.string(), pa.int8())),
            ['{"a":1,"b":null}', "{}", None],
        ),
        (
            pa.array([[(1, [dt.date(2024, 5, 1)])]], pa.map_(pa.int8(), pa.list_(pa.date32()))),
            ['{"1":["2024-05-01"]}'],
        ),
        (
            pa.array([[({"a": 1}, 2)]], pa.map_(pa.struct([("a", pa.int8())]), pa.int8())),
            ['{"{\\"a\\":1}":2}'],
        ),
    ],
    ids=lambda each: str(each.type) if isinstance(each, pa.Array) else "",
)
def test_each_type_has_its_json_form(array: pa.Array, texts: list[str | None]) -> None:
    assert to_json(array).to_pylist() == texts


def test_a_slice_of_nested_values_is_not_mixed_up_with_its_neighbours() -> None:
    array = pa.array([{"a": [1], "m": 1}, None, {"a": [2, 3], "m": 2}, {"a": [], "m": None}])
    assert to_json(array[1:]).to_pylist() == to_json(array).to_pylist()[1:]
    maps = pa.array([[("a", 1)], [("b", 2)], None], pa.map_(pa.string(), pa.int8()))
    assert to_json(maps[1:]).to_pylist() == ['{"b":2}', None]


VALUES: st.SearchStrategy[Any] = st.one_of(
    st.none(), st.fixed_dictionaries({"text": st.text(), "list": st.lists(st.text() | st.none())})
)


@given(st.lists(VALUES))
def test_any_text_survives(values: list[Any]) -> None:
    kind = pa.struct([("text", pa.string()), ("list", pa.list_(pa.string()))])
    texts = to_json(pa.array(values, kind)).to_pylist()
    assert [text if text is None else json.loads(text) for text in texts] == values


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False)))
def test_floats_survive_to_the_last_digit(values: list[float]) -> None:
    texts = to_json(pa.array(values, pa.float64())).to_pylist()
    read = [json.loads(text) for text in texts]
    assert read == values
    assert all(type(each) is float for each in read)


@pytest.mark.parametrize(
    ("kind", "path"),
    [
        (StructType().add("a", "long").add("b", ArrayType(MapType(TEXT, TimestampType()))), None),
        (VariantType(), None),
        (DayTimeIntervalType(), "value"),
        (StructType().add("a", TEXT).add("b", DayTimeIntervalType()), "value.b"),
        (ArrayType(YearMonthIntervalType()), "value[]"),
        (MapType(TEXT, StructType().add("c", DayTimeIntervalType())), "value.value.c"),
    ],
    ids=str,
)
def test_a_type_without_json_form_is_found_with_its_path(kind: DataType, path: str | None) -> None:
    found = find_unwritable(kind, "value")
    assert (found[0] if found else None) == path
