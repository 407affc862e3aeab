"""JSON values to instances of dataclasses, and of whatever their fields are annotated with.

    make_converter(Reading)({"temp": 21, "at": "2025-03-01T12:00:00Z"})
        == Reading(temp=21.0, at=datetime(2025, 3, 1, 12, tzinfo=UTC))

It undoes what publishing a dataclass does: enums travel as their values, dates, times and UUIDs as
text, tuples as arrays. Keys without a field are ignored, so that a publisher may add some; a
missing key takes the field's default. Nothing is guessed: "21" is not a number and 1 is not True.

An annotation is read once, when the converter is made, and becomes a tree of the functions of
converters.py; what cannot be converted is refused then.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Hashable, Iterable, Mapping, Sequence
from datetime import date, datetime, time
from enum import Enum, Flag
from typing import Any, NamedTuple

from jsonbus.core.values import converters
from jsonbus.core.values.converters import Converter
from jsonbus.errors import ConfigError, PayloadError


def make_converter(cls: Any) -> Converter:
    """A function from a JSON value to an instance of `cls`: a dataclass, or any type of a field.

    Fields may be dataclasses again, also recursive ones; enums and Literal; str, int, float, bool,
    None and Any; datetime, date, time and UUID; list, tuple, dict, Sequence and Mapping of these;
    Optional and other unions, as long as at most one of their types is for JSON objects and one
    for arrays; NewType and Annotated. Raises ConfigError for anything else.

    The function raises PayloadError with the path for a value that does not fit.
    """
    convert = _Reader().read(cls, _name(cls)).convert

    def convert_value(value: Any) -> Any:
        try:
            return convert(value)
        except converters.Mismatch as mismatch:
            path = "".join(reversed(mismatch.path))
            raise PayloadError(f"value{path}: {mismatch.reason}") from mismatch.__cause__
        except RecursionError:
            raise PayloadError(f"value: nested too deep for {_name(cls)}") from None

    return convert_value


class _Type(NamedTuple):
    """An annotation, read."""

    convert: Converter
    takes: frozenset[type] = frozenset()  # which of list and dict it may accept


_ARRAY: frozenset[type] = frozenset({list})
_OBJECT: frozenset[type] = frozenset({dict})

_NULL = _Type(converters.exactly(types.NoneType, "null"))

# Annotations that need no further reading.
_SIMPLE: dict[Any, _Type] = {
    Any: _Type(lambda value: value, _ARRAY | _OBJECT),
    None: _NULL,
    types.NoneType: _NULL,
    bool: _Type(converters.exactly(bool, "true or false")),
    int: _Type(converters.exactly(int, "a whole number")),
    float: _Type(converters.convert_float),
    str: _Type(converters.exactly(str, "a text")),
    datetime: _Type(converters.parsed(str, datetime.fromisoformat, "a date with time")),
    date: _Type(converters.parsed(str, date.fromisoformat, "a date")),
    time: _Type(converters.parsed(str, time.fromisoformat, "a time of day")),
}


class _Reader:
    """Turns annotations into converters; remembers dataclasses, since they may hold themselves."""

    def __init__(self) -> None:
        self._dataclasses: dict[type, _Type] = {}

    def read(self, annotation: Any, place: str) -> _Type:
        """The converter for an annotation; `place` is where it stands, for the error."""
        if isinstance(annotation, typing.NewType):
            return self.read(annotation.__supertype__, place)
        origin = typing.get_origin(annotation)
        arguments = typing.get_args(annotation)
        if origin is typing.Annotated:
            return self.read(arguments[0], place)
        if origin is typing.Literal:
            return _read_choices(arguments, place)
        if origin in (typing.Union, types.UnionType):
            return self._read_union(annotation, arguments, place)
        kind = origin or annotation
        if kind in (list, tuple, Sequence):
            return self._read_array(kind, arguments, place)
        if kind in (dict, Mapping):
            return self._read_dict(arguments, place)
        if isinstance(annotation, Hashable) and annotation in _SIMPLE:
            return _SIMPLE[annotation]
        if isinstance(annotation, type):
            return self._read_class(annotation, place)
        raise _refusal(annotation, place)

    def _read_class(self, cls: type, place: str) -> _Type:
        if dataclasses.is_dataclass(cls):
            return self._read_dataclass(cls)
        if issubclass(cls, Flag):
            return _Type(converters.parsed(int, cls, f"flags of {_name(cls)}"))
        if issubclass(cls, Enum):
            return _read_choices(cls.__members__.values(), place)
        # By name: the core imports no module that draws random numbers.
        if (cls.__module__, cls.__qualname__) == ("uuid", "UUID"):
            return _Type(converters.parsed(str, cls, "a UUID"))
        raise _refusal(cls, place)

    def _read_dataclass(self, cls: Any) -> _Type:
        if cls in self._dataclasses:
            return self._dataclasses[cls]
        converter = converters.DataclassConverter(cls)
        known = self._dataclasses[cls] = _Type(converter, _OBJECT)  # before its fields ask for it
        try:
            # Under its own name, too: then a recursive class need not be global.
            annotations = typing.get_type_hints(
                cls, localns={cls.__name__: cls}, include_extras=True
            )
        except NameError as error:
            raise ConfigError(
                f"{_name(cls)}: the annotation {error.name!r} cannot be looked up, "
                "define that type at the top level of a module"
            ) from error
        for field in dataclasses.fields(cls):
            if field.init:
                place = f"{_name(cls)}.{field.name}"
                converter.fields[field.name] = self.read(annotations[field.name], place).convert
                if field.default is field.default_factory is dataclasses.MISSING:
                    converter.required.add(field.name)
        return known

    def _read_union(self, annotation: Any, members: Iterable[Any], place: str) -> _Type:
        name = _name(annotation)
        # float last: where there is a choice, a whole number is an int.
        ordered = sorted(members, key=lambda member: member is float)
        read = [self.read(member, place) for member in ordered]
        takers: dict[type, Converter] = {}
        for convert, takes in read:
            for shape in takes:
                if shape in takers:
                    what = "arrays" if shape is list else "objects"
                    raise ConfigError(f"{place}: {name} has more than one type for JSON {what}")
                takers[shape] = convert
        convert_union = converters.union([each.convert for each in read], takers, name)
        return _Type(convert_union, frozenset(takers))

    def _read_array(self, kind: type, arguments: tuple[Any, ...], place: str) -> _Type:
        if kind is tuple and arguments and arguments[-1] is not Ellipsis:
            each = [self.read(argument, place).convert for argument in arguments]
            return _Type(converters.fixed_array(each), _ARRAY)
        convert_item = self.read(arguments[0] if arguments else Any, place).convert
        return _Type(converters.array(convert_item, tuple if kind is tuple else None), _ARRAY)

    def _read_dict(self, arguments: tuple[Any, ...], place: str) -> _Type:
        key, item = arguments or (str, Any)
        if key is int:
            convert_key = converters.parsed(str, converters.parse_key, "a whole number as key")
        elif key in (float, bool):
            raise ConfigError(f"{place}: keys of JSON objects are text, use dict[str, …]")
        else:
            convert_key = self.read(key, place).convert
        return _Type(converters.mapping(convert_key, self.read(item, place).convert), _OBJECT)


def _read_choices(choices: Iterable[Any], place: str) -> _Type:
    pairs = [(each.value if isinstance(each, Enum) else each, each) for each in choices]
    try:
        return _Type(converters.choice(pairs))
    except ConfigError as error:
        raise ConfigError(f"{place}: {error}") from None


def _refusal(annotation: Any, place: str) -> ConfigError:
    return ConfigError(
        f"{place}: no JSON value becomes {_name(annotation)}, use a dataclass or a type of JSON"
    )


def _name(annotation: Any) -> str:
    if isinstance(annotation, type) and typing.get_origin(annotation) is None:
        return annotation.__name__
    return str(annotation).replace("typing.", "")
