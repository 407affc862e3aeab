"""Writes columns of any type as JSON text, by Arrow's compute functions: no loop over rows.

    numbers, booleans      as they are; NaN and the infinities, which JSON lacks, are null
    strings                strings
    timestamps             "2024-05-01T12:00:00.000000Z"; those without a time zone have no Z
    dates, times           "2024-05-01", "12:00:00.000000"
    decimals               numbers with all their digits
    binary                 base64
    structs, maps, arrays  objects, objects (every key becomes a string), arrays; nulls stay
    VARIANT                what it holds

What loops over rows: binary, VARIANT, and strings with control characters.
"""

from __future__ import annotations

import base64
import json

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import types as T

#: Types without parts, as Spark names them.
_PLAIN = frozenset(
    """
    binary boolean byte char date decimal double float integer long short string time timestamp
    timestamp_ntz varchar variant void
    """.split()
)


def find_unwritable(kind: T.DataType, name: str) -> tuple[str, T.DataType] | None:
    """Return the first column, field or element whose type has no JSON form here, as (path,
    type).
    """
    if isinstance(kind, T.StructType):
        inner = [(field.dataType, f"{name}.{field.name}") for field in kind.fields]
    elif isinstance(kind, T.ArrayType):
        inner = [(kind.elementType, f"{name}[]")]
    elif isinstance(kind, T.MapType):
        inner = [(kind.keyType, f"{name}.key"), (kind.valueType, f"{name}.value")]
    else:
        return None if kind.typeName() in _PLAIN else (name, kind)
    return next((found for each in inner if (found := find_unwritable(*each))), None)


def to_json(array: pa.Array) -> pa.Array:
    """Return the text of each value; null where the value is null, or has no JSON form (NaN)."""
    if array.null_count == len(array):
        return pa.nulls(len(array), pa.string())
    text = _texts(array)
    return pc.if_else(array.is_valid(), text, None) if array.null_count else text


def _texts(array: pa.Array) -> pa.Array:
    """Return the text of each value; where the value is null, the text is undefined."""
    kind = array.type
    if pa.types.is_dictionary(kind):
        return to_json(array.cast(kind.value_type))
    if pa.types.is_floating(kind):
        return _floats(array)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return _quote(array.cast(pa.string()))
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return _wrap('"', pa.array([_base64(each) for each in array.to_pylist()]), '"')
    if pa.types.is_timestamp(kind):
        return _timestamps(array)
    if pa.types.is_time(kind):
        return _wrap('"', array.cast(pa.time64("us")).cast(pa.string()), '"')
    if pa.types.is_date(kind):
        return _wrap('"', array.cast(pa.string()), '"')
    if pa.types.is_struct(kind):
        return _variants(array) if _is_variant(kind) else _structs(array)
    if pa.types.is_map(kind):
        return _maps(array)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _wrap("[", _join(array.offsets, to_json(array.values)), "]")
    return array.cast(pa.string())  # booleans, integers, decimals


def _floats(array: pa.Array) -> pa.Array:
    text = array.cast(pa.string())
    # Whole numbers come without a point: readers would take them for integers.
    is_whole = pc.match_substring_regex(text, "^-?[0-9]+$")
    text = pc.if_else(is_whole, _wrap("", text, ".0"), text)
    return pc.if_else(pc.is_finite(array), text, None)


def _timestamps(array: pa.Array) -> pa.Array:
    # Via numbers: they count in UTC whatever the time zone, so no time zone database is needed.
    instants = array.cast(pa.int64()).cast(pa.timestamp(array.type.unit)).cast(pa.string())
    text = pc.replace_substring(instants, " ", "T", max_replacements=1)
    return _wrap('"', text, '"' if array.type.tz is None else 'Z"')


def _structs(array: pa.Array) -> pa.Array:
    pieces: list[pa.Array | str] = []
    for name, values in zip(array.type.names, array.flatten(), strict=True):
        key = json.dumps(name, ensure_ascii=False) + ":"
        pieces += ["," + key if pieces else "{" + key, to_json(values)]
    if not pieces:
        return pa.array(["{}"] * len(array))
    return pc.binary_join_element_wise(
        *pieces, "}", "", null_handling="replace", null_replacement="null"
    )


def _maps(array: pa.Array) -> pa.Array:
    keys = to_json(array.keys)
    if not _is_quoted(array.type.key_type):
        keys = _quote(keys)
    entries = pc.binary_join_element_wise(
        keys, to_json(array.items), ":", null_handling="replace", null_replacement="null"
    )
    return _wrap("{", _join(array.offsets, entries), "}")


def _variants(array: pa.Array) -> pa.Array:
    texts = [
        None if each is None else T.VariantVal(each["value"], each["metadata"]).toJson()
        for each in array.to_pylist()
    ]
    return pa.array(texts, pa.string())


def _join(offsets: pa.Array, texts: pa.Array) -> pa.Array:
    lists = pa.ListArray.from_arrays(offsets.cast(pa.int32()), texts.fill_null("null"))
    return pc.binary_join(lists, ",")


def _quote(array: pa.Array) -> pa.Array:
    """Return text as a JSON string."""
    escaped = pc.replace_substring_regex(array, r'(["\\])', r"\\\1")
    text = _wrap('"', escaped, '"')
    has_controls = pc.match_substring_regex(array, r"[\x00-\x1f]").fill_null(False)
    if not pc.any(has_controls).as_py():
        return text
    rare = [json.dumps(each, ensure_ascii=False) for each in array.filter(has_controls).to_pylist()]
    return pc.replace_with_mask(text, has_controls, pa.array(rare, pa.string()))


def _wrap(before: str, array: pa.Array, behind: str) -> pa.Array:
    return pc.binary_join_element_wise(before, array, behind, "")


def _base64(value: bytes | None) -> str | None:
    return None if value is None else base64.b64encode(value).decode("ascii")


def _is_variant(kind: pa.DataType) -> bool:
    """Return whether a struct is a VARIANT: Spark sends one as a struct, and marks it in the
    metadata of a field.
    """
    return any((field.metadata or {}).get(b"variant") == b"true" for field in kind)


def _is_quoted(kind: pa.DataType) -> bool:
    """Return whether the JSON of a type is a string."""
    return not (
        pa.types.is_boolean(kind)
        or pa.types.is_integer(kind)
        or pa.types.is_floating(kind)
        or pa.types.is_decimal(kind)
        or pa.types.is_nested(kind)
    )
