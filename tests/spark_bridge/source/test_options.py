"""Options: every one is understood or refused by its name."""

from __future__ import annotations

import pytest
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DecimalType,
    DoubleType,
    IntegerType,
    MapType,
    StringType,
    StructType,
    TimestampNTZType,
)

from spark_bridge.source.errors import OptionError
from spark_bridge.source.options import Bound, SourceOptions, parse_options


def parse(**options: str) -> SourceOptions:
    return parse_options(options, frozenset({"checkpointlocation"}))


def test_defaults_are_those_of_the_manual() -> None:
    options = parse()
    assert options.bridge == ("127.0.0.1:7710",)
    assert options.topics == ("**",)
    assert options.starting_offsets is None
    assert options.fail_on_data_loss
    assert options.value_mode == "PERMISSIVE"
    assert options.long_poll_ms == 250
    assert not options.has_limit


def test_a_group_that_is_not_named_gets_a_name_of_its_own() -> None:
    assert parse().group != parse().group
    assert parse(group="alerts").group == "alerts"


def test_names_are_case_insensitive() -> None:
    assert parse(MAXROWSPERTRIGGER="5").max_rows_per_trigger == 5


def test_options_that_are_known_to_others_are_let_through() -> None:
    assert parse(checkpointLocation="/x").topics == ("**",)


@pytest.mark.parametrize(
    ("text", "addresses"),
    [
        ("a:1", ("a:1",)),
        (" A:1 , b:2 ", ("a:1", "b:2")),
        ("host", ("host:7710",)),
        ("[::1]:9", ("[::1]:9",)),
    ],
)
def test_addresses_have_one_spelling(text: str, addresses: tuple[str, ...]) -> None:
    assert parse(bridge=text).bridge == addresses


@pytest.mark.parametrize(
    ("text", "bound"),
    [
        ("Earliest", Bound(earliest=True)),
        ("latest", Bound(latest=True)),
        ("1970-01-01T00:00:01.5Z", Bound(time_us=1_500_000)),
        ("1970-01-01T01:00:00+01:00", Bound(time_us=0)),
        ("1970-01-02", Bound(time_us=86_400_000_000)),
        ('{"A:1": {"0": 7, "1": -1}}', Bound(offsets={"a:1": {"0": 7, "1": -1}})),
        (
            '{"a:1": {"0": 7, "epoch": "x", "from": {"0": 1}}}',
            Bound(offsets={"a:1": {"0": 7, "epoch": "x", "from": {"0": 1}}}),
        ),
    ],
)
def test_starting_offsets_have_four_forms(text: str, bound: Bound) -> None:
    assert parse(startingOffsets=text).starting_offsets == bound


def test_topics_may_be_a_json_array_for_commas_in_names() -> None:
    assert parse(topics="a/**, b").topics == ("a/**", "b")
    assert parse(topics='["a,b"]').topics == ("a,b",)


@pytest.mark.parametrize(
    ("text", "seconds"), [("250", 0.25), ("5s", 5), ("15m", 900), ("1.5 hours", 5400)]
)
def test_durations_have_units(text: str, seconds: float) -> None:
    assert parse(maxTriggerDelay=text).max_trigger_delay == seconds


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("bridge", ""),
        ("bridge", "a:1,,b:2"),
        ("bridge", "a:0"),
        ("bridge", "a:65536"),
        ("bridge", "http://a:1"),
        ("bridge", "a:1,A:1"),
        ("topics", ""),
        ("topics", "a//b"),
        ("topics", "a*"),
        ("topics", "a,,b"),
        ("topics", "x" * 256),
        ("topics", "[1]"),
        ("topics", "[not json"),
        ("group", ""),
        ("group", "x" * 201),
        ("startingOffsets", "yesterday"),
        ("startingOffsets", "{"),
        ("startingOffsets", '{"a:1": 5}'),
        ("startingOffsets", '{"a:1": {"0": -3}}'),
        ("startingOffsets", '{"a:1": {"0": true}}'),
        ("startingOffsets", '{"a:1": {"zero": 1}}'),
        ("endingOffsets", "soon"),
        ("maxRowsPerTrigger", "0"),
        ("maxRowsPerTrigger", "-1"),
        ("maxRowsPerTrigger", "many"),
        ("maxBytesPerTrigger", "1k"),
        ("minRowsPerTrigger", ""),
        ("maxTriggerDelay", "5 parsecs"),
        ("minPartitions", "1.5"),
        ("maxRowsPerPartition", "0"),
        ("failOnDataLoss", "maybe"),
        ("valueSchema", " "),
        ("valueSchema", "a"),
        ("valueSchema", "a FOO"),
        ("valueSchema", "a INT NOT NULL"),
        ("valueSchema", "a INT, a STRING"),
        ("valueSchema", "a INT b INT"),
        ("valueSchema", "a STRUCT<b INT"),
        ("valueSchema", "a MAP<INT, INT>"),
        ("valueSchema", "a DECIMAL(39,0)"),
        ("valueSchema", "a DECIMAL(5,6)"),
        ("valueSchema", "a VARIANT"),
        ("valueSchema", "STRUCT<a: INT>, b INT"),
        ("valueMode", "DROPMALFORMED"),
        ("includeGaps", "1"),
        ("token", ""),
        ("connectTimeoutMs", "99"),
        ("longPollMs", "60001"),
    ],
)
def test_an_impossible_value_is_an_error_that_names_the_option(name: str, value: str) -> None:
    with pytest.raises(OptionError, match=name):
        parse(**{name: value})


def test_an_unknown_option_is_an_error_that_guesses_what_was_meant() -> None:
    with pytest.raises(OptionError, match=r"maxRowPerTrigger.*did you mean maxRowsPerTrigger\?"):
        parse(maxRowPerTrigger="5")


def test_a_path_is_told_where_it_belongs() -> None:
    with pytest.raises(OptionError, match="the option `bridge` names the bridge"):
        parse(path="/data")


def test_a_least_number_of_rows_above_the_largest_is_refused() -> None:
    with pytest.raises(OptionError, match="minRowsPerTrigger is 9, more than maxRowsPerTrigger"):
        parse(minRowsPerTrigger="9", maxRowsPerTrigger="8")


@pytest.mark.parametrize(
    ("text", "data_type"),
    [
        ("a INT", StructType().add("a", IntegerType())),
        (
            "a: integer , `b c``d` String COMMENT 'it''s, here'",
            StructType().add("a", IntegerType()).add("b c`d", StringType()),
        ),
        ("STRUCT<a: INT>", StructType().add("a", IntegerType())),
        ("struct STRING", StructType().add("struct", StringType())),
        ("ARRAY<DOUBLE>", ArrayType(DoubleType())),
        ("map<string, dec(12, 3)>", MapType(StringType(), DecimalType(12, 3))),
        (
            "x ARRAY<STRUCT<y: TIMESTAMP_NTZ, z: DECIMAL>>",
            StructType().add(
                "x",
                ArrayType(StructType().add("y", TimestampNTZType()).add("z", DecimalType(10, 0))),
            ),
        ),
    ],
)
def test_value_schemas_are_written_as_in_sql(text: str, data_type: DataType) -> None:
    assert parse(valueSchema=text).value_schema == data_type


def test_a_table_of_the_catalog_is_refused_since_spark_forgets_its_options() -> None:
    with pytest.raises(OptionError, match="CREATE TEMPORARY VIEW"):
        parse(owner="me", bridge="a:1")
