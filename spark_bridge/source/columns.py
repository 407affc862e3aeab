"""The columns of a query, in the order of its schema, with exactly the Arrow types that Spark
expects: Spark compares both schemas before it takes the first row.
"""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import types as T
from pyspark.sql.pandas.types import to_arrow_schema

from .errors import OptionError
from .json.json_rows import compile_type
from .options import SourceOptions

#: In their default order.
COLUMNS: dict[str, T.DataType] = {
    "topic": T.StringType(),
    "value": T.StringType(),
    "node": T.StringType(),
    "incarnation": T.LongType(),
    "sequence": T.LongType(),
    "timestamp": T.TimestampType(),
    "received_at": T.TimestampType(),
    "retained": T.BooleanType(),
    "partition": T.IntegerType(),
    "offset": T.LongType(),
}
GAP = "gap"  # only if gap records are wanted


def default_schema(options: SourceOptions) -> T.StructType:
    """Return the schema of a query that gives none."""
    return T.StructType([T.StructField(*each) for each in _columns(options).items()])


def _columns(options: SourceOptions) -> dict[str, T.DataType]:
    columns = dict(COLUMNS)
    columns["value"] = options.value_schema or columns["value"]
    return {**columns, GAP: T.LongType()} if options.include_gaps else columns


def check_schema(schema: T.StructType, options: SourceOptions) -> None:
    """Raise OptionError if the schema of a query asks for what the source does not have."""
    known = _columns(options)
    if not schema.fields:
        raise OptionError(f"the schema is empty: give it some of {', '.join(known)}")
    if len(set(schema.names)) < len(schema.names):
        raise OptionError(f"the schema names a column twice: {', '.join(schema.names)}")
    for field in schema.fields:
        if field.name == GAP and not options.include_gaps:
            raise OptionError("the column gap is there only with the option includeGaps=true")
        if field.name not in known:
            raise OptionError(
                f"the schema has a column {field.name}; the columns are {', '.join(known)}"
            )
        if not field.nullable:
            raise OptionError(f"the column {field.name} may be null: leave out its NOT NULL")
        if field.name == "value" and options.value_schema is None:
            compile_type(field.dataType)
        elif field.dataType != known[field.name]:
            raise OptionError(
                f"the column {field.name} is {known[field.name].simpleString().upper()}, "
                f"not {field.dataType.simpleString().upper()}"
            )


def value_type(schema: T.StructType) -> T.DataType | None:
    """Return the type of the column `value`; None if the query does not use that column."""
    return next((field.dataType for field in schema.fields if field.name == "value"), None)


def arrow_schema(schema: T.StructType) -> pa.Schema:
    """Return the schema as Spark makes it. The time zone is a parameter since Spark 4.2, and
    was fixed before.
    """
    try:
        return to_arrow_schema(schema, timezone="UTC")
    except TypeError:
        return to_arrow_schema(schema)


def select(
    rows: pa.RecordBatch, partition: int, value: pa.Array, schema: pa.Schema
) -> pa.RecordBatch:
    """Return the columns of the schema; no row is examined."""
    arrays = []
    for name in schema.names:
        if name == "partition":
            arrays.append(pa.repeat(pa.scalar(partition, pa.int32()), rows.num_rows))
        else:
            arrays.append(value if name == "value" else rows.column(name))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
