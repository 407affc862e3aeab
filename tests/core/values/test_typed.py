from __future__ import annotations

import sys
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time
from enum import Enum, IntFlag
from typing import (
    Annotated,
    Any,
    Literal,
    NamedTuple,
    NewType,
    NotRequired,
    Optional,
    TypedDict,
    Union,
)

import attrs
import msgspec
import pydantic
import pytest

from jsonbus.core.values.typed import make_converter
from jsonbus.core.wire import codec
from jsonbus.errors import ConfigError, PayloadError


class Unit(Enum):
    CELSIUS = "C"
    KELVIN = "K"


class Level(Enum):
    LOW = 1
    HIGH = 2


class Access(IntFlag):
    READ = 1
    WRITE = 2


Celsius = NewType("Celsius", float)


@dataclass
class Position:
    x: float
    y: float = 0.0


@dataclass
class Reading:
    sensor: str
    temp: float
    unit: Unit = Unit.CELSIUS
    at: datetime | None = None
    position: Position | None = None
    tags: list[str] = field(default_factory=list)


@dataclass
class Everything:
    number: int
    flag: bool
    anything: Any
    day: date
    clock: time
    key: uuid.UUID
    pair: tuple[int, str]
    many: tuple[float, ...]
    by_room: dict[str, Position]
    by_number: dict[int, str]
    by_unit: dict[Unit, int]
    rows: Sequence[Mapping[str, int]]
    kind: Literal["a", 1]
    either: int | str | list[int] | None
    warm: Celsius
    access: Access
    noted: Annotated[int, "a note"]
    bare_list: list  # type: ignore[type-arg]  # what is meant to be read
    bare_dict: dict  # type: ignore[type-arg]
    nothing: None


@dataclass
class Tree:
    name: str
    children: list[Tree] = field(default_factory=list)
    parent: Optional[Tree] = None  # noqa: UP045 - the old spelling must work as well


@dataclass
class Checked:
    percent: float

    def __post_init__(self) -> None:
        if not 0 <= self.percent <= 100:
            raise ValueError("a percentage is 0 to 100")


@dataclass
class Counted:
    start: int
    doubled: int = field(init=False)

    def __post_init__(self) -> None:
        self.doubled = 2 * self.start


class Names(TypedDict):
    first: str
    last: NotRequired[str]


class Point(NamedTuple):
    x: int
    y: int = 0


@attrs.define
class Door:
    open: bool


class Room(msgspec.Struct):
    area: float


class Model(pydantic.BaseModel):
    temp: float
    tags: list[str] = []


@pytest.mark.parametrize(
    ("cls", "value", "expected"),
    [
        (Names, {"first": "Ada", "age": 36}, {"first": "Ada"}),
        (Point, [1], Point(1)),
        (Door, {"open": True}, Door(open=True)),
        (Room, {"area": 20}, Room(area=20.0)),
        (Model, {"temp": 21}, Model(temp=21.0)),
        (list[Model], [{"temp": 21}], [Model(temp=21.0)]),
        (Model | None, None, None),
    ],
)
def test_classes_of_other_kinds_are_made_too(cls: Any, value: Any, expected: Any) -> None:
    assert make_converter(cls)(value) == expected


def test_an_object_becomes_an_instance_with_defaults_and_without_unknown_keys() -> None:
    convert = make_converter(Reading)
    assert convert({"sensor": "hall", "temp": 21, "humidity": 40}) == Reading("hall", 21.0)


def test_nested_values_become_what_the_annotations_say() -> None:
    convert = make_converter(Reading)
    value = {
        "sensor": "hall",
        "temp": 294.5,
        "unit": "K",
        "at": "2025-03-01T12:00:00Z",
        "position": {"x": 1},
        "tags": ["a", "b"],
    }
    at = datetime(2025, 3, 1, 12, tzinfo=UTC)
    expected = Reading("hall", 294.5, Unit.KELVIN, at, Position(1.0), ["a", "b"])
    assert convert(value) == expected


