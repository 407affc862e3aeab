"""Options of the sink, and the meaning of its columns; both are checked when a query starts."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.types import (
    BooleanType,
    CharType,
    DataType,
    StringType,
    StructType,
    VarcharType,
)

from .errors import OptionError
from .json.to_json import find_unwritable, to_json
from .options import parse_options

#: By their names in lower case: options that the sink shares with the source, its own, and those
#: that Spark adds.
_SHARED = {"bridge": "bridge", "token": "token", "connecttimeoutms": "connectTimeoutMs"}
_OWN = {
    "topic": "topic",
    "retain": "retain",
    "onbadrow": "onBadRow",
    "query": "query",
    "batch": "batch",
}
_OF_SPARK = frozenset({"checkpointlocation", "queryname"})

#: Options about which the source, which sees all of them first, must not complain.
SINK_OPTIONS = _OF_SPARK | _OWN.keys()

_COLUMNS = ("topic", "value", "retain")
_QUERY_CHARACTERS_MAX = 200  # as the bridge has it


@dataclass(frozen=True)
class SinkOptions:
    """The options."""

    bridge: str
    token: str | None
    timeout_s: float
    topic: str | None  # for rows without a column of that name
    retain: bool  # for rows without that column, or with null in it
    skip_bad: bool  # leave out rows that the bus would refuse, instead of failing
    query: str | None = None  # a name under which each batch is written once, and its number:
    batch: int = 0  # for writes from foreachBatch


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
    shared, own = {}, {}
    for name, text in given.items():
        if name.lower() in _SHARED:
            shared[name] = text
        elif name.lower() in _OWN:
            own[name.lower()] = text.strip()
        elif name.lower() not in _OF_SPARK:
            raise _unknown(name)
    parsed = parse_options(shared, also_known=frozenset())
    if len(parsed.bridge) != 1:
        raise OptionError(
            f"option bridge: the sink writes to one bridge, {len(parsed.bridge)} are named: choose "
            "one, all nodes of the bus hear it"
        )
    query, batch = _parse_place(own)
    return SinkOptions(
        query=query,
        batch=batch,
        bridge=parsed.bridge[0],
        token=parsed.token,
        timeout_s=parsed.timeout_s,
        topic=own.get("topic"),
        retain=_choose(own, "retain", "false", "true"),
        skip_bad=_choose(own, "onbadrow", "fail", "skip"),
    )


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


def _parse_place(given: Mapping[str, str]) -> tuple[str | None, int]:
    """Parse query and batch, which go together."""
    query, batch = given.get("query"), given.get("batch")
    if query is None and batch is None:
        return None, 0
    if query is None or batch is None:
        raise OptionError(
            "the options query and batch go together: a name, and the number of the batch, which "
            "foreachBatch tells"
        )
    if not 0 < len(query) <= _QUERY_CHARACTERS_MAX or not query.isprintable():
        raise OptionError(
            f"option query: {query!r} is no name of 1 to {_QUERY_CHARACTERS_MAX} characters"
        )
    if not batch.isdecimal() or int(batch) >= 1 << 63:
        raise OptionError(f"option batch: {batch!r} is no whole number from 0 up")
    return query, int(batch)


def _choose(given: Mapping[str, str], name: str, no: str, yes: str) -> bool:
    text = given.get(name, no).lower()
    if text not in (no, yes):
        raise OptionError(f"option {_OWN[name]}: {given[name]!r} is neither {no} nor {yes}")
    return text == yes


def _unknown(name: str) -> OptionError:
    if name.lower() == "path":
        return OptionError("a bus has no path: the option `bridge` names the bridge")
    known = {**_SHARED, **_OWN}
    close = difflib.get_close_matches(name.lower(), known, n=1)
    hint = f": did you mean {known[close[0]]}?" if close else ""
    return OptionError(
        f"unknown option {name!r} of the sink{hint} (the options are {', '.join(known.values())})"
    )
