"""Rows are checked before they are kept, and come back as they were."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

from spark_bridge.errors import RequestError
from spark_bridge.sink.rows import check_rows, read_rows
from tests.spark_bridge.sink.staging import arrow_stream, text_rows

LIMIT = 1000


def test_rows_come_back_in_order_with_their_retain_flag() -> None:
    body = text_rows(["a", "b/c"], ['{"x": [1, 2.5, null]}', '"text"'], [True, None])
    checked = check_rows(body, value_bytes_max=LIMIT)
    assert checked == (2, body, 0)
    assert list(read_rows(checked.body)) == [
        ("a", {"x": [1, 2.5, None]}, True),
        ("b/c", "text", False),
    ]


def test_rows_without_a_retain_column_are_not_retained() -> None:
    assert list(read_rows(text_rows(["a"], ["1"]))) == [("a", 1, False)]


def test_a_null_value_is_the_json_null() -> None:
    assert list(read_rows(text_rows(["a", "a"], [None, "null"], [True, True]))) == [
        ("a", None, True),
        ("a", None, True),
    ]


def test_a_value_column_of_nothing_but_nulls_may_have_the_null_type() -> None:
    body = arrow_stream({"topic": pa.array(["a"]), "value": pa.nulls(1)})
    assert check_rows(body, value_bytes_max=LIMIT).rows == 1


@pytest.mark.parametrize(
    ("topic", "text", "reason"),
    [
        ("a/b", "hello", r"row 2, topic 'a/b': the value 'hello' is not JSON text .*to_json\(\)"),
        ("a/b", "", "not JSON text"),
        ("a/b", "NaN", "not JSON text"),
        ("a/b", '{"a":1} 2', "not JSON text"),
        ("a/b", '"\\ud800"', "not JSON text"),
        ("a/*", "1", r"row 2, topic 'a/\*': the topic is not valid"),
        ("a//b", "1", "the topic is not valid"),
        ("", "1", "the topic is not valid"),
        ("jsonbus.secret", "1", "the topic is not valid"),
        (None, "1", "row 2, topic None: the topic is null"),
        ("a/b", '"' + "x" * LIMIT + '"', "takes 1,002 bytes, at most 1,000"),
        ("a/b", "[" * 300 + "]" * 300, "nested too deeply"),
    ],
)
def test_a_row_that_the_bus_would_refuse_is_refused_with_its_place(
    topic: str | None, text: str, reason: str
) -> None:
    with pytest.raises(RequestError, match=reason):
        check_rows(text_rows(["ok", topic], ["1", text]), value_bytes_max=LIMIT)


def test_the_row_is_counted_over_all_batches_of_the_stream() -> None:
    columns = {"topic": pa.array(["a"] * 5), "value": pa.array(["1", "2", "3", "x", "5"])}
    with pytest.raises(RequestError, match="row 4, topic 'a'"):
        check_rows(arrow_stream(columns, rows_per_batch=2), value_bytes_max=LIMIT)


def test_bad_rows_can_be_left_out_and_are_counted() -> None:
    columns = {
        "topic": pa.array(["a", "a*", "b", None, "c"]),
        "value": pa.array(["1", "x", "oops", "4", "5"]),
    }
    body = arrow_stream(columns, rows_per_batch=2)
    checked = check_rows(body, value_bytes_max=LIMIT, skip_bad=True)
    assert (checked.rows, checked.skipped) == (2, 3)
    assert list(read_rows(checked.body)) == [("a", 1, False), ("c", 5, False)]


def test_rows_that_are_all_bad_leave_an_empty_stream() -> None:
    checked = check_rows(text_rows(["a"], ["x"]), value_bytes_max=LIMIT, skip_bad=True)
    assert (checked.rows, checked.skipped) == (0, 1)
    assert list(read_rows(checked.body)) == []


def test_white_space_does_not_count_as_size() -> None:
    text = json.dumps([1] * 300, indent=8)
    assert len(text) > LIMIT
    assert check_rows(text_rows(["a"], [text]), value_bytes_max=LIMIT).rows == 1


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        ({"topic": pa.array(["a"])}, "column value has the type None"),
        ({"value": pa.array(["1"])}, "column topic has the type None"),
        ({"topic": pa.array(["a"]), "value": pa.array([1])}, "column value has the type int64"),
        ({"topic": pa.array([1]), "value": pa.array(["1"])}, "column topic has the type int64"),
        (
            {"topic": pa.array(["a"]), "value": pa.array(["1"]), "retain": pa.array(["yes"])},
            "column retain has the type string",
        ),
        (
            {"topic": pa.array(["a"]), "value": pa.array(["1"]), "key": pa.array(["k"])},
            "the columns are topic, value, key",
        ),
    ],
)
def test_columns_that_do_not_fit_are_refused(columns: dict[str, pa.Array], reason: str) -> None:
    with pytest.raises(RequestError, match=reason):
        check_rows(arrow_stream(columns), value_bytes_max=LIMIT)


@pytest.mark.parametrize("body", [b"", b"nonsense", text_rows(["a"] * 9, ["1"] * 9)[:-200]])
def test_bytes_that_are_no_stream_are_refused(body: bytes) -> None:
    with pytest.raises(RequestError, match="no Arrow stream"):
        check_rows(body, value_bytes_max=LIMIT)


def test_text_that_is_not_utf8_is_refused() -> None:
    texts = pa.array([b"\xff"]).view(pa.string())
    with pytest.raises(RequestError, match="UTF8"):
        check_rows(arrow_stream({"topic": pa.array(["a"]), "value": texts}), value_bytes_max=LIMIT)