def test_a_published_dataclass_comes_back_equal() -> None:
    everything = Everything(
        number=-7,
        flag=True,
        anything={"a": [1, None]},
        day=date(2025, 3, 1),
        clock=time(12, 30, 1, 5),
        key=uuid.UUID(int=7),
        pair=(1, "x"),
        many=(1.0, 2.5),
        by_room={"hall": Position(1.0, 2.0)},
        by_number={7: "seven", -1: "minus one"},
        by_unit={Unit.KELVIN: 1},
        rows=[{"a": 1}, {}],
        kind="a",
        either=[1, 2],
        warm=Celsius(30.5),
        access=Access.READ | Access.WRITE,
        noted=1,
        bare_list=[1, "x"],
        bare_dict={"a": 1},
        nothing=None,
    )
    sent = codec.loads(codec.dumps(everything))
    assert make_converter(Everything)(sent) == everything


def test_a_dataclass_may_hold_itself() -> None:
    convert = make_converter(Tree)
    value = {"name": "a", "children": [{"name": "b", "children": [{"name": "c"}]}]}
    assert convert(value) == Tree("a", [Tree("b", [Tree("c")])])
    with pytest.raises(PayloadError, match=r"^value\.children\[0\]\.name: "):
        convert({"name": "a", "children": [{"name": None}]})


def test_types_that_are_not_dataclasses_can_be_converted_to_as_well() -> None:
    assert make_converter(list[Position])([{"x": 1}]) == [Position(1.0)]
    assert make_converter(Unit)("K") is Unit.KELVIN
    assert make_converter(None)(None) is None


def test_a_field_that_the_class_computes_is_not_read() -> None:
    assert make_converter(Counted)({"start": 2, "doubled": 7}).doubled == 4


@pytest.mark.parametrize(
    ("cls", "value", "path", "reason"),
    [
        (Reading, 5, "value", "Expected `object`, got `int`"),
        (Reading, {"sensor": "a"}, "value", "missing required field `temp`"),
        (Reading, {"sensor": 1, "temp": 1}, "value.sensor", "Expected `str`, got `int`"),
        (Reading, {"sensor": "a", "temp": "21"}, "value.temp", "Expected `float`, got `str`"),
        (Reading, {"sensor": "a", "temp": True}, "value.temp", "Expected `float`, got `bool`"),
        (Reading, {"sensor": "a", "temp": 1, "unit": "F"}, "value.unit", "enum value 'F'"),
        (Reading, {"sensor": "a", "temp": 1, "unit": ["C"]}, "value.unit", "got `array`"),
        (Reading, {"sensor": "a", "temp": 1, "at": "soon"}, "value.at", "datetime"),
        (Reading, {"sensor": "a", "temp": 1, "at": 5}, "value.at", "datetime"),
        (Reading, {"sensor": "a", "temp": 1, "position": {}}, "value.position", "field `x`"),
        (Reading, {"sensor": "a", "temp": 1, "tags": "abc"}, "value.tags", "`array`"),
        (Reading, {"sensor": "a", "temp": 1, "tags": ["a", 2]}, "value.tags[1]", "`str`"),
        (Reading, {"sensor": "a", "temp": 1, "tags": None}, "value.tags", "got `null`"),
        (dict[str, list[int]], {"a": [1], "b": [1, 2.5]}, "value[...][1]", "Expected `int`"),
        (dict[int, int], {"01": 1}, "value", "Expected `int`, got `str` - at `key`"),
        (dict[str, int], [], "value", "`object`"),
        (tuple[int, str], [1], "value", "length 2"),
        (tuple[int, str], [1, 2], "value[1]", "`str`"),
        (int, 1.0, "value", "`int`"),
        (int, True, "value", "`int`"),
        (bool, 1, "value", "`bool`"),
        (None, 0, "value", "`null`"),
        (Level, True, "value", "`int`"),
        (Level, 1.0, "value", "`int`"),
        (Literal["a", 1], True, "value", "`int | str`"),
        (Access, "1", "value", "`int`"),
        (uuid.UUID, "x", "value", "UUID"),
        (Union[int, str], 1.5, "value", "`int | str`"),  # noqa: UP007 - the old spelling
        (int | list[int], [1, "x"], "value[1]", "`int`"),
        (int | list[int], {}, "value", "`int | array`"),
        (Checked, {"percent": 101}, "value", "a percentage is 0 to 100"),
        (Names, {"first": 1}, "value.first", "`str`"),
        (Point, [1, "y"], "value[1]", "`int`"),
        (Door, {"open": 1}, "value.open", "`bool`"),
        (Room, {"area": "x"}, "value.area", "`float`"),
        (Model, {"temp": "warm"}, "value.temp", "valid number"),
        (Model, {"temp": 1, "tags": ["a", 2]}, "value.tags[1]", "valid string"),
        (Model, 5, "value", "valid dictionary"),
        (list[Model], [{"temp": 1}, {}], "value[1].temp", "required"),
    ],
)
def test_a_value_that_does_not_fit_is_refused_with_its_path(
    cls: Any, value: Any, path: str, reason: str
) -> None:
    with pytest.raises(PayloadError) as raised:
        make_converter(cls)(value)
    found_path, _, found_reason = str(raised.value).partition(": ")
    assert found_path == path
    assert reason in found_reason


