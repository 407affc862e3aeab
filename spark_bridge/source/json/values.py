"""Reads the column `value` as a struct: JSON text to Arrow, many rows at once.

Arrow's JSON reader takes a block of rows whole, without a look at any of them from Python, or it
takes none. When it refuses, the block is halved until the rows that it refuses are few; those are
read one by one as json_rows.py does, which is as forgiving as Spark's `from_json`: a number is good
for a STRING, say. A value that does not fit even then becomes null, and its row is returned.

Each value is wrapped as `{"v":…}`: then any type can stand for a value, not only a struct, and null
is nothing special.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj
from pyspark.sql.types import DataType

from .json_rows import compile_type, parse

#: Below this many rows there is no more halving: one by one costs about as much as another try.
HALVES_MIN_ROWS = 64


class ValueReader:
    """Reads values of one type."""

    def __init__(self, data_type: DataType, arrow_type: pa.DataType) -> None:
        """Raise OptionError if JSON cannot hold that type."""
        self._convert = compile_type(data_type)
        self._type = arrow_type
        self._fast_type = _find_fast_type(arrow_type)

    def read(self, texts: pa.Array) -> tuple[pa.Array, list[int]]:
        """Return the values, and the rows whose text is JSON of another type, or not JSON."""
        misfits: list[int] = []
        arrays = self._read(texts, 0, misfits)
        return arrays[0] if len(arrays) == 1 else pa.concat_arrays(arrays), misfits

    def _read(self, texts: pa.Array, at: int, misfits: list[int]) -> list[pa.Array]:
        if self._fast_type is None:
            return [self._read_one_by_one(texts, at, misfits)]
        try:
            return [self._read_at_once(texts)]
        except pa.ArrowInvalid:
            if len(texts) <= HALVES_MIN_ROWS:
                return [self._read_one_by_one(texts, at, misfits)]
        half = len(texts) // 2
        return [
            *self._read(texts.slice(0, half), at, misfits),
            *self._read(texts.slice(half), at + half, misfits),
        ]

    def _read_at_once(self, texts: pa.Array) -> pa.Array:
        """Read all rows; ArrowInvalid if any row is not as the reader wants it."""
        if not len(texts):
            return pa.array([], self._type)
        lines = pc.binary_join_element_wise('{"v":', pc.fill_null(texts, "null"), "}\n", "")
        data = lines.buffers()[2]
        table = pj.read_json(
            pa.BufferReader(data),
            # One block: whatever is in a value, no line is cut in two.
            read_options=pj.ReadOptions(use_threads=False, block_size=data.size + 1),
            parse_options=pj.ParseOptions(
                explicit_schema=pa.schema([("v", self._fast_type)]),
                unexpected_field_behavior="ignore",
            ),
        )
        if table.num_rows != len(texts):
            raise pa.ArrowInvalid("a value that is several")
        column = table.column("v").combine_chunks()
        array = column.chunk(0) if isinstance(column, pa.ChunkedArray) else column
        return array if array.type == self._type else array.cast(self._type)

    def _read_one_by_one(self, texts: pa.Array, at: int, misfits: list[int]) -> pa.Array:
        values = []
        for row, text in enumerate(texts.to_pylist(), at):
            value = None
            try:
                parsed = None if text is None else parse(text)
                value = None if parsed is None else self._convert(parsed)
            except (ValueError, RecursionError):
                misfits.append(row)
            values.append(value)
        return pa.array(values, self._type)


def _find_fast_type(arrow_type: pa.DataType) -> pa.DataType | None:
    """Return the type that Arrow's reader is to read, to be cast afterwards; None if it cannot.

    Arrow would read a date as a number of days, drop the zone of a local time, allow a decimal more
    digits than it may have, and leave base64 as it is; it does not know maps.
    """
    if pa.types.is_map(arrow_type) or pa.types.is_binary(arrow_type):
        return None
    if pa.types.is_decimal(arrow_type):
        return pa.decimal128(38, arrow_type.scale)
    if pa.types.is_date(arrow_type):
        return pa.string()
    if pa.types.is_timestamp(arrow_type) and arrow_type.tz is None:
        return pa.string()
    if pa.types.is_list(arrow_type):
        inner = _find_fast_type(arrow_type.value_type)
        return None if inner is None else pa.list_(arrow_type.value_field.with_type(inner))
    if pa.types.is_struct(arrow_type):
        fields = []
        for index in range(arrow_type.num_fields):
            field = arrow_type.field(index)
            inner = _find_fast_type(field.type)
            if inner is None:
                return None
            fields.append(field.with_type(inner))
        return pa.struct(fields)
    return arrow_type
