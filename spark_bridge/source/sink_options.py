"""Options of the sink, and the meaning of its columns; both are checked when a query starts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.types import BooleanType, CharType, DataType, StringType, StructType, VarcharType

from .errors import OptionError
from .json.to_json import find_unwritable, to_json
from .options import (
    BRIDGE_PARSERS,
    BridgeOptions,
    Parser,
    choice,
    parse_flag,
    parse_name,
    parse_texts,
    whole_number,
)

_COLUMNS = ("topic", "value", "retain")

_OWN: dict[str, Parser] = {
    "topic": str,
    "retain": parse_flag,
    "onBadRow": choice({"fail": "fail", "skip": "skip"}),
    "query": parse_name,
    "batch": whole_number(0, (1 << 63) - 1, "from 0 up"),
}
_OF_SPARK = frozenset({"checkpointlocation", "queryname"})
_EXPLAINED = {"path": "a bus has no path: the option `bridge` names the bridge"}

#: Names, in lower case, about which the source, which sees all options first, must not complain.
SINK_OPTIONS = _OF_SPARK | {name.lower() for name in _OWN}


@dataclass(frozen=True)
class SinkOptions(BridgeOptions):
    """The sink's options."""

    topic: str | None = None  # for rows without a column of that name
    retain: bool = False  # for rows without that column, or with null in it
    on_bad_row: str = "fail"  # or "skip": leave out rows that the bus would refuse
    query: str | None = None  # a name under which each batch is written once, and its number:
    batch: int | None = None  # for writes from foreachBatch

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.bridge) != 1:
            raise OptionError(
                f"option bridge: the sink writes to one bridge, {len(self.bridge)} are named: "
                "choose one, all nodes of the bus hear it"
            )
        if (self.query is None) != (self.batch is None):
            raise OptionError(
                "the options query and batch go together: a name, and the number of the batch, "
                "which foreachBatch tells"
            )


@dataclass(frozen=True)
class SinkColumns:
    """Where topic, value and retain are, and how the value becomes text."""

    options: SinkOptions
    topic_at: int | None
    value_at: int
    retain_at: int | None
    is_text: bool

    def shape(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return rows of the query as they travel: topic, value as JSON text, and retain if
        needed.
        """
        if self.topic_at is None:
            topics = pa.repeat(pa.scalar(self.options.topic, pa.string()), batch.num_rows)
        else:
            topics = batch.column(self.topic_at).cast(pa.string())
        values = batch.column(self.value_at)
        columns = {
            "topic": topics,
            "value": values.cast(pa.string()) if self.is_text else to_json(values),
        }
        if self.retain_at is not None:
            columns["retain"] = batch.column(self.retain_at).fill_null(self.options.retain)
        elif self.options.retain:
            columns["retain"] = pa.repeat(True, batch.num_rows)
        return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


def parse_sink_options(given: Mapping[str, str]) -> SinkOptions:
    """Return the sink's options from everything that Spark passes; OptionError names the wrong
    one.
    """
    parsers = {**BRIDGE_PARSERS, **_OWN}
    return SinkOptions(**parse_texts(given, parsers, " of the sink", _OF_SPARK, _EXPLAINED))


def find_columns(schema: StructType, options: SinkOptions) -> SinkColumns:
    """Find the columns; OptionError names the one that is missing, surplus or of a wrong type.

    Names of columns are case-insensitive, as in Spark.
    """
    places: dict[str, int] = {}
    for place, name in enumerate(schema.names):
        if name.lower() not in _COLUMNS or name.lower() in places:
            raise OptionError(
                f"column {name} has no place on the bus: select only topic, value and, optionally, "
                "retain; to_json(struct(…)) makes one value of many columns"
            )
        places[name.lower()] = place
    if "value" not in places:
        raise OptionError(
            "there is no column value, which holds what is published: "
            "to_json(struct(…)) AS value makes one of many columns"
        )
    if "topic" not in places and options.topic is None:
        raise OptionError("there is neither a column topic nor the option topic: give one of them")
    if "topic" in places and options.topic is not None:
        raise OptionError("there is a column topic, and the option topic, too: give one of them")
    types: dict[str, DataType] = {name: schema[at].dataType for name, at in places.items()}
    if not _is_text(types.get("topic", StringType())):
        raise OptionError(f"column topic is {types['topic'].simpleString()}, it must be a string")
    if not isinstance(types.get("retain", BooleanType()), BooleanType):
        raise OptionError(f"column retain is {types['retain'].simpleString()}, it must be boolean")
    unwritable = find_unwritable(types["value"], "value")
    if unwritable is not None:
        path, kind = unwritable
        raise OptionError(f"{path} is {kind.simpleString()}, which has no JSON form: cast it first")
    return SinkColumns(
        options,
        topic_at=places.get("topic"),
        value_at=places["value"],
        retain_at=places.get("retain"),
        is_text=_is_text(types["value"]),
    )


def _is_text(kind: DataType) -> bool:
    return isinstance(kind, StringType | CharType | VarcharType)
