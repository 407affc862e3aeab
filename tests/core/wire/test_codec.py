from __future__ import annotations

import dataclasses
import datetime
import enum
import math
import uuid
from decimal import Decimal
from typing import Any, NamedTuple

import numpy
import pytest
from hypothesis import given

from jsonbus.core.wire import codec
from jsonbus.core.wire.names import NESTING_LEVELS_MAX
from jsonbus.errors import PayloadError
from tests.core.generated import json_values, unhurried


@dataclasses.dataclass
class Reading:
    sensor: str
    value: object


class Room(enum.Enum):
    HALL = "hall"


def nested(levels: int) -> Any:
    value: Any = 1
    for level in range(levels):
        value = [value] if level % 2 else {"a": value}
    return value


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, b"null"),
        (True, b"true"),
        (21.5, b"21.5"),
        (2**64 - 1, b"18446744073709551615"),
        (-(2**63), b"-9223372036854775808"),
        ("grüße\n", '"grüße\\n"'.encode()),
        ({"b": 1, "a": [1, 2]}, b'{"b":1,"a":[1,2]}'),
        ((1, 2), b"[1,2]"),
        (Reading("door", Room.HALL), b'{"sensor":"door","value":"hall"}'),
        (datetime.datetime(2024, 11, 16, 1, 2, 3), b'"2024-11-16T01:02:03"'),
        (uuid.UUID(int=1), b'"00000000-0000-0000-0000-000000000001"'),
    ],
)
def test_values_are_written_as_compact_utf8(value: object, text: bytes) -> None:
    assert codec.dumps(value) == text


@dataclasses.dataclass(slots=True)
class Slotted:
    level: float


class Point(NamedTuple):
    x: float
    y: float


class Odd(enum.Enum):
    NAN = math.nan
    NONE = None


@pytest.mark.parametrize(
    ("value", "where"),
    [
        (math.nan, "value is nan"),
        (-math.inf, "value is -inf"),
        ([None, 1.5, math.inf], "value[2] is inf"),
        ({"readings": [0, {"temp": math.nan}]}, "value.readings[1].temp is nan"),
        ({"a b": {7: (math.nan,)}}, "value['a b'][7][0] is nan"),
        (Reading("door", math.nan), "value.value is nan"),
        ([Slotted(math.nan)], "value[0].level is nan"),
        (Point(1.0, math.nan), "value[1] is nan"),
        ([Odd.NONE, Odd.NAN], "value[1] is nan"),
        ({math.nan: 1}, "value has the key nan"),
        ({Odd.NAN: 1}, "value has the key nan"),
        ([Decimal("NaN")], "value[0] is NaN"),
        ([Decimal("sNaN")], "value[0] is sNaN"),
        ({"a": numpy.float32("nan")}, "value.a is nan"),
        (numpy.array([[1.0, 2.0], [3.0, math.inf]]), "value[1][1] is inf"),
    ],
)
def test_a_number_that_json_lacks_is_refused_with_its_path(value: object, where: str) -> None:
    with pytest.raises(PayloadError) as caught:
        codec.dumps(value)
    assert str(caught.value).startswith(f"{where}, and JSON has no such number")
    assert b"null" in codec.dumps(value, nan_as_null=True)


@pytest.mark.parametrize("value", [None, [None, 1.5], {"null": "nullable"}, Odd.NONE, {None: 1}])
def test_a_null_that_was_meant_is_written(value: object) -> None:
    assert b"null" in codec.dumps(value)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (Decimal("21.50"), b"21.50"),
        (Decimal("0.1234567890123456789012"), b"0.1234567890123456789012"),
        (Decimal("1E+5"), b"1E+5"),
        ([Point(1.5, 2.0)], b"[[1.5,2.0]]"),
        (numpy.float64(1.5), b"1.5"),
        ({"a": numpy.int32(3), "b": numpy.bool_(True)}, b'{"a":3,"b":true}'),
        (numpy.array([[1, 2], [3, 4]]), b"[[1,2],[3,4]]"),
        (numpy.array([[1, 2], [3, 4]]).T, b"[[1,3],[2,4]]"),
    ],
)
def test_what_takes_a_second_try_is_written_without_loss(value: object, text: bytes) -> None:
    assert codec.dumps(value) == text
    codec.loads(text)


