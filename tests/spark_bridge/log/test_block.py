from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from spark_bridge.log.block import (
    HAS_GAPS,
    HEADER_BYTES,
    ROWS,
    ROWS_WITHOUT_OFFSET,
    SAME_FLUSH,
    TOPICS_MAX,
    combine_rows,
    cut_rows,
    decode_rows,
    decode_topics,
    distinct_topics,
    encode_block,
    is_intact,
    number_rows,
    parse_header,
)
from tests.spark_bridge.log.log_rows import make_batch, make_row, make_values

# A busy machine is no failure.
UNHURRIED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


def test_a_block_gives_back_the_rows_it_was_made_of() -> None:
    rows = number_rows(make_batch([make_row('{"a":1}', "a/b", 5), make_row("2", "c", 3)]), 7)
    block = encode_block(rows, 7, 9, ["c", "a/b"])
    header = parse_header(block)
    assert header is not None
    assert (header.first, header.end, header.rows, header.size_bytes) == (7, 9, 2, len(block))
    assert (header.received_min_us, header.received_max_us) == (3, 5)
    assert header.plain_bytes == rows.nbytes
    assert len(block) % 8 == 0
    assert is_intact(block, header)
    assert decode_topics(block, header) == ["a/b", "c"]
    assert decode_rows(block, header) == rows


def test_every_changed_byte_of_a_block_is_noticed() -> None:
    block = encode_block(number_rows(make_values("1", "2"), 0), 0, 2, ["t"])
    for position in range(len(block)):
        damaged = bytearray(block)
        damaged[position] ^= 0x10
        header = parse_header(damaged)
        # Bytes 5 to 7 mean nothing: they are only there to align the rest.
        if position not in (5, 6, 7):
            noticed = header is None or header.size_bytes != len(block)
            assert noticed or not is_intact(damaged, header), position


def test_flags_tell_of_gaps_and_of_the_flush() -> None:
    gap = number_rows(make_batch([make_row(None, None, gap=3)]), 0)
    message = number_rows(make_values("1"), 0)
    for rows, given_flags, flags in [
        (gap, 0, HAS_GAPS),
        (gap, SAME_FLUSH, HAS_GAPS | SAME_FLUSH),
        (message, SAME_FLUSH, SAME_FLUSH),
        (message, 0, 0),
    ]:
        header = parse_header(encode_block(rows, 0, 1, None, flags=given_flags))
        assert header is not None
        assert header.flags == flags
        assert header.has_gaps == bool(flags & HAS_GAPS)


@pytest.mark.parametrize("count", [1, 1023, 1024, 1025, 200_000])
def test_rows_are_numbered_from_any_offset(count: int) -> None:
    first = 1 << 40
    nulls = [pa.nulls(count, field.type) for field in ROWS_WITHOUT_OFFSET]
    rows = number_rows(pa.RecordBatch.from_arrays(nulls, schema=ROWS_WITHOUT_OFFSET), first)
    assert rows.schema == ROWS
    assert rows.column("offset").to_pylist() == list(range(first, first + count))


@UNHURRIED
@given(
    st.lists(st.integers(0, 300), min_size=1, max_size=60), st.integers(1, 20), st.integers(1, 4000)
)
def test_cut_rows_are_the_same_rows_in_allowed_sizes(
    lengths: list[int], rows_max: int, bytes_max: int
) -> None:
    rows = number_rows(make_values(*("x" * each for each in lengths)), 0)
    parts = list(cut_rows(rows, rows_max, bytes_max))
    assert combine_rows(parts) == rows
    for part in parts:
        assert part.num_rows == 1 or (part.num_rows <= rows_max and part.nbytes <= bytes_max)


def test_topics_are_listed_unless_they_are_too_many() -> None:
    few = make_batch([make_row("1", "a"), make_row("1", "b"), make_row(None, None, gap=1)])
    assert distinct_topics(few) == ["a", "b"]
    assert distinct_topics(make_batch([make_row(None, None, gap=1)])) == []
    many = make_batch(make_row("1", str(each)) for each in range(TOPICS_MAX + 1))
    assert distinct_topics(many) is None


def test_a_block_without_topics_and_one_with_unknown_topics_differ() -> None:
    rows = number_rows(make_batch([make_row(None, None, gap=1)]), 0)
    for topics in ([], None):
        block = encode_block(rows, 0, 1, topics)
        header = parse_header(block)
        assert header is not None
        assert decode_topics(block, header) == topics


@UNHURRIED
@given(st.binary(max_size=HEADER_BYTES * 2))
def test_bytes_that_are_no_header_are_none(data: bytes) -> None:
    assert parse_header(data) is None
