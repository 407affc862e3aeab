"""Options and columns of the sink: what is wrong is named when the query starts."""

from __future__ import annotations

import pickle

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

from pyspark.sql.types import DayTimeIntervalType, StructType

from spark_bridge.source.errors import OptionError
from spark_bridge.source.sink_options import SinkColumns, find_columns, parse_sink_options


def schema(**types: str) -> StructType:
    made = StructType()
    for name, kind in types.items():
        made = made.add(name, kind)
    return made


def columns(given: StructType, **options: str) -> SinkColumns:
    return find_columns(given, parse_sink_options(options))


def test_defaults() -> None:
    parsed = parse_sink_options({})
    assert parsed.endpoints == [("127.0.0.1:7710", None, 30.0, None)]
    assert (parsed.topic, parsed.retain, parsed.on_bad_row) == (None, False, "fail")


def test_options_are_read_whatever_their_case() -> None:
    parsed = parse_sink_options(
        {
            "BRIDGE": "north:7000",
            "Token": "secret",
            "connectTimeoutMs": "500",
            "Topic": "results",
            "RETAIN": "True",
            "onBadRow": "SKIP",
            "checkpointLocation": "somewhere",
        }
    )
    assert parsed.endpoints == [("north:7000", "secret", 0.5, None)]
    assert (parsed.topic, parsed.retain, parsed.on_bad_row) == ("results", True, "skip")


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"topics": "a"}, r"unknown option 'topics' of the sink: did you mean topic\?"),
        ({"longPollMs": "5"}, "unknown option 'longPollMs' of the sink"),
        ({"path": "x"}, "a bus has no path"),
        ({"retain": "maybe"}, "option retain: 'maybe' is neither false nor true"),
        ({"onBadRow": "drop"}, "option onBadRow: 'drop' is neither fail nor skip"),
        ({"bridge": "a:1,b:2"}, "the sink writes to one bridge, 2 are named"),
        ({"bridge": "a:b:c"}, "option bridge"),
        ({"connectTimeoutMs": "soon"}, "option connectTimeoutMs"),
        ({"query": "averages"}, "the options query and batch go together"),
        ({"batch": "1"}, "the options query and batch go together"),
        ({"query": "averages", "batch": "-1"}, "option batch: '-1' is no whole number"),
        ({"query": "", "batch": "1"}, "option query: '' is no name"),
    ],
)
def test_an_option_that_is_wrong_is_named(options: dict[str, str], reason: str) -> None:
    with pytest.raises(OptionError, match=reason):
        parse_sink_options(options)


def test_a_write_may_be_a_batch_of_a_named_query() -> None:
    parsed = parse_sink_options({"query": "averages", "batch": "17"})
    assert (parsed.query, parsed.batch) == ("averages", 17)


@pytest.mark.parametrize(
    ("given", "options", "reason"),
    [
        (schema(topic="string"), {}, "there is no column value"),
        (schema(value="string"), {}, "neither a column topic nor the option topic"),
        (schema(topic="string", value="string"), {"topic": "x"}, "give one of them"),
        (schema(topic="integer", value="string"), {}, "column topic is int, it must be a string"),
        (
            schema(topic="string", value="integer", retain="integer"),
            {},
            "column retain is int, it must be boolean",
        ),
        (schema(topic="string", value="integer", key="integer"), {}, "column key has no place"),
        (schema(value="integer", VALUE="integer"), {"topic": "x"}, "column VALUE has no place"),
        (
            StructType().add("value", StructType().add("took", DayTimeIntervalType())),
            {"topic": "x"},
            "value.took is interval day to second, which has no JSON form: cast it",
        ),
    ],
)
def test_a_column_that_is_wrong_is_named(
    given: StructType, options: dict[str, str], reason: str
) -> None:
    with pytest.raises(OptionError, match=reason):
        columns(given, **options)


def test_text_travels_as_it_is_and_other_types_as_json() -> None:
    text = columns(schema(topic="string", value="string"))
    batch = pa.record_batch({"topic": ["a", None], "value": ['{"a": 1}', None]})
    assert text.shape(batch).to_pydict() == batch.to_pydict()
    number = columns(schema(Topic="string", VALUE="double"))
    batch = pa.record_batch({"Topic": ["a"], "VALUE": [2.0]})
    assert number.shape(batch).to_pydict() == {"topic": ["a"], "value": ["2.0"]}


def test_the_order_of_columns_is_free() -> None:
    found = columns(schema(retain="boolean", value="integer", topic="string"))
    batch = pa.record_batch({"retain": [True, None], "value": [1, 2], "topic": ["a", "b"]})
    assert found.shape(batch).to_pydict() == {
        "topic": ["a", "b"],
        "value": ["1", "2"],
        "retain": [True, False],
    }


def test_options_stand_in_for_columns_that_are_missing() -> None:
    found = columns(schema(value="integer"), topic="fixed", retain="true")
    assert found.shape(pa.record_batch({"value": [1, 2]})).to_pydict() == {
        "topic": ["fixed", "fixed"],
        "value": ["1", "2"],
        "retain": [True, True],
    }


def test_the_option_retain_fills_nulls_of_the_column() -> None:
    found = columns(schema(value="integer", retain="boolean"), topic="fixed", retain="true")
    batch = pa.record_batch({"value": [1, 2], "retain": pa.array([False, None])})
    assert found.shape(batch).column("retain").to_pylist() == [False, True]


def test_large_types_of_arrow_travel_as_common_ones() -> None:
    found = columns(schema(topic="string", value="string"))
    batch = pa.record_batch(
        {
            "topic": pa.array(["a"], pa.large_string()),
            "value": pa.array(["1"], pa.large_string()),
        }
    )
    assert found.shape(batch).schema.types == [pa.string(), pa.string()]


def test_columns_travel_to_the_tasks() -> None:
    found = columns(schema(value="integer"), topic="fixed")
    assert pickle.loads(pickle.dumps(found)) == found
