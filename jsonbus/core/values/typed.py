"""Convert received JSON values to the class a subscription asks for, by msgspec.

    make_converter(Reading)({"temp": 21, "at": "2025-03-01T12:00:00Z"})
        == Reading(temp=21.0, at=datetime(2025, 3, 1, 12, tzinfo=UTC))

This reverses what publishing an instance does: enums travel as their values, dates, times and UUIDs
as text, tuples as arrays. Unknown keys are ignored, so that a publisher may add some; a missing key
takes the field's default. Conversion is strict: "21" is not a number, and 1 is not True.

Pydantic models convert by their own `model_validate`, which is as strict as the model says.
"""

from __future__ import annotations

import typing
from collections.abc import Callable
from typing import Any

from jsonbus.errors import ConfigError, PayloadError

#: Characters of msgspec's reason that an error quotes. The reason may repeat the value.
REASON_MAX = 200

_PATH_MARK = " - at `$"  # before the path in a message of msgspec


def make_converter(cls: Any) -> Callable[[Any], Any]:
    """Return a function that converts a JSON value to an instance of `cls`.

    `cls` is a dataclass, TypedDict, NamedTuple, attrs class, msgspec Struct or pydantic model, or
    any type that one of their fields may have. Raises ConfigError if msgspec is not installed, and
    for a type that no JSON value can become.

    The function raises PayloadError, with the path of the field, for a value that does not fit.
    """
    try:
        import msgspec
    except ImportError as error:
        raise ConfigError(
            "as_type needs msgspec: install it with pip install 'jsonbus[typed]'"
        ) from error
    _check_type(cls)
    convert = msgspec.convert

    def convert_value(value: Any) -> Any:
        try:
            return convert(value, cls, str_keys=True, dec_hook=_validate_model)
        except msgspec.ValidationError as error:
            raise PayloadError(_describe(error)) from error
        except RecursionError:
            raise PayloadError(f"value: nested too deep for {_name(cls)}") from None
        except Exception as error:
            # The application's __post_init__ may raise anything on another node's value.
            raise PayloadError(f"value: {_name(cls)} refuses it: {error!r}") from error

    return convert_value


def _check_type(cls: Any) -> None:
    """Raise ConfigError unless JSON values can become `cls`. Making a schema visits every field."""
    import msgspec

    if cls is object or isinstance(cls, str):
        raise ConfigError(f"as_type={cls!r}: give a class, or a type of JSON")
    try:
        msgspec.json.schema(cls, schema_hook=_describe_model)
    except TypeError as error:
        raise ConfigError(f"as_type={_name(cls)}: {error}") from error
    except NameError as error:
        raise ConfigError(
            f"as_type={_name(cls)}: the annotation {error.name!r} cannot be looked up, "
            "define that type at the top level of a module"
        ) from error


def _describe_model(cls: Any) -> dict[str, Any]:
    if hasattr(cls, "model_validate"):
        return {"type": "object"}
    raise TypeError(f"no JSON value becomes {_name(cls)}")


def _validate_model(cls: Any, value: Any) -> Any:
    """Make a pydantic model. On failure, raise an error with a path like those of msgspec."""
    try:
        return cls.model_validate(value)
    except ValueError as error:
        if not hasattr(error, "errors"):
            raise
        first = error.errors()[0]
        path = "".join(f".{at}" if isinstance(at, str) else f"[{at}]" for at in first["loc"])
        raise ValueError(f"{first['msg']}{_PATH_MARK}{path}`") from error


def _describe(error: Exception) -> str:
    reason, *paths = str(error).split(_PATH_MARK)
    path = "".join(each.removesuffix("`") for each in reversed(paths))
    if len(reason) > REASON_MAX:
        reason = reason[: REASON_MAX - 1] + "…"
    return f"value{path}: {reason}"


def _name(annotation: Any) -> str:
    if isinstance(annotation, type) and typing.get_origin(annotation) is None:
        return annotation.__name__
    return str(annotation).replace("typing.", "")
