from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jsonbus.cli.top.keys import KeyReader

SAMPLES = [
    (b"q", ["q"]),
    (b"\x1b[A\x1b[B", ["up", "down"]),
    (b"\x1bOA\x1bOH", ["up", "home"]),
    (b"\x1b[5~\x1b[6~\x1b[4~", ["pageup", "pagedown", "end"]),
    (b"\t\x1b[Z\r\n\x7f\x08", ["tab", "backtab", "enter", "enter", "backspace", "backspace"]),
    ("é日".encode(), ["é", "日"]),
    (b"\x1bq", ["escape", "q"]),
    (b"\x1b\x1b[A", ["escape", "up"]),
    (b"a\x1b[15;2~b", ["a", "b"]),  # a key that means nothing here
    (b"\x00\x01", []),
]


@pytest.mark.parametrize(("data", "keys"), SAMPLES)
def test_bytes_become_keys_however_they_are_cut(data: bytes, keys: list[str]) -> None:
    assert KeyReader().feed(data) == keys
    reader = KeyReader()
    assert [key for n in range(len(data)) for key in reader.feed(data[n : n + 1])] == keys


def test_an_escape_that_nothing_follows_is_a_key() -> None:
    reader = KeyReader()
    assert reader.feed(b"\x1b") == []
    assert reader.is_waiting
    assert reader.give_up() == ["escape"]
    assert not reader.is_waiting
    assert reader.feed(b"[") == ["["]


def test_the_beginning_of_a_sequence_that_never_ends_is_no_key() -> None:
    reader = KeyReader()
    assert reader.feed(b"\x1b[1;") == []
    assert reader.give_up() == []


@given(st.lists(st.binary(max_size=8)))
def test_any_bytes_give_keys_or_nothing(chunks: list[bytes]) -> None:
    reader = KeyReader()
    for chunk in chunks:
        for key in reader.feed(chunk):
            assert key.isprintable()
    reader.give_up()
