from __future__ import annotations

import io
import sys
from collections.abc import Callable

import click
import pytest

from jsonbus.cli.lib import input_lines as lines
from jsonbus.cli.lib.input_lines import LineReader, Pair, ValueReader

PRINTED = (
    '{"topic":"a","value":1,"node":"n","name":"N","sequence":7,"sent_at":1.5,"received_at":2.5}'
)

Read = Callable[..., tuple[list[Pair], LineReader]]


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> Read:
    def read_all(
        text: str | bytes, topic: str | None = None, *, is_text: bool = False
    ) -> tuple[list[Pair], LineReader]:
        data = text.encode() if isinstance(text, str) else text
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
        reader = LineReader(topic, is_text=is_text)
        return list(reader), reader

    return read_all


def test_with_a_topic_every_line_is_a_value_for_it(read: Read) -> None:
    pairs, reader = read('1\n\n"x"\r\n{"a":1}', "t")
    assert pairs == [("t", 1), ("t", "x"), ("t", {"a": 1})]
    assert reader.refused == 0


def test_a_line_that_sub_printed_keeps_its_topic(read: Read) -> None:
    assert read(PRINTED)[0] == [("a", 1)]
    assert read(PRINTED, "t")[0] == [("a", 1)]


def test_with_a_topic_an_object_that_only_looks_alike_is_a_value(read: Read) -> None:
    assert read('{"topic":"a","value":1}', "t")[0] == [("t", {"topic": "a", "value": 1})]


def test_without_a_topic_an_object_with_topic_and_value_is_enough(read: Read) -> None:
    assert read('{"topic":"a","value":null,"more":1}')[0] == [("a", None)]


@pytest.mark.parametrize("line", ["1", '{"topic":"a"}', '{"value":1}', '{"topic":5,"value":1}'])
def test_without_a_topic_other_lines_are_refused(
    read: Read, capsys: pytest.CaptureFixture[str], line: str
) -> None:
    pairs, reader = read(f'{line}\n{{"topic":"b","value":2}}\n')
    assert pairs == [("b", 2)]
    assert reader.refused == 1
    assert "line 1 is not published" in capsys.readouterr().err


def test_lines_that_are_not_json_are_told_and_passed_over(
    read: Read, capsys: pytest.CaptureFixture[str]
) -> None:
    pairs, reader = read(b"1\nhello\n\xff\xfe\n2\n", "t")
    assert pairs == [("t", 1), ("t", 2)]
    assert reader.refused == 2
    told = capsys.readouterr().err
    assert "line 2 is not published: hello is not JSON" in told
    assert "line 3 is not published: it is not UTF-8" in told
    assert told.count("; --text publishes lines as text\n") == 1


def test_a_flood_of_bad_lines_is_counted_instead_of_told_one_by_one(
    read: Read, capsys: pytest.CaptureFixture[str]
) -> None:
    reader = read("x\n" * 5000, "t")[1]
    assert reader.refused == 5000
    told = capsys.readouterr().err.splitlines()
    assert len(told) == lines.REFUSALS_TOLD_MAX + 1
    assert told[-1] == "5,000 lines were not published"


def test_a_line_that_is_too_long_is_passed_over(
    read: Read, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lines, "LINE_BYTES_MAX", 20)
    pairs, reader = read(f"1\n[{'1,' * 50}1]\n2\n[{'1,' * 50}1]", "t")
    assert pairs == [("t", 1), ("t", 2)]
    assert reader.refused == 2


def test_text_lines_are_taken_as_they_are(read: Read) -> None:
    assert read(f"hello\n{PRINTED}\n", "t", is_text=True)[0] == [("t", "hello"), ("t", PRINTED)]


def test_text_lines_need_a_topic() -> None:
    with pytest.raises(click.UsageError, match="TOPIC"):
        LineReader(None, is_text=True)


def test_values_without_topics_are_read_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    stream = io.BytesIO(f"{PRINTED}\n\n[1]\nhello\n{'9' * 40}\n2".encode())
    reader = ValueReader(stream, done="sent", line_bytes_max=len(PRINTED))
    assert [type(each) for each in reader] == [dict, list, int, int]
    assert reader.refused == 1
    assert "line 4 is not sent: hello is not JSON" in capsys.readouterr().err
