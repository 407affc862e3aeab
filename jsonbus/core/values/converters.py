"""The small functions that typed.py puts together: one JSON value in, one Python value out.

A value that does not fit raises Mismatch at the bottom, and each level adds its part of the path on
the way up: no path is made for values that fit.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from itertools import repeat
from types import NoneType
from typing import Any

from jsonbus.errors import ConfigError

Converter = Callable[[Any], Any]


class Mismatch(Exception):
    """A value does not fit. The path's innermost part comes first."""

    def __init__(self, reason: str, part: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.path = [part]


def expected(what: str, value: Any) -> Mismatch:
    """The error for a value that is something else."""
    shown = repr(value)
    if len(shown) > 60:
        shown = shown[:59] + "…"
    return Mismatch(f"expected {what}, got {shown}")


def exactly(cls: type, what: str) -> Converter:
    """A value of one JSON type, as it is. True is no whole number here."""

    def convert(value: Any) -> Any:
        if type(value) is cls:
            return value
        raise expected(what, value)

    return convert


def parsed(cls: type, parse: Callable[[Any], Any], what: str) -> Converter:
    """A value of one JSON type, in which `parse` sees more; it raises ValueError if not."""

    def convert(value: Any) -> Any:
        if type(value) is cls:
            try:
                return parse(value)
            except ValueError:
                pass
        raise expected(what, value)

    return convert


def convert_float(value: Any) -> float:
    """A number. Many languages write 21.0 as 21."""
    if type(value) is float:
        return value
    if type(value) is int:
        return float(value)
    raise expected("a number", value)


def parse_key(text: str) -> int:
    """An integer that became the key of an object: the one text that is written for it."""
    number = int(text)
    if str(number) != text:
        raise ValueError(text)
    return number


def choice(pairs: Iterable[tuple[Any, Any]]) -> Converter:
    """One of some scalars; `pairs` of JSON value and result. Raises ConfigError for others."""
    # With their types, because True == 1 == 1.0.
    choices = {(type(raw), raw): result for raw, result in pairs}
    for cls, raw in choices:
        if cls not in (str, int, float, bool, NoneType):
            raise ConfigError(f"the choice {raw!r} is not a text, a number, a boolean or None")
    what = "one of " + ", ".join(repr(raw) for _, raw in choices)

    def convert(value: Any) -> Any:
        if isinstance(value, Hashable) and (type(value), value) in choices:
            return choices[type(value), value]
        raise expected(what, value)

    return convert


def union(members: Sequence[Converter], takers: dict[type, Converter], name: str) -> Converter:
    """The first member that fits, except for arrays and objects: `takers` has the one for each.

    Those are never just tried: tries within tries would take exponential time on a value that was
    made for it. And of the only one possible, the error can say what is wrong inside.
    """

    def convert(value: Any) -> Any:
        taker = takers.get(type(value))
        if taker is not None:
            return taker(value)
        for member in members:
            try:
                return member(value)
            except Mismatch:
                continue
        raise expected(name, value)

    return convert


def array(convert_item: Converter, make: Callable[[list[Any]], Any] | None) -> Converter:
    """Any number of items of one type; `make` turns the list into something else."""

    def convert(value: Any) -> Any:
        if type(value) is not list:
            raise expected("an array", value)
        items = _convert_each(zip(repeat(convert_item), value, strict=False))
        return items if make is None else make(items)

    return convert


def fixed_array(converters: Sequence[Converter]) -> Converter:
    """A tuple whose items have a type each."""

    def convert(value: Any) -> Any:
        if type(value) is not list or len(value) != len(converters):
            raise expected(f"an array of {len(converters)}", value)
        return tuple(_convert_each(zip(converters, value, strict=True)))

    return convert


def mapping(convert_key: Converter, convert_item: Converter) -> Converter:
    """An object of which any key is welcome."""

    def convert(value: Any) -> Any:
        if type(value) is not dict:
            raise expected("an object", value)
        result = {}
        for key, item in value.items():
            try:
                result[convert_key(key)] = convert_item(item)
            except Mismatch as mismatch:
                mismatch.path.append(f"[{key!r}]")
                raise
        return result

    return convert


class DataclassConverter:
    """Its fields are filled in after it was made, so that one of them may lead back to it."""

    __slots__ = ("cls", "fields", "required")

    def __init__(self, cls: type) -> None:
        self.cls = cls
        self.fields: dict[str, Converter] = {}
        self.required: set[str] = set()

    def __call__(self, value: Any) -> Any:
        if type(value) is not dict:
            raise expected(f"an object ({self.cls.__name__})", value)
        arguments = {}
        for name, convert in self.fields.items():
            if name in value:
                try:
                    arguments[name] = convert(value[name])
                except Mismatch as mismatch:
                    mismatch.path.append(f".{name}")
                    raise
            elif name in self.required:
                raise Mismatch(f"missing, {self.cls.__name__} needs it", f".{name}")
        try:
            return self.cls(**arguments)
        except Exception as error:
            # The application's __post_init__, given another node's value, may raise anything.
            raise Mismatch(f"{self.cls.__name__} refuses it: {error!r}") from error


def _convert_each(pairs: Iterable[tuple[Converter, Any]]) -> list[Any]:
    items: list[Any] = []
    try:
        for convert, item in pairs:
            items.append(convert(item))
    except Mismatch as mismatch:
        mismatch.path.append(f"[{len(items)}]")
        raise
    return items
