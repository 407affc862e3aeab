"""The columns that a query gets, in the order of its schema, with exactly the Arrow types that
Spark expects of them: Spark compares both schemas before it takes the first row."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import DataType, StringType, StructType

from .errors import OptionError
from .json_rows import compile_type
from .options import SourceOptions

#: Name and SQL type, in the order in which they come if nobody says otherwise.
COLUMNS = {
    "topic": "string",
    "value": "string",
    "node": "string",
    "incarnation": "bigint",
    "sequence": "bigint",
    "timestamp": "timestamp",
    "received_at": "timestamp",
    "retained": "boolean",
    "partition": "int",
    "offset": "bigint",
}
GAP = "gap"


def default_schema(options: SourceOptions) -> str:
    """The schema of a query that gives none, as DDL: only Spark's JVM can parse a valueSchema."""
    types = dict(COLUMNS)
    if options.include_gaps:
        types[GAP] = "bigint"
    if options.value_schema is not None:
        types["value"] = _value_type(options.value_schema)
    return ", ".join(f"`{name}` {sql_type}" for name, sql_type in types.items())


def _value_type(value_schema: str) -> str:
    """Columns, as in `a INT, b STRING`, or one type, as in `STRUCT<a: INT>` or `ARRAY<INT>`."""
    head = value_schema.split("<")[0].strip().lower()
    return value_schema if head in ("struct", "array", "map") else f"STRUCT<{value_schema}>"


def check_schema(schema: StructType, options: SourceOptions) -> None:
    """OptionError if the schema of a query asks for what the source does not have."""
    known = {**COLUMNS, GAP: "bigint"} if options.include_gaps else COLUMNS
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
        given = field.dataType.simpleString()
        if field.name == "value" and not isinstance(field.dataType, StringType):
            compile_type(field.dataType)
            continue
        if given != known[field.name]:
            raise OptionError(
                f"the column {field.name} is {known[field.name].upper()}, not {given.upper()}"
            )
    value = value_type(schema)
    if options.value_schema is not None and isinstance(value, StringType):
        raise OptionError(
            "option valueSchema makes the column value a struct, the schema has it as STRING: "
            "use one of them"
        )


def value_type(schema: StructType) -> DataType | None:
    """The type of the column `value`; None if the query does not take that column."""
    return next((field.dataType for field in schema.fields if field.name == "value"), None)


def arrow_schema(schema: StructType) -> pa.Schema:
    """As Spark makes it. The time zone has to be told since Spark 4.2, and was fixed before."""
    try:
        return to_arrow_schema(schema, timezone="UTC")
    except TypeError:
        return to_arrow_schema(schema)


def select(
    rows: pa.RecordBatch, partition: int, value: pa.Array, schema: pa.Schema
) -> pa.RecordBatch:
    """The columns of the schema; no row is looked at."""
    arrays = []
    for name in schema.names:
        if name == "partition":
            arrays.append(pa.repeat(pa.scalar(partition, pa.int32()), rows.num_rows))
        else:
            arrays.append(value if name == "value" else rows.column(name))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