def test_whatever_the_applications_own_check_raises_is_the_cause() -> None:
    @dataclass
    class Inverse:
        of: float

        def __post_init__(self) -> None:
            self.value = 1 / self.of

    with pytest.raises(PayloadError) as raised:
        make_converter(Inverse)({"of": 0})
    assert type(raised.value.__cause__) is ZeroDivisionError


def test_the_error_for_a_long_value_is_short() -> None:
    with pytest.raises(PayloadError) as raised:
        make_converter(Unit)("x" * 100_000)
    assert len(str(raised.value)) < 220


@pytest.mark.parametrize(
    ("union", "value", "expected"),
    [
        (float | int, 1, 1),
        (float | int, 1.0, 1.0),
        (int | float, 1.0, 1.0),
        (float | None, 1, 1.0),
        (float | None, None, None),
        (date | Position | list[int], "2025-03-01", date(2025, 3, 1)),
        (date | Position | list[int], {"x": 1}, Position(1.0)),
        (date | Position | list[int], [1], [1]),
        (Any | None, 5, 5),
        (Any | None, [None], [None]),
    ],
)
def test_a_union_takes_the_type_that_fits(union: Any, value: Any, expected: Any) -> None:
    converted = make_converter(union)(value)
    assert converted == expected
    assert type(converted) is type(expected)


@pytest.mark.parametrize(
    ("cls", "words"),
    [
        (complex, "no JSON value becomes complex"),
        (object, "object"),
        ([int], "int"),
        ("Reading", "Reading"),
        (list[complex], "complex"),
        (Position | Tree, "more than one dataclass"),
        (list[int] | tuple[int, ...], "more than one array-like"),
        (dict[str, int] | Position | None, "more than one dict-like"),
        (Unit | str, "more than one str-like"),
        (Literal[b"x"], "Literal"),
    ],
)
def test_a_type_that_json_cannot_become_is_refused_at_once(cls: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        make_converter(cls)


def test_the_refusal_of_a_fields_type_names_both_types() -> None:
    @dataclass
    class Wrong:
        fine: int
        bad: complex

    with pytest.raises(ConfigError, match=r"^as_type=Wrong: no JSON value becomes complex$"):
        make_converter(Wrong)


def test_an_annotation_that_cannot_be_looked_up_is_refused_with_its_name() -> None:
    @dataclass
    class Inner:
        x: int

    @dataclass
    class Outer:
        inner: Inner

    with pytest.raises(ConfigError, match=r"^as_type=Outer: .*'Inner'"):
        make_converter(Outer)


def test_without_msgspec_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "msgspec", None)
    with pytest.raises(ConfigError, match=r"pip install 'jsonbus\[typed\]'"):
        make_converter(Reading)


@pytest.mark.slow
def test_a_value_nested_too_deep_is_refused() -> None:
    value: dict[str, Any] = {"name": "leaf"}
    for _ in range(20_000):
        value = {"name": "branch", "children": [value]}
    with pytest.raises(PayloadError, match="too deep for Tree"):
        make_converter(Tree)(value)