def test_a_decimal_that_no_reader_could_read_is_refused() -> None:
    with pytest.raises(PayloadError, match="is beyond what a number of JSON may be"):
        codec.dumps([Decimal("1E+400")])


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({1: "a", None: "b", 1.5: "c"}, b'{"1":"a","null":"b","1.5":"c"}'),
        ({True: 1}, b'{"true":1}'),
        ({Room.HALL: 1}, b'{"hall":1}'),
        ([{datetime.date(2024, 11, 16): {2: 3}}], b'[{"2024-11-16":{"2":3}}]'),
    ],
)
def test_keys_that_are_not_strings_are_written_as_their_text(value: object, text: bytes) -> None:
    assert codec.dumps(value) == text


def a_list_that_contains_itself() -> list[object]:
    value: list[object] = []
    value.append(value)
    return value


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (
            {"readings": [1, {1, 2}]},
            "a value of type set (value.readings[1]) has no JSON form: publish",
        ),
        (b"bytes", "a value of type bytes has no JSON form: publish"),
        (
            {"a b": Reading("door", object())},
            "a value of type object (value['a b'].value) has no JSON form: publish",
        ),
        ("\ud800", "a string has a lone surrogate, which UTF-8 cannot carry: clean it"),
        ({"\ud800": 1}, "a string has a lone surrogate, which UTF-8 cannot carry: clean it"),
        (2**64, "an integer is beyond 64 bits: publish it as a string"),
        ([-(2**63) - 1], "an integer is beyond 64 bits: publish it as a string"),
        ({2**64: 1}, "an integer is beyond 64 bits: publish it as a string"),
        ({(1, 2): 1}, "a dict has a key without a JSON form: use strings"),
        (nested(NESTING_LEVELS_MAX + 1), "nested more than 254 levels deep or contains itself"),
        (a_list_that_contains_itself(), "nested more than 254 levels deep or contains itself"),
    ],
)
def test_a_value_that_is_not_json_is_refused_with_what_to_do(value: object, reason: str) -> None:
    with pytest.raises(PayloadError, match="^[a-z]") as caught:
        codec.dumps(value)
    assert reason in str(caught.value)
    assert isinstance(caught.value.__cause__, TypeError)


def test_an_unknown_complaint_of_the_library_is_passed_on() -> None:
    assert "(moon phase)" in codec._explain("moon phase", None)


def test_the_deepest_value_that_can_be_written_can_be_read() -> None:
    value = nested(NESTING_LEVELS_MAX)
    assert codec.loads(codec.dumps(value)) == value
    assert not codec.nests_too_deeply(value)


def test_a_value_can_be_read_that_is_too_deep_to_be_written() -> None:
    levels = NESTING_LEVELS_MAX + 1
    assert codec.nests_too_deeply(codec.loads(b"[" * levels + b"1" + b"]" * levels))


@pytest.mark.parametrize("text", [b"", b"{", b"nan", b'"\xff"', b"1 2", b'"\\ud800"', b"1e999"])
def test_text_that_is_not_json_is_a_value_error(text: bytes) -> None:
    with pytest.raises(ValueError):
        codec.loads(text)


def test_the_last_of_repeated_keys_counts() -> None:
    assert codec.loads(b'{"a":1,"a":2}') == {"a": 2}


@pytest.mark.slow
@unhurried
@given(json_values)
def test_json_values_survive_the_way_there_and_back(value: object) -> None:
    assert codec.loads(codec.dumps(value)) == value
